"""Where a program makes a new parameter of what it computed, which no operation of torch shows."""

from __future__ import annotations

import dis
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import CodeType
from typing import Final

from gradir.frontends.pytorch.recording.places import Place

__all__ = ["made_at"]

_CLASSES: Final = frozenset({"Parameter", "Variable"})


def made_at(computed: Place | None, used: Place | None) -> Place | None:
    """Where a new leaf is made of what an instruction ``computed``, if the code of that or of its use shows one.

    The call begins in the line of the instruction, as in ``nn.Parameter(a * b)``, or is the next one after it; in the
    code of the use it is the last one before. Else it may be the only one in functions that are written inside these.
    Without any it is where the leaf is ``used``.
    """
    if computed is not None:
        calls = _calls(computed.code)
        line = _line(computed)
        found = [at for at, at_line in calls.items() if at > computed.instruction or at_line == line]
        if found:
            same = [at for at in found if calls[at] == line]
            return computed._replace(instruction=min(same or found))
    if used is not None:
        before = [at for at in _calls(used.code) if at <= used.instruction]
        if before:
            return used._replace(instruction=max(before))
    inner = {each for place in (computed, used) if place is not None for each in _inner_calls(place.code)}
    return inner.pop() if len(inner) == 1 else used


@lru_cache(maxsize=1024)
def _inner_calls(code: CodeType) -> Sequence[Place]:
    waiting, found = [code], list[Place]()
    while waiting:
        inner = [each for each in waiting.pop().co_consts if isinstance(each, CodeType)]
        found += [Place(each, at) for each in inner for at in _calls(each)]
        waiting += inner
    return found


@lru_cache(maxsize=1024)
def _calls(code: CodeType) -> Mapping[int, int | None]:
    """Where a code takes one of the classes that make leaves, and the lines of these instructions."""
    found = (each.offset for each in dis.get_instructions(code) if each.argval in _CLASSES and "LOAD" in each.opname)
    return {at: _line(Place(code, at)) for at in found}


def _line(place: Place) -> int | None:
    return next((line for start, end, line in place.code.co_lines() if start <= place.instruction < end), None)
