"""Parameters for whose gradients DistributedDataParallel waits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from typing import Final

import torch
from torch import nn

from gradir.frontends.pytorch.private import fields_of
from gradir.frontends.pytorch.reading.members import named_parameters_in
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.steps import Step, Value
from gradir.frontends.pytorch.recording.timelines import Frame

__all__ = ["first_after_forward", "left_waiting", "waits_for"]

_INDICES: Final = re.compile(r"did not receive grad for rank \d+: ([\d ]+)")


def waits_for(flow: Flow, reached: Set[int]) -> set[int]:
    """The parameters, by id(), of modules whose next iteration raises if one of them gets no gradient.

    That is so of modules of which some get one: ``reached`` are all that do.
    """
    waiting: dict[int, nn.Module] = {}
    seen: set[int] = set()
    for step in flow.steps:
        call = step.call
        while call is not None and id(call) not in seen:
            seen.add(id(call))
            fields = fields_of(call.module) if isinstance(call.module, nn.parallel.DistributedDataParallel) else {}
            if fields and not fields.get("find_unused_parameters") and not fields.get("static_graph"):
                waiting[id(call.module)] = call.module
            call = call.caller
    found: set[int] = set()
    for module in waiting.values():
        own = {id(parameter) for _, parameter in named_parameters_in(module) if parameter.requires_grad}
        found |= set() if own.isdisjoint(reached) else own
    return found


def first_after_forward(flow: Flow, wanted: Set[Value]) -> Step | None:
    """Return the first step behind the last forward of such a module that a loss of ``wanted`` values is made of."""
    inside = {id(step) for step in flow.steps if any(map(_is_parallel, _calls(step)))}
    last = max((index for index, step in enumerate(flow.steps) if id(step) in inside), default=len(flow.steps))
    later = range(last + 1, len(flow.steps))
    return next((flow.steps[index] for index in later if not wanted.isdisjoint(flow.made_by(index))), None)


def _calls(step: Step) -> Iterator[Frame]:
    call = step.call
    while call is not None:
        yield call
        call = call.caller


def _is_parallel(call: Frame) -> bool:
    return isinstance(call.module, nn.parallel.DistributedDataParallel)


def left_waiting(error: BaseException, parameters: Mapping[str, torch.Tensor]) -> list[str]:
    """The names of the parameters that an error says got no gradient, by their place among those that require one."""
    found = _INDICES.search(str(error))
    learning = {id(tensor): name for name, tensor in parameters.items() if tensor.requires_grad}
    names = [*learning.values()]
    indices = map(int, found[1].split()) if found else ()
    return [names[index] for index in indices if index < len(names)]
