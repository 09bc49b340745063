"""Losses that are given what they do not take, outputs of one step, and optimizers that lack what they should have."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Final, NamedTuple

import torch
from torch import nn

from gradir.frontends.pytorch.explaining.cuts import Flowing
from gradir.frontends.pytorch.explaining.gradients import Arrival, Gradients
from gradir.frontends.pytorch.explaining.subject import Subject, is_master
from gradir.frontends.pytorch.private import CHECKPOINT, fields_of
from gradir.frontends.pytorch.reading.members import named_parameters_in
from gradir.frontends.pytorch.reading.reach import living
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.steps import SHOWING, Read, Step, Value, plain_name
from gradir.frontends.pytorch.recording.timelines import Frame, calls_from
from gradir.frontends.walks import chain

_COMPARING: Final = frozenset({"huber_loss", "l1_loss", "mse_loss", "smooth_l1_loss"})
# These make a loss of a difference.
_SIZING: Final = frozenset({"abs", "pow", "square"})
_SOFTMAX: Final = frozenset({"safe_softmax", "softmax"})
# The results of these are scores, and no logarithms of probabilities.
_OF_LOGITS: Final = frozenset({"addbmm", "addmm", "baddbmm", "bmm", "convolution", "mm", "native_layer_norm"})
_MOST_BACK: Final = 16


class Trap(NamedTuple):
    """A fault of the loss at a step, with a detail."""

    kind: str
    step: Step
    detail: str = ""


def traps(flow: Flow, flowing: Flowing) -> Iterator[Trap]:
    """Yield the traps of the operations that a loss is made of, each place once."""
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
    """Return the trap of a column of results compared with a row of targets, so that each meets all."""
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
    """Return an argument of a loss as it was before the loss expanded it."""
    maker = flow.step_of(read.value)
    if maker is None or plain_name(maker.func) != "expand" or maker.called not in _COMPARING | {"broadcast_tensors"}:
        return read
    return maker.inputs[0]


def _is_measured(flow: Flow, index: int) -> bool:
    """Return whether a difference is made a number by itself, as ``((output - target) ** 2).mean()`` does."""
    made = set(flow.made_by(index))
    for after in flow.steps[index + 1 : index + 3]:
        if any(read.value in made for read in after.inputs):
            squares = plain_name(after.func) == "mul" and all(read.value in made for read in after.inputs)
            return plain_name(after.func) in _SIZING or squares
    return False


def _made_by(flow: Flow, value: Value) -> str:
    def shown(step: Step) -> Step | None:
        is_shown = plain_name(step.func) in SHOWING and bool(step.inputs)
        return flow.step_of(step.inputs[0].value) if is_shown else None

    made = [plain_name(step.func) for step in islice(chain(flow.step_of(value), shown), _MOST_BACK)]
    return "" if not made or made[-1] in SHOWING else made[-1]


_OF_STATE: Final = re.compile(r"(.*\.)?weight_hh_l(\d+)(_reverse)?", re.DOTALL)
_CHOOSING: Final = frozenset({"gather", "index", "index_select", "select", "slice", "split", "unbind"})
# Operations that keep the steps of a sequence apart.
_KEEPING: Final = frozenset(
    {"clone", "div", "mul", "native_dropout", "native_layer_norm", "permute", "relu", "tanh", "to_copy", "transpose"}
)


def has_seen_one_step(name: str, arrivals: Mapping[str, Arrival]) -> bool:
    """Return whether a recurrent weight has a zero gradient because only one step of its direction was read."""
    found = _OF_STATE.fullmatch(name)
    if found is None:
        return False
    path, layer, reverse = found.groups(default="")
    other = f"{path}weight_hh_l{layer}" if reverse else f"{name}_reverse"
    # The state that it weighs is then the initial one, while the weights of the input and the other direction learn.
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


_INDICES: Final = re.compile(r"did not receive grad for rank \d+: ([\d ]+)")


def waits_for(flow: Flow, reached: Set[int]) -> set[int]:
    """Return the ids of parameters whose DistributedDataParallel raises next time, since some get no gradient."""
    calls = {id(step.call): step.call for step in flow.steps}
    around = (call for innermost in calls.values() for call in calls_from(innermost))
    found: set[int] = set()
    for module in {id(call.module): call.module for call in around if _is_parallel(call)}.values():
        is_told = fields_of(module).get("find_unused_parameters") or fields_of(module).get("static_graph")
        own = {id(parameter) for _, parameter in named_parameters_in(module) if parameter.requires_grad}
        found |= set() if is_told or own.isdisjoint(reached) else own
    return found


def first_after_forward(flow: Flow, wanted: Set[Value]) -> Step | None:
    """Return the first step behind the last forward of such a module that a loss of ``wanted`` values is made of."""
    inside = (index for index, step in enumerate(flow.steps) if any(map(_is_parallel, calls_from(step.call))))
    last = max(inside, default=len(flow.steps))
    later = range(last + 1, len(flow.steps))
    return next((flow.steps[index] for index in later if not wanted.isdisjoint(flow.made_by(index))), None)


def _is_parallel(call: Frame) -> bool:
    return isinstance(call.module, nn.parallel.DistributedDataParallel)


def left_waiting(error: BaseException, parameters: Mapping[str, torch.Tensor]) -> list[str]:
    """The names of the parameters that an error says got no gradient, by their place among those that require one."""
    found = _INDICES.search(str(error))
    learning = {id(tensor): name for name, tensor in parameters.items() if tensor.requires_grad}
    names = [*learning.values()]
    indices = map(int, found[1].split()) if found else ()
    return [names[index] for index in indices if index < len(names)]


# Tensors of these types get their gradient as they are.
_PLAIN: Final = (torch.Tensor, nn.Parameter)
_SCALING: Final = frozenset({"div", "mean", "mul", "squeeze", "sum", "to_copy", "unsqueeze", "view"})
_ADDING: Final = frozenset({"add", "cat", "maximum", "minimum", "stack", "sub"})
# These give the score of a critic, which has no bounds.
_SCORING: Final = frozenset({"addmm", "bmm", "convolution", "dot", "mm", "mv"})
_DECIDING: Final = frozenset({"log", "log_sigmoid_forward", "sigmoid", "softplus"})
_AGAINST_CONSTANTS: Final = frozenset({"binary_cross_entropy", "binary_cross_entropy_with_logits", "mse_loss"})
_CONSTANT: Final = ("full", "ones", "zeros")
_MOST_SUMMANDS: Final = 64


class Unnamed:
    """The tensors of an optimizer that have no name, such as those of a model that was not recorded."""

    def __init__(self, subject: Subject, *, is_open: bool) -> None:
        """``is_open`` is whether compiled code may take others than are known."""
        named = set(map(id, subject.tensors.values()))
        self._tensors = {id(tensor): tensor for tensor in subject.trained or () if id(tensor) not in named}
        self._live = subject.live
        self._leaves = {} if self._live is None else {id(leaf): leaf for leaf in self._live.leaves.values()}
        self._is_open = is_open
        self._gradients: dict[int, float | str] = {}

    def note(self, gradients: Gradients) -> None:
        """Note what a backward brings."""
        self._gradients = {key: gradients.of_leaf(tensor) for key, tensor in self._tensors.items()}

    def lacks_any(self, tensors: Iterable[torch.Tensor | None]) -> bool:
        """Return whether one of some tensors is of the optimizer, and no gradient comes to it."""
        return any(id(tensor) in self._tensors and id(tensor) not in self._leaves for tensor in tensors)

    def may_move(self) -> bool:
        """Return whether a gradient comes to one of them, or may come in a way that is not known."""
        return any(map(self._may_move, self._tensors.values()))

    def _may_move(self, tensor: torch.Tensor) -> bool:
        if id(tensor) in self._leaves:
            return self._gradients.get(id(tensor)) not in {"none", "zero"}
        if self._live is None:
            return False
        # A distributed tensor gets its gradient in another form.
        is_open = self._is_open or type(tensor) not in _PLAIN or is_master([tensor], self._leaves.values())
        return is_open or any(type(fn).__name__ == CHECKPOINT for fn in self._live.grad_fns)


def held_otherwise(tensors: Mapping[str, torch.Tensor]) -> set[str]:
    """Return the names of the tensors that a living optimizer has, such as the other one of a GAN."""
    ids = {id(tensor): name for name, tensor in tensors.items()}
    groups = (fields_of(entry).get("param_groups") or () for entry in (living(torch.optim.Optimizer) if ids else ()))
    held = (id(tensor) for several in groups for group in several for tensor in group["params"])
    return {ids[key] for key in held if key in ids}


def find_forgotten(flow: Flow, flowing: Flowing, model: Mapping[str, Value], lacking: Collection[str]) -> Sequence[str]:
    """Return the names that an optimizer should have too, since it has others of the ``model``."""
    trained = [name for name in model if name not in lacking]
    lacking_in = {f"{name.rpartition('.')[0]}." for name in lacking}
    around = {f"{name.rpartition('.')[0]}." for name in trained}
    # A prompt or a scale of a whole model, all in a module above the others, is trained by itself.
    if lacking_in.isdisjoint(around) and all(
        path == "." or each.startswith(path) for path in around for each in lacking_in
    ):
        return ()
    first = flowing.first_takers
    calls = {leaf: flow.steps[index].call for leaf, index in first.items()}
    # The leaves that were taken in modules in evaluation mode.
    evaluating = {leaf for leaf, call in calls.items() if call and fields_of(call.module).get("training") is False}
    start, last = min(first.get(model[name], 0) for name in trained), [*model].index(trained[-1])
    trains = any(model[name] not in evaluating for name in trained)
    # The leaves of the terms of a loss that make a score larger, or a decision the other one.
    judged = (term for value, sign, term in _summands(flow, flowing) if _is_judgement(flow, value, sign))
    judging = {leaf for term in judged for leaf in flowing.leaves_behind(term)}
    # It may leave out on purpose what comes before all its parameters, as below a new head, what runs in evaluation
    # mode, and what judges the results of the others, as a critic or a discriminator does.
    return [
        name
        for number, (name, value) in enumerate(model.items())
        if name in lacking
        and (first.get(value, start) >= start or number > last)
        and not (trains and value in evaluating)
        and value not in judging
    ]


def _summands(flow: Flow, flowing: Flowing) -> Iterator[tuple[Value, int, Value]]:
    """Yield the summands of a mean of sums, with their signs and terms."""
    terms = frozenset(flowing.terms)
    waiting = [(end, 1, end) for end in sorted(flowing.ends)]
    for _ in range(_MOST_SUMMANDS):
        if not waiting:
            return
        value, sign, term = waiting.pop()
        term = value if value in terms else term
        step = flow.step_of(value)
        name = "" if step is None else plain_name(step.func)
        if step is not None and name == "neg":
            waiting.append((step.inputs[0].value, -sign, term))
        elif step is not None and name in _SCALING and len(step.inputs) == 1:
            is_negative = any(isinstance(number, (int, float)) and number < 0 for _, number in step.constants)
            waiting.append((step.inputs[0].value, -sign if name in {"div", "mul"} and is_negative else sign, term))
        elif step is not None and name in _ADDING and step.called not in _AGAINST_CONSTANTS:
            signs = [-sign if name == "sub" and slot else sign for slot in range(len(step.inputs))]
            waiting += [(read.value, each, term) for read, each in zip(step.inputs, signs, strict=True)]
        else:
            yield value, sign, term


def _is_judgement(flow: Flow, value: Value, sign: int) -> bool:
    step = flow.step_of(value)
    if step is None:
        return False
    if step.called in _AGAINST_CONSTANTS:
        makers = (flow.step_of(read.value) for read in step.inputs)
        return any(maker is not None and plain_name(maker.func).startswith(_CONSTANT) for maker in makers)
    decides = plain_name(step.func) in _DECIDING
    while step is not None and (plain_name(step.func) in _DECIDING or plain_name(step.func) == "neg"):
        step = flow.step_of(step.inputs[0].value)
    return step is not None and plain_name(step.func) in _SCORING and (sign < 0 or decides)
