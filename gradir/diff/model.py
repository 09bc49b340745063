"""A diff is data: what was added, removed and changed, independent of how it is shown."""

from __future__ import annotations

import sys
from typing import Literal

import msgspec

from gradir.diff.script import Script
from gradir.ir.totals import Totals

__all__ = ["Change", "Diff", "FieldChange", "Growth", "Kind", "Size", "Subject", "Totals"]

Kind = Literal["added", "removed", "changed", "renamed", "moved"]
Subject = Literal["node", "scope", "cut", "module", "graph"]


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
    """One node, scope or cut that was added, removed, changed, renamed or moved to another module.

    ``id`` is a node's id, a scope's path, or the first name of a cut's parameter, and ``summary`` says in a few words
    what it is (``addmm float32[8, 3]``). ``was`` is what the first graph calls it, where that is something else.
    ``id``, ``scope`` and ``was`` are the graph's own text, to be escaped where they are shown; ``summary`` is one
    printable line. The fields before name nodes as the first graph does, those after as the second.

    The subject ``module`` is a prefix of names that became another for every node below it, from ``was`` to ``id``;
    ``*`` stands for any index. Nothing else is said of a node that only follows it.

    The subject ``graph`` is what belongs to no single record. Its fields are ``nodes``, ``scopes`` or ``cuts``, the
    values the first that differ. A change ``order`` says that what both graphs hold stands in another order, a change
    ``indices`` that the indices and ordinals in names shifted, as they do after what was added or removed, and a change
    ``sequence``, with the field ``modules``, that entries of a list changed places.
    """

    kind: Kind
    subject: Subject
    id: str
    scope: str = ""
    summary: str = ""
    fields: tuple[FieldChange, ...] = ()
    was: str = ""


class Size(Record, frozen=True, gc=False):
    """How large a module is by itself: its functions, the elements of its parameters, the bytes it saves."""

    nodes: int = 0
    parameters: int = 0
    saved_bytes: int = 0


class Growth(Record, frozen=True, gc=False):
    """A module whose size changed; ``was`` is its path in the first graph, where that is another.

    ``gone`` says that only the first graph has it; another of its path may be in the second.
    """

    path: str
    before: Size = Size()
    after: Size = Size()
    was: str = ""
    gone: bool = False


class Diff(Record, frozen=True, dict=True):
    """What changed from one graph to another; false when nothing did that was asked for, whatever made the graphs.

    ``changes`` is for reading. It holds the renamed modules, then the scopes, the cuts and the nodes, each in the order
    of the second graph, what was removed standing where it stood in the first. Totals of a module that only add up what
    changed below it are left out, and so are attributes and saved slots of a node that became another operation.
    ``modules`` are those whose own size changed. ``script`` is exact, and what `gradir.patch` applies: it also has what
    was left out or ignored on request.
    """

    before: Totals
    after: Totals
    changes: tuple[Change, ...] = ()
    modules: tuple[Growth, ...] = ()
    script: Script = Script()

    def __bool__(self) -> bool:
        return bool(self.changes)

    def to(self, renderer: str, **options: object) -> str:
        """What ``gradir diff --format RENDERER`` prints: ``diff.to("markdown")``.

        What `gradir.diff` returned knows both graphs. Of a diff that was read from a file, or that was changed since,
        the text tells every change by itself, and nothing can be drawn.

        Raises:
            ExportError: there is no such renderer or option, or it cannot tell this diff.
        """
        # As `gradir.Graph.to`: the package loads the public functions before any module of its own.
        text: str = sys.modules["gradir.api"].diff_text(self, renderer, **options)
        return text

    def __str__(self) -> str:
        """What ``gradir diff`` prints, without the last line end."""
        return self.to("text").removesuffix("\n")

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:  # noqa: ARG002
        """What a notebook shows: the report for a pull request."""
        return {"text/plain": str(self), "text/markdown": self.to("markdown")}
