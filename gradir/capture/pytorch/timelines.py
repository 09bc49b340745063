"""Which module a thread was running at each autograd sequence number."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import torch
from torch import nn

from gradir.capture.pytorch.walk import GradFn

__all__ = ["Frame", "ScopeLookup", "Timeline"]

_AFTER_FORWARD: Final = "BackwardHookFunctionBackward"
"""The node that torch puts behind a module with a full backward hook, when the module's call seems to have ended."""


class Frame(NamedTuple):
    """A running call of a module; ``caller`` is the frame that called it.

    ``parameters`` are those that the module had when it was called.
    """

    module: nn.Module
    caller: Frame | None
    parameters: tuple[torch.Tensor | None, ...]


class Timeline:
    """What one thread ran: the frame from each sequence number on."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.frames: list[Frame | None] = []
        self.current: Frame | None = None

    def switch(self, frame: Frame | None) -> None:
        """Note that the nodes made from now on belong to a frame."""
        self.current = frame
        self.numbers.append(torch._C._autograd._get_sequence_nr())
        self.frames.append(frame)

    def covers(self, number: int) -> bool:
        """Whether a node of this number may have been made in this thread while it was watched."""
        return bool(self.numbers) and self.numbers[0] <= number < self.numbers[-1]


class ScopeLookup:
    """The module path in which a grad_fn was made: empty when no module ran, ``None`` when threads leave it open."""

    def __init__(self, timelines: Iterable[Timeline], paths: Mapping[nn.Module, str]) -> None:
        self._paths = paths
        self._tracks = [(timeline, self._resolve(timeline.frames)) for timeline in timelines if timeline.numbers]

    def __call__(self, fn: GradFn) -> str | None:
        """Look a grad_fn up by its sequence number."""
        number = fn._sequence_nr()
        scopes = {
            self._scope(timeline, scopes, fn, number) for timeline, scopes in self._tracks if timeline.covers(number)
        }
        if len(scopes) > 1:
            return None
        return scopes.pop() if scopes else ""

    def _scope(self, timeline: Timeline, scopes: Sequence[str], fn: GradFn, number: int) -> str:
        index = bisect_right(timeline.numbers, number) - 1
        if timeline.numbers[index] == number and index and type(fn).__name__ == _AFTER_FORWARD:
            left = timeline.frames[index - 1]
            if left is not None and left.caller is timeline.frames[index]:
                return scopes[index - 1]
        return scopes[index]

    def _resolve(self, frames: list[Frame | None]) -> list[str]:
        known: dict[int, str] = {}
        scopes = []
        for frame in frames:
            path = known.get(id(frame))
            if path is None:
                path = known[id(frame)] = self._path(frame)
            scopes.append(path)
        return scopes

    def _path(self, frame: Frame | None) -> str:
        while frame is not None and frame.module not in self._paths:
            frame = frame.caller
        return "" if frame is None else self._paths[frame.module]
