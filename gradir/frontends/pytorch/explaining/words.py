"""What values, steps and places are called by the program that has them, and causes told in these words."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from msgspec.structs import replace

from gradir.explanations.model import Cause, Excerpt, Level
from gradir.frontends.paths import cell_of
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.places import Place
from gradir.frontends.pytorch.recording.sources import ShownLines
from gradir.frontends.pytorch.recording.steps import Step, Value
from gradir.frontends.texts import plain_text
from gradir.ir import Source
from gradir.vocabulary.operations import OWN_NAMES

__all__ = ["Words", "called", "few", "lines_of", "located", "plainly"]

_UNTOLD: Final = frozenset({"", "backward", "grad", "multi_head_attention_forward"})
"""What a program calls that runs many operations, so that its name tells none of them."""

_MOST_LISTED: Final = 3
"""How many operations or tensors the detail of a cause names."""


def called(step: Step) -> str:
    """What the program calls an operation; an operator and what no call is known of have torch's own name."""
    if step.called and not step.called.startswith("__"):
        return step.called
    return str(step.func.__name__).partition(".")[0]


def plainly(op: str, step: Step | None) -> str:
    """What the program calls an operation that has a name of torch's own; another one as it is called."""
    if op not in OWN_NAMES:
        return op
    if step is None or step.called in _UNTOLD or step.called.startswith("__"):
        return OWN_NAMES[op]
    return step.called


def lines_of(place: Place | None, lines: ShownLines) -> tuple[Source | None, Source | None]:
    """The line of the user's program, and the one of the library that it called, if it is another."""
    if place is None:
        return None, None
    inner = _line(place, lines)
    return (inner, None) if place.caller is None else (_line(place.caller, lines), inner)


def located(cause: Cause, place: Place | None) -> Cause:
    """A cause that has no line yet, at a place of the program."""
    if cause.source is not None or place is None:
        return cause
    source, via = lines_of(place, ShownLines())
    excerpt = None if source is None else _excerpt(place.caller or place, source.line, "")
    return replace(cause, source=source, via=via, excerpt=excerpt)


def _line(place: Place, lines: ShownLines) -> Source:
    source, cell = lines(place.code, place.instruction), cell_of(place.code.co_filename)
    return replace(source, file=cell) if cell else source


def _excerpt(place: Place, line: int, op: str) -> Excerpt | None:
    """Return a line of the user's program, with the columns of an operation where Python knows them."""
    code = place.code
    text = linecache.getline(code.co_filename, line).rstrip("\r\n")
    if not text.strip():
        return None
    # Python 3.10 knows lines alone.
    positions = code.co_positions() if sys.version_info >= (3, 11) else ()
    first, last, start, end = next(islice(positions, place.instruction // 2, None), (None,) * 4)
    if first != line or last is None or start is None or end is None:
        return Excerpt(plain_text(text))
    begins, ends = (len(text.encode()[:column].decode(errors="replace")) for column in (start, end))
    # Of a chain of calls the columns are those of all up to the operation.
    begins = max(begins, text.rfind(f".{op}(", begins, ends) + 1)
    return Excerpt(plain_text(text), begins, ends if last == first else len(text))


def few(texts: Iterable[str]) -> str:
    """Texts as a list, the first few of many.

    >>> few(["exp at a.py:1", "mul at a.py:2"]), few("abcde")
    ('exp at a.py:1, mul at a.py:2', 'a, b, c and 2 more')
    """
    listed = [*dict.fromkeys(texts)]
    others = [f"{len(listed) - _MOST_LISTED:,} more"] if len(listed) > _MOST_LISTED else []
    return " and ".join([", ".join(listed[:_MOST_LISTED]), *others])


class Words:
    """What a program calls the values of its flow, and causes told with these names and its lines."""

    def __init__(self, flow: Flow, values: Mapping[str, Value]) -> None:
        """``values`` are the parameters and tensors by name."""
        self.lines = ShownLines()
        self.names: dict[Value, list[str]] = {}
        self.flow = flow
        for name, value in values.items():
            self.names.setdefault(value, []).append(name)

    def names_of(self, leaves: Iterable[Value]) -> Iterator[str]:
        """The names of values, as far as they have one."""
        for leaf in leaves:
            yield from self.names.get(leaf, ())

    def called(self, values: Iterable[Value]) -> list[str]:
        """The names of values, or the variables that they were in."""
        found = (self.names.get(value) or [self.flow.variables.get(value, "")] for value in values)
        return [name for names in found for name in names if name]

    def line(self, place: Place | None) -> str:
        """Where in the user's program a place is, such as ``at train.py:3``; nothing where that is not known."""
        source = lines_of(place, self.lines)[0]
        return "" if source is None else f"at {source.file}:{source.line}"

    def called_at(self, step: Step) -> str:
        """An operation and its line."""
        return f"{called(step)} {self.line(step.place)}".rstrip()

    def made_as(self, value: Value) -> str:
        """What a value is called, or what it is, and the line that made it."""
        step = self.flow.step_of(value)
        name = ", ".join(self.called([value]))
        if step is None:
            return name or "a tensor from before the recording"
        return f"{name or f'the result of {called(step)}'} {self.line(step.place)}".rstrip()

    def cause(
        self,
        kind: str,
        level: Level,
        op: str,
        names: Iterable[str],
        place: Place | None,
        *,
        detail: str = "",
        pattern: str = "",
    ) -> Cause:
        """A cause at a place of the program."""
        source, via = lines_of(place, self.lines)
        shown = None if place is None or source is None else _excerpt(place.caller or place, source.line, op)
        return Cause(kind, level, op, tuple(names), source, via, detail, shown, pattern)
