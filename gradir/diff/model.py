"""A diff is data: what was added, removed and changed, independent of how it is shown."""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

from gradir.ir.totals import Totals

__all__ = ["Change", "Diff", "FieldChange", "Totals", "name_text", "quoted"]

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/%~+*@-]*")
_SHORT_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of the diff's records."""


class FieldChange(Record, frozen=True, gc=False):
    """One field that differs: its path (``out[0].shape``, ``attrs.dim``) and both values as text.

    A value is ``None`` where the field is absent, and otherwise one printable line: names as they are or, when they
    are no plain word, as JSON strings; attribute values as JSON; ``-`` for an input slot without a gradient.
    """

    path: str
    before: str | None
    after: str | None


class Change(Record, frozen=True, gc=False):
    """One node, scope or cut that was added, removed or changed.

    ``id`` is a node's id, a scope's path, or the first name of a cut's parameter, and ``summary`` says in a few words
    what it is (``addmm float32[8, 3]``). ``id`` and ``scope`` are the graph's own text, to be escaped where it is
    shown; ``summary`` is one printable line.

    The subject ``graph`` is what belongs to no single record: a change ``order`` of it says that what both graphs
    hold stands in another order. Its fields are ``nodes``, ``scopes`` or ``cuts``, the values the first that differ.
    """

    kind: Literal["added", "removed", "changed"]
    subject: Literal["node", "scope", "cut", "graph"]
    id: str
    scope: str = ""
    summary: str = ""
    fields: tuple[FieldChange, ...] = ()


class Diff(Record, frozen=True):
    """What changed from one graph to another; false when they are equal, whatever made them.

    ``changes`` holds the scopes, then the cuts, then the nodes, each in the order of the second graph, what was removed
    standing where it stood in the first.
    """

    before: Totals
    after: Totals
    changes: tuple[Change, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes)


def name_text(text: str) -> str:
    """A name as a diff writes it: as it is, or as a JSON string when it is no plain word.

    >>> name_text("fc/addmm:1"), name_text("a b")
    ('fc/addmm:1', '"a b"')
    """
    return text if _NAME.fullmatch(text) else quoted(text)


def quoted(text: str) -> str:
    """The text as a JSON string of printable characters only: the one place where a diff's text is escaped."""
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(char: str) -> str:
    if char in _SHORT_ESCAPES:
        return _SHORT_ESCAPES[char]
    if char.isprintable():
        return char
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[start : start + 4]}" for start in range(0, len(units), 4))
