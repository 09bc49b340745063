"""Record which module a thread ran at each autograd sequence number."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from operator import itemgetter
from types import FrameType
from typing import Final, NamedTuple

import torch
from torch import nn
from torch.nn.utils.parametrizations import orthogonal, spectral_norm, weight_norm
from torch.nn.utils.parametrize import register_parametrization

from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.reading.nodes import CALLER
from gradir.frontends.pytorch.reading.walk import GradFn
from gradir.frontends.walks import follow

# torch's functions that register a parametrization, by id(), since code is slow to hash.
_REGISTERING: Final = {id(each.__code__) for each in (register_parametrization, orthogonal, spectral_norm, weight_norm)}


class Frame(NamedTuple):
    """A running call of a module, the call around it, and the parameters that the module had at its start.

    The code of a custom Function made a call that is ``inside``. A call that ``checks`` tests a new parametrization.
    """

    module: nn.Module
    caller: Frame | None
    parameters: tuple[tuple[str, torch.Tensor | None], ...]
    inside: bool = False
    checks: bool = False


def surroundings() -> tuple[bool, bool]:
    """Return whether a custom Function, and whether a registration of a parametrization, runs the module call."""
    frame: FrameType | None = sys._getframe(1)
    calls, registers = 0, False
    # The first module call on the stack is the present one. The next one was examined when it began.
    while frame is not None and calls < 2:
        code = frame.f_code
        if code is private.MODULE_CALL:
            calls += 1
        elif private.is_function_call(code):
            return True, registers
        elif id(code) in _REGISTERING:
            registers = True
        frame = frame.f_back
    return False, registers


class Timeline:
    """The frame that one thread ran from each sequence number on."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.frames: list[Frame | None] = []
        self.current: Frame | None = None

    def switch(self, frame: Frame | None) -> None:
        """Assign the nodes from now on to a frame."""
        self.current = frame
        self.numbers.append(private.next_sequence_number())
        self.frames.append(frame)

    def snapshot(self) -> tuple[list[int], list[Frame | None]]:
        """Return the numbers and the frames so far; the thread may still run."""
        frames = self.frames.copy()
        return self.numbers[: len(frames)], frames


class ScopeLookup:
    """Looks up the module path in which a grad_fn was made: empty outside modules, ``None`` if threads disagree."""

    def __init__(self, timelines: Iterable[Timeline], paths: Mapping[nn.Module, str]) -> None:
        self._paths = paths
        snapshots = map(Timeline.snapshot, timelines)
        self._tracks = [_Track(numbers, frames, self._resolve(frames)) for numbers, frames in snapshots]
        watched = [track for track in self._tracks if track.numbers and track.numbers[0] < track.numbers[-1]]
        # With a single recorded thread, a node outside the modules was made by the model's caller.
        self.tells_callers = len(watched) == 1 and "" in paths.values()
        if self.tells_callers:
            (track,) = watched
            scopes = [CALLER if frame is None else scope for frame, scope in zip(*track[1:], strict=True)]
            self._tracks = [track._replace(scopes=scopes)]
        self._outside = CALLER if self.tells_callers else ""
        self._starts, self._scopes = _merge([(track.numbers, track.scopes) for track in self._tracks], self._outside)

    def __call__(self, fns: Sequence[GradFn]) -> list[str | None]:
        """Look grad_fns up by their sequence numbers."""
        numbers = list(map(private.sequence_number, fns))
        found = list(map(self._scopes.__getitem__, map(bisect_right, repeat(self._starts), numbers)))
        if private.AFTER_FORWARD in {kind.__name__ for kind in set(map(type, fns))}:
            starts = set(self._starts)
            after, scopes = _merge([_delay_track(track) for track in self._tracks], self._outside)
            for place, (fn, number) in enumerate(zip(fns, numbers, strict=True)):
                if number in starts and type(fn).__name__ == private.AFTER_FORWARD:
                    found[place] = scopes[bisect_right(after, number)]
        return found

    def _resolve(self, frames: list[Frame | None]) -> list[str]:
        identities = list(map(id, frames))
        known = {key: path_of(frame, self._paths) for key, frame in dict(zip(identities, frames, strict=True)).items()}
        return list(map(known.__getitem__, identities))


def path_of(frame: Frame | None, paths: Mapping[nn.Module, str]) -> str:
    """Return the path of the innermost running module that has one, or an empty string."""
    return next((paths[call.module] for call in calls_from(frame) if call.module in paths), "")


def calls_from(frame: Frame | None) -> Iterator[Frame]:
    """Yield a module call and the calls around it, from the inside out."""
    return follow(frame, lambda call: call.caller)


class Coverage:
    """The sequence numbers of nodes that any of the recorded threads may have made."""

    def __init__(self, timelines: Iterable[Timeline]) -> None:
        watched = [numbers for numbers, _ in map(Timeline.snapshot, timelines) if numbers]
        self._starts, self._covered = _merge([([numbers[0], numbers[-1]], ["covered", ""]) for numbers in watched])

    def __contains__(self, number: int) -> bool:
        return self._covered[bisect_right(self._starts, number)] != ""


class _Track(NamedTuple):
    """The frames of one thread and their scopes, each from its number on, up to the last number."""

    numbers: list[int]
    frames: list[Frame | None]
    scopes: list[str]


def _delay_track(track: _Track) -> tuple[list[int], list[str]]:
    """Return the track for nodes made right after a module call, which still belong to that call."""
    numbers, scopes = [], []
    for index, (number, frame, scope) in enumerate(zip(*track, strict=True)):
        left = track.frames[index - 1] if index else None
        is_last = index + 1 < len(track.numbers) and track.numbers[index + 1] > number
        if is_last and left is not None and left.caller is frame:
            numbers.append(number)
            scopes.append(track.scopes[index - 1])
            number += 1  # noqa: PLW2901
        numbers.append(number)
        scopes.append(scope)
    return numbers, scopes


def _merge(tracks: Sequence[tuple[list[int], list[str]]], outside: str = "") -> tuple[list[int], list[str | None]]:
    """Return the numbers at which tracks change, and the scopes before and after each, ``None`` if tracks differ."""
    tracks = [(numbers, scopes) for numbers, scopes in tracks if numbers and numbers[0] < numbers[-1]]
    if len(tracks) == 1:
        ((numbers, scopes),) = tracks
        return numbers, [outside, *scopes[:-1], outside]
    changes: list[tuple[int, int, str]] = []
    for which, (numbers, scopes) in enumerate(tracks):
        changes += zip(numbers, repeat(which), scopes, strict=False)
    ends = [numbers[-1] for numbers, _ in tracks]
    changes.sort(key=itemgetter(0))
    starts: list[int] = []
    merged: list[str | None] = [""]
    running: dict[int, str] = {}
    threads: dict[str, int] = {}
    for number, which, scope in changes:
        if which in running:
            threads[running[which]] -= 1
            if not threads[running[which]]:
                del threads[running[which]]
            del running[which]
        if number < ends[which]:
            running[which] = scope
            threads[scope] = threads.get(scope, 0) + 1
        if not (starts and starts[-1] == number):
            starts.append(number)
            merged.append("")
        merged[-1] = next(iter(threads), "") if len(threads) < 2 else None
    return starts, merged
