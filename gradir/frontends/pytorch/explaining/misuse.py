"""Operations that are given what they do not take: losses of other shapes or numbers, and outputs of one step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

from gradir.frontends.pytorch.explaining.cuts import Flowing
from gradir.frontends.pytorch.explaining.gradients import Arrival
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.operands import plain_name
from gradir.frontends.pytorch.recording.steps import Read, Step, Value
from gradir.frontends.walks import chain

__all__ = ["Trap", "has_seen_one_step", "taker", "traps"]

_COMPARING: Final = frozenset({"huber_loss", "l1_loss", "mse_loss", "smooth_l1_loss"})
_SIZING: Final = frozenset({"abs", "pow", "square"})
"""What makes a loss of a difference."""

_SOFTMAX: Final = frozenset({"safe_softmax", "softmax"})
_SHOWING: Final = frozenset(
    {
        *("alias", "clone", "contiguous", "expand", "permute", "reshape", "slice", "squeeze", "t", "to_copy"),
        *("transpose", "unsafe_view", "unsqueeze", "view"),
    }
)
"""Operations that show the numbers of their input."""

_OF_LOGITS: Final = frozenset({"addbmm", "addmm", "baddbmm", "bmm", "convolution", "mm", "native_layer_norm"})
_MOST_BACK: Final = 16


class Trap(NamedTuple):
    """What is wrong with the loss at a step, with a detail."""

    kind: str
    step: Step
    detail: str = ""


def traps(flow: Flow, flowing: Flowing) -> Iterator[Trap]:
    """The traps of the operations that a loss is made of, each place once."""
    seen = set[object]()
    for index, step in enumerate(flow.steps):
        if flowing.wanted.isdisjoint(flow.made_by(index)):
            continue
        found = _trap(flow, step, index)
        if found is not None and (found.kind, step.place) not in seen:
            seen.add((found.kind, step.place))
            yield found


def _trap(flow: Flow, step: Step, index: int) -> Trap | None:
    name = plain_name(step.func)
    if (step.called in _COMPARING and name in _COMPARING) or (name == "sub" and _is_measured(flow, index)):
        return _broadcast(flow, step)
    if step.called == "cross_entropy" and name == "log_softmax" and _made_by(flow, step.inputs[0].value) in _SOFTMAX:
        return Trap("softmax_twice", step)
    if name == "binary_cross_entropy_with_logits" and _made_by(flow, step.inputs[0].value) == "sigmoid":
        return Trap("sigmoid_twice", step)
    # kl_div multiplies its target by its input.
    place = 0 if step.called == "nll_loss" else 1 if step.called == "kl_div" and name == "mul" else len(step.inputs)
    if place < len(step.inputs) and step.inputs[place].carries:
        maker = _made_by(flow, step.inputs[place].value)
        if maker in _SOFTMAX or (maker in _OF_LOGITS and step.called == "nll_loss"):
            return Trap("not_log", step, f"they come from {maker}")
    return None


def _broadcast(flow: Flow, step: Step) -> Trap | None:
    """A column of results that is compared with a row of targets, so that each meets all."""
    if len(step.inputs) != 2:
        return None
    one, other = (_unexpanded(flow, read) for read in step.inputs)
    # A pairwise difference has its gradient on both sides.
    if one.carries == other.carries:
        return None
    first, second = (flow.meta_of(read.value).shape or () for read in (one, other))
    longer, shorter = (first, second) if len(first) > len(second) else (second, first)
    if len(longer) != len(shorter) + 1 or longer[-1] != 1 or longer[:-1] != shorter or shorter[-1:] in {(), (1,)}:
        return None
    shown = " against ".join(str(tuple(shape)) for shape in (first, second))
    return Trap("broadcast", step, f"{shown} gives {(*shorter[:-1], shorter[-1], shorter[-1])}")


def _unexpanded(flow: Flow, read: Read) -> Read:
    """What a loss was given, before it expanded that itself."""
    maker = flow.step_of(read.value)
    if maker is None or plain_name(maker.func) != "expand" or maker.called not in _COMPARING | {"broadcast_tensors"}:
        return read
    return maker.inputs[0]


def _is_measured(flow: Flow, index: int) -> bool:
    """Whether a difference is made a number by itself, as ``((output - target) ** 2).mean()`` does."""
    made = set(flow.made_by(index))
    for after in flow.steps[index + 1 : index + 3]:
        if any(read.value in made for read in after.inputs):
            squares = plain_name(after.func) == "mul" and all(read.value in made for read in after.inputs)
            return plain_name(after.func) in _SIZING or squares
    return False


def _made_by(flow: Flow, value: Value) -> str:
    """What made a value, but for what only shows it otherwise."""

    def shown(step: Step) -> Step | None:
        is_shown = plain_name(step.func) in _SHOWING and bool(step.inputs)
        return flow.step_of(step.inputs[0].value) if is_shown else None

    made = [plain_name(step.func) for step in islice(chain(flow.step_of(value), shown), _MOST_BACK)]
    return "" if not made or made[-1] in _SHOWING else made[-1]


_OF_STATE: Final = re.compile(r"(.*\.)?weight_hh_l(\d+)(_reverse)?", re.DOTALL)
_CHOOSING: Final = frozenset({"gather", "index", "index_select", "select", "slice", "split", "unbind"})
_KEEPING: Final = frozenset(
    {"clone", "div", "mul", "native_dropout", "native_layer_norm", "permute", "relu", "tanh", "to_copy", "transpose"}
)
"""Operations that keep the steps of a sequence apart."""


def has_seen_one_step(name: str, arrivals: Mapping[str, Arrival]) -> bool:
    """Whether a weight gets a gradient of zero as its direction of a recurrent network was read after one step.

    Then the state that it weighs is where that began, while the weight of the input gets a gradient. That of the other
    direction says that there are more steps.
    """
    found = _OF_STATE.fullmatch(name)
    if found is None:
        return False
    path, layer, reverse = found.groups(default="")
    other = f"{path}weight_hh_l{layer}" if reverse else f"{name}_reverse"
    partners = (other, f"{path}weight_ih_l{layer}{reverse}")
    return all(each in arrivals and arrivals[each].kind == "some" for each in partners)


def taker(flow: Flow, flowing: Flowing, leaf: Value) -> Step | None:
    """The first step outside the calls of a module with a leaf that takes a part of what these make, by its place."""
    inside = [step for step in flow.steps if any(flowing.root(read.value) == leaf for read in step.inputs)]
    calls = {id(step.call) for step in inside if step.call is not None}
    whole, passing = set[Value](), flowing.wanted & flowing.carrying
    for index, step in enumerate(flow.steps):
        made = flow.made_by(index)
        if id(step.call) in calls:
            whole.update(made)
        elif not whole.isdisjoint(read.value for read in step.inputs) and not passing.isdisjoint(made):
            if plain_name(step.func) in _CHOOSING:
                return step
            if plain_name(step.func) not in _KEEPING:
                return None
            whole.update(made)
    return None
