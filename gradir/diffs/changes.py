"""A diff is data: what was added, removed and changed, independent of how it is shown."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import UNSET

from gradir.diffs.hunks import Script
from gradir.ir import Cut, TensorMeta
from gradir.ir.graph import expect_graphs
from gradir.ir.text import quoted
from gradir.ir.totals import Totals

if TYPE_CHECKING:
    from gradir.diffs.correspondence import Correspondence
    from gradir.ir import Graph

__all__ = [
    "UNSET",
    "Change",
    "Diff",
    "FieldChange",
    "Finding",
    "Growth",
    "Kind",
    "Level",
    "Sides",
    "Size",
    "Subject",
    "Totals",
    "script_for",
]

Kind = Literal["added", "removed", "changed", "renamed", "moved"]
Subject = Literal["node", "scope", "cut", "module", "graph"]
Level = Literal["error", "change", "note"]

_SIDES: Final = "sides"
_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


class Record(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base of the diff's records."""


class FieldChange(Record, frozen=True, gc=False):
    """One field that differs: its path and both values, as the records of the graph have them.

    The path starts with the key of the field; a number is the place in a list, and what follows are keys in what the
    field holds: ``["out", 0, "shape"]``, ``["attrs", "dim"]``, ``["saved", "mat1", "bytes"]``. Of saved slots of one
    name, a number behind the name says which, from the second on. A value is left out where the field is absent, and
    null is what the graph holds: an input slot without a gradient, or an attribute that is null. Of a whole saved slot
    the value has its type and size, not the names of other nodes.
    """

    path: Annotated[tuple[str | int, ...], msgspec.Meta(min_length=1)]
    before: Any = UNSET
    after: Any = UNSET

    @property
    def name(self) -> str:
        """The path as text, which a pattern of ``--ignore`` is compared with.

        >>> FieldChange(("out", 0, "shape")).name, FieldChange(("saved", "a b", 2)).name
        ('out[0].shape', 'saved."a b"#2')
        """
        first, *rest = self.path
        texts = [str(first)]
        for at, key in enumerate(rest):
            if isinstance(key, str):
                texts.append(f".{key if _KEY.fullmatch(key) else quoted(key)}")
            else:
                texts.append(f"#{key}" if at else f"[{key}]")
        return "".join(texts)


class Change(Record, frozen=True, gc=False):
    """One node, scope or cut that was added, removed, changed, renamed or moved to another module.

    ``id`` is a node's id, a scope's path, or the first name of a cut's parameter; of a cut that is a place in a program
    it is the kind, and ``cut`` is all of it. ``what`` is a node's operation or role, a scope's class or a cut's kind,
    and ``tensor`` the first output of a node, or the parameter of a cut. ``was`` is what the first graph calls it,
    where that is something else. All texts are the graph's own, to be escaped where they are shown. The fields before
    name nodes as the first graph does, those after as the second.

    The subject ``module`` is a prefix of names that became another for every node below it, from ``was`` to ``id``;
    ``*`` stands for any index, and ``nodes`` counts them. Nothing else is said of a node that only follows it. Where
    the prefix is the whole name of a tensor, ``what`` is the tensor's role.

    The subject ``graph`` is what belongs to no single record. Its fields are ``nodes``, ``scopes`` or ``cuts``, the
    values the first that differ. A change ``order`` says that what both graphs hold stands in another order, a change
    ``indices`` that the indices and ordinals in names shifted, as they do after what was added or removed, a change
    ``sequence``, with the field ``modules``, that entries of a list changed places, and a change ``flow`` that the
    places where gradient ends were noted of one graph alone. Another id is the key of a field of the head, with which
    the paths of the fields start.
    """

    kind: Kind
    subject: Subject
    id: str
    scope: str = ""
    what: str = ""
    fields: tuple[FieldChange, ...] = ()
    was: str = ""
    tensor: TensorMeta | None = None
    nodes: int = 0
    cut: Cut | None = None


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


class Finding(Record, frozen=True):
    """What some changes come to, found by a rule in `gradir.review.rules`.

    ``kind`` names it, ``level`` says how grave it is: ``error`` where something gets no gradient any more or would not
    be trained, ``note`` where it is no change of the computation by itself. ``subjects`` are paths of modules, ids of
    nodes or names of parameters, and ``changes`` has for each of them, or for all of them together, the indices of
    those `Diff.changes` that it explains: no other finding explains them, and what no finding explains does not exist.
    ``before``, ``after`` and ``count`` are there where the kind has them, ``details`` has what else it tells, and
    ``text`` says all of it in words.
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
    """The two graphs of a diff, and what the second calls the records of the first."""

    before: Graph
    after: Graph
    names: Callable[[], Correspondence]
    """Called when it is needed: of equal graphs nobody has to know it."""

    in_shared_words: bool = False
    """Whether both graphs are told in the words that all frameworks share."""


class Diff(Record, frozen=True, dict=True):
    """What changed from one graph to another; false when nothing did that was asked for, whatever made the graphs.

    ``changes`` is for reading. It holds the renamed modules, then the scopes, the cuts and the nodes, each in the order
    of the second graph, what was removed standing where it stood in the first. Totals of a module that only add up what
    changed below it are left out, and so are saved slots of a node that became another operation. Attributes of such a
    node, and the fields of a node or scope that was added or removed, are settings: no sizes, and no defaults.
    ``findings`` say what they come to, and explain each of them exactly once. ``modules`` are those whose own size
    changed. ``script`` is exact, and what `gradir.patch` applies: it also has what was left out or ignored on request.
    """

    before: Totals
    after: Totals
    changes: tuple[Change, ...] = ()
    modules: tuple[Growth, ...] = ()
    script: Script = Script()
    findings: tuple[Finding, ...] = ()

    @property
    def sides(self) -> Sides | None:
        """Both graphs, which are no part of the value: nothing of a diff that was read from a file or edited since."""
        return self.__dict__.get(_SIDES)

    def between(self, sides: Sides) -> Diff:
        """Return the same diff that knows its graphs."""
        diff = msgspec.structs.replace(self)
        diff.__dict__[_SIDES] = sides
        return diff

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
        """What a notebook shows: a page to review it, or the report for a pull request."""
        shown: dict[str, str] = sys.modules["gradir.api"].diff_mimebundle(self)
        return shown


def script_for(graph: object, diff: object) -> Script:
    """Return the exact difference that a diff applies to a graph.

    Raises:
        TypeError: the first argument is no graph, or the second no diff.
    """
    expect_graphs(graph)
    if not isinstance(diff, Diff):
        raise TypeError(f"expected a gradir.Diff, got {type(diff).__name__}")
    return diff.script
