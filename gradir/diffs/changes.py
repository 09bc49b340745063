"""The records of a diff: the changes between two graphs, independent of their display."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import UNSET

from gradir.diffs.hunks import Script
from gradir.ir import Cut, TensorMeta
from gradir.ir.graph import expect_graphs
from gradir.ir.text import quote
from gradir.ir.totals import Size, Totals

if TYPE_CHECKING:
    from gradir.diffs.correspondence import Correspondence
    from gradir.ir import Graph

Kind = Literal["added", "removed", "changed", "renamed", "moved"]
Subject = Literal["node", "scope", "cut", "module", "graph"]
Level = Literal["error", "change", "note"]

# The kinds of changes of records that only one graph has.
ADDED_OR_REMOVED: Final = frozenset({"added", "removed"})
_SIDES: Final = "sides"
_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


class Record(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base of the diff's records."""


class FieldChange(Record, frozen=True, gc=False):
    """A field that differs: its path and both values.

    The path begins with the key of the field, followed by places in lists and keys: ``["out", 0, "shape"]``. A
    missing value means that the field is absent.
    """

    path: Annotated[tuple[str | int, ...], msgspec.Meta(min_length=1)]
    before: Any = UNSET
    after: Any = UNSET

    @property
    def name(self) -> str:
        """The path as text, which patterns of ``--ignore`` match.

        >>> FieldChange(("out", 0, "shape")).name, FieldChange(("saved", "a b", 2)).name
        ('out[0].shape', 'saved."a b"#2')
        """
        first, *rest = self.path
        text = str(first)
        for place, key in enumerate(rest):
            if isinstance(key, str):
                text += f".{key if _KEY.fullmatch(key) else quote(key)}"
            else:
                text += f"#{key}" if place else f"[{key}]"
        return text


class Change(Record, frozen=True, gc=False):
    """A node, scope or cut that was added, removed, changed, renamed or moved to another module.

    ``id`` is a node's id, a scope's path, or the first name or the kind of a cut. ``label`` is the operation or role,
    the class or the kind, and ``tensor`` the first output or the parameter. ``old_id`` is the name in the first
    graph, if different. Escape all texts where you show them.

    The subject ``module`` is a prefix of names that changed from ``old_id`` to ``id`` for all ``nodes`` below it. The
    subject ``graph`` belongs to no record: its ids are ``order``, ``indices``, ``sequence``, ``flow`` or a key of the
    head.
    """

    kind: Kind
    subject: Subject
    id: str
    scope: str = ""
    label: str = ""
    fields: tuple[FieldChange, ...] = ()
    old_id: str = ""
    tensor: TensorMeta | None = None
    nodes: int = 0
    cut: Cut | None = None


class Growth(Record, frozen=True, gc=False):
    """A module whose size changed; ``old_path`` is its path in the first graph, if different.

    ``gone`` means that only the first graph has it.
    """

    path: str
    before: Size = Size()
    after: Size = Size()
    old_path: str = ""
    gone: bool = False


class Finding(Record, frozen=True):
    """A summary of some changes, found by a rule in `gradir.review.rules`.

    ``level`` is ``error`` if something lost its gradient or would not be trained, and ``note`` if the computation is
    the same. ``subjects`` are module paths, node ids or parameter names. ``changes`` are the indices of the
    `Diff.changes` that it explains. ``text`` says all of it.
    """

    kind: str
    level: Level = "change"
    subjects: tuple[str, ...] = ()
    changes: tuple[tuple[int, ...], ...] = ()
    before: Any = UNSET
    after: Any = UNSET
    count: int = 0
    details: dict[str, Any] = {}
    text: str = ""


class Sides(NamedTuple):
    """The two graphs of a diff, and the names in the second graph for records of the first."""

    before: Graph
    after: Graph
    names: Callable[[], Correspondence]
    """A function, since a diff of equal graphs does not need the names."""

    in_shared_words: bool = False
    """Whether both graphs use the terms that all frameworks share."""


class Diff(Record, frozen=True, dict=True):
    """The changes from one graph to another, which are false if there are none.

    ``changes`` are for reading, in the order of the second graph, and ``findings`` summarize them. ``modules`` are
    those whose own size changed. ``script`` is exact, and `gradir.patch` applies it.
    """

    before: Totals
    after: Totals
    changes: tuple[Change, ...] = ()
    modules: tuple[Growth, ...] = ()
    script: Script = Script()
    findings: tuple[Finding, ...] = ()

    @property
    def sides(self) -> Sides | None:
        """Both graphs, or ``None`` if the diff was read from a file or edited."""
        return self.__dict__.get(_SIDES)

    def with_sides(self, sides: Sides) -> Diff:
        """Return a copy of the diff with its graphs."""
        diff = msgspec.structs.replace(self)
        diff.__dict__[_SIDES] = sides
        return diff

    def __bool__(self) -> bool:
        return bool(self.changes)

    def to(self, renderer: str, **options: object) -> str:
        """Return the text of ``gradir diff --format RENDERER``: ``diff.to("markdown")``.

        A diff that was read from a file lists every change by itself, and cannot be drawn.

        Raises:
            ExportError: the renderer or option is unknown, or it cannot represent this diff.
        """
        text: str = import_module("gradir.registry").render(renderer, self, options)
        return text

    def __str__(self) -> str:
        """Return the output of ``gradir diff``, without the last line end."""
        return self.to("text").removesuffix("\n")

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:  # noqa: ARG002
        """Return the review page for a notebook, or the report for a pull request."""
        bundle: dict[str, str] = import_module("gradir.display").diff_mimebundle(self)
        return bundle


def script_for(graph: object, diff: object) -> Script:
    """Return the exact difference that a diff applies to a graph.

    Raises:
        TypeError: the first argument is no graph, or the second no diff.
    """
    expect_graphs(graph)
    if not isinstance(diff, Diff):
        raise TypeError(f"expected a gradir.Diff, got {type(diff).__name__}")
    return diff.script
