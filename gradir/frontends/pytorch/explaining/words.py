"""What a step and its place are called by the program that has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gradir.frontends.pytorch.recording.places import Place
from gradir.frontends.pytorch.recording.sources import ShownLines
from gradir.frontends.pytorch.recording.steps import Step
from gradir.ir import Source

__all__ = ["called", "few", "line_in_words", "lines_of"]

_MOST_LISTED: Final = 3
"""How many operations or tensors the detail of a cause names."""


def called(step: Step) -> str:
    """What the program calls an operation; an operator and what no call is known of have torch's own name."""
    if step.called and not step.called.startswith("__"):
        return step.called
    return str(step.func.__name__).partition(".")[0]


def lines_of(place: Place | None, lines: ShownLines) -> tuple[Source | None, Source | None]:
    """The line of the user's program, and the one of the library that it called, if it is another."""
    if place is None:
        return None, None
    inner = lines(place.code, place.instruction)
    if place.caller is None:
        return inner, None
    return lines(place.caller.code, place.caller.instruction), inner


def line_in_words(place: Place | None, lines: ShownLines) -> str:
    """Where in the user's program a place is, such as ``at train.py:3``; nothing where that is not known."""
    source = lines_of(place, lines)[0]
    return "" if source is None else f"at {source.file}:{source.line}"


def few(texts: Iterable[str]) -> str:
    """Texts as a list, the first few of many.

    >>> few(["exp at a.py:1", "mul at a.py:2"]), few("abcde")
    ('exp at a.py:1, mul at a.py:2', 'a, b, c and 2 more')
    """
    listed = [*dict.fromkeys(texts)]
    others = [f"{len(listed) - _MOST_LISTED} more"] if len(listed) > _MOST_LISTED else []
    return " and ".join([", ".join(listed[:_MOST_LISTED]), *others])
