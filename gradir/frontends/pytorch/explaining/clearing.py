"""Gradients that a program wiped after the backward which brought them, before a step of an optimizer used them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final, NamedTuple

import torch

from gradir.frontends.pytorch.reading.layouts import numbers_in
from gradir.frontends.pytorch.reading.tensors import storage_of
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.operands import plain_name
from gradir.frontends.pytorch.recording.places import Place
from gradir.frontends.pytorch.recording.steps import Step, Value

__all__ = ["Clearing", "Clearings"]

_BACKWARD: Final = "backward"
_STEP: Final = "Optimizer.step#"
"""The start of the name by which every optimizer of torch tells a profiler of its step."""

_SCALING: Final = frozenset({"clamp", "clamp_max", "clamp_min", "div", "mul"})
_ZEROING: Final = frozenset({"zero", "foreach_zero"})


class Clearing(NamedTuple):
    """The line that wiped a gradient, and that of the step which came too late."""

    place: Place | None
    step: Place | None


class Clearings:
    """What a recorded flow says of the gradients that a backward of some values brought."""

    def __init__(self, flow: Flow, captured: Iterable[Value]) -> None:
        self._flow = flow
        starts = set(captured)
        calls = [index for index, step in enumerate(flow.steps) if step.called == _BACKWARD]
        self._start = next(
            (index for index in calls if any(read.value in starts for read in flow.steps[index].inputs)),
            len(flow.steps),
        )
        self._backwards = calls
        self._used = [index for index, step in enumerate(flow.steps) if _is_of_optimizer(step)]
        emptied = [clearing for clearing in flow.clearings if clearing.before > self._start]
        self._emptied = {clearing.reads[0].value: clearing for clearing in reversed(emptied)}

    def of(self, tensor: torch.Tensor) -> Clearing | None:
        """How the gradient of a leaf was wiped, if it was, and no step of an optimizer has used one since."""
        found = self._wiped(tensor)
        if found is None:
            return None
        index, place = found
        written = self._last_write(tensor)
        # A step with a gradient of zeros writes all the same.
        last = index if tensor.grad is not None else len(self._flow.steps)
        if self._start <= (-1 if written is None else written) < last:
            return None
        later = bisect_left(self._used, index)
        if later == len(self._used) or later > bisect_left(self._used, self._start):
            return None
        # What a backward comes to again by then has a new gradient.
        if bisect_left(self._backwards, index) < bisect_left(self._backwards, self._used[later]):
            return None
        return Clearing(place, self._flow.steps[self._used[later]].place)

    def scaled(self, tensor: torch.Tensor) -> Step | None:
        """The step that multiplied or clamped the gradient of a leaf to zero, after the backward that brought it."""
        index = None if tensor.grad is None else self._last_write(tensor.grad)
        if tensor.grad is None or index is None or index <= self._start or bool(numbers_in(tensor.grad).any()):
            return None
        written = self._last_write(tensor)
        if written is not None and self._start <= written < index:
            # A step has used it before.
            return None
        step = self._flow.steps[index]
        return step if plain_name(step.func).removeprefix("foreach_") in _SCALING else None

    def _wiped(self, tensor: torch.Tensor) -> tuple[int, Place | None] | None:
        if tensor.grad is None:
            emptied = self._emptied.get(self._flow.value_of(tensor))
            return None if emptied is None else (emptied.before, emptied.place)
        index = self._last_write(tensor.grad)
        if index is None or index <= self._start or bool(numbers_in(tensor.grad).any()):
            return None
        step = self._flow.steps[index]
        return (index, step.place) if plain_name(step.func) in _ZEROING else None

    def _last_write(self, tensor: torch.Tensor) -> int | None:
        storage = storage_of(tensor)
        writes = () if storage is None else self._flow.writes(storage)
        return writes[-1] if writes else None


def _is_of_optimizer(step: Step) -> bool:
    return any(isinstance(value, str) and value.startswith(_STEP) for _, value in step.constants)
