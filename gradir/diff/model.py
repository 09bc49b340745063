"""A diff is data: what was added, removed and changed, independent of how it is shown."""

from __future__ import annotations

from typing import Literal

import msgspec

from gradir.ir.totals import Totals

__all__ = ["Change", "Diff", "FieldChange", "Totals"]


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
