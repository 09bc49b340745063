"""Instructions of a program, and where a function is written."""

from __future__ import annotations

import functools
from types import CodeType
from typing import NamedTuple

__all__ = ["Place", "Written", "written"]


class Place(NamedTuple):
    """An instruction of a program; ``caller`` is the user's own that led to it, where it is one of a library."""

    code: CodeType
    instruction: int
    caller: Place | None = None


class Written(NamedTuple):
    """What a function is called, and its first line, if it has one."""

    name: str
    place: Place | None


def written(hook: object) -> Written:
    """Where something that can be called is written."""
    function = hook
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    name = str(getattr(function, "__name__", type(function).__name__))
    if not isinstance(code, CodeType):
        return Written(name, None)
    return Written(name, Place(code, next((start for start, _, line in code.co_lines() if line), 0)))
