"""Recurrent networks of which a program takes the one output at which a direction has seen one step."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from gradir.frontends.pytorch.explaining.cuts import Flowing
from gradir.frontends.pytorch.explaining.gradients import Arrival
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.operands import plain_name
from gradir.frontends.pytorch.recording.steps import Step, Value

__all__ = ["has_seen_one_step", "taker"]

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
