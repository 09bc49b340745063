"""Modules that came or went with all that is in them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from gradir.diffs.model import Size
from gradir.ir.module_tree import OUTSIDE
from gradir.ir.saved import unknown_slots
from gradir.ir.totals import elements

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gradir.diffs.model import Change, Diff
    from gradir.ir import Graph
    from gradir.ir.module_tree import ModuleTree
    from gradir.review.comparison import Comparison

__all__ = ["Contents", "WholeModule", "WholeModules"]

_FEWEST_NODES: Final = 2
"""Of a module that is still there, one node that came or went is told as the node it is."""


class WholeModule(NamedTuple):
    """A module of one side, of which all changes are of one kind.

    ``itself`` says that the module came or went too; else it is there on both sides, and without a node on the other.
    """

    added: bool
    path: str
    itself: bool


class Contents(NamedTuple):
    """How much is in a module that came or went; ``modules`` are those in it, ``unknown`` slots of unknown size."""

    nodes: int
    modules: int
    parameters: int
    elements: int
    saved_bytes: int
    unknown: int


class WholeModules:
    """Finds the topmost modules that came or went as a whole, and what belongs to them.

    >>> from gradir.ir import Graph, Node, Scope
    >>> from gradir.review.comparison import Comparison
    >>> a, b = Graph.of([]), Graph.of([Node("m.n/exp:1", scope="m.n")], [Scope("m"), Scope("m.n")])
    >>> found = Comparison(a, b)
    >>> {WholeModules(found).of(change) for change in found.diff.changes}
    {WholeModule(added=True, path='m', itself=True)}
    """

    def __init__(self, comparison: Comparison) -> None:
        self._before, self._after = (
            _Side(comparison.diff, graph, tree, added=added)
            for graph, tree, added in zip(comparison.graphs, comparison.trees, (False, True), strict=True)
        )

    def of(self, change: Change) -> WholeModule | None:
        """The module whose coming or going tells a change of a node or a module."""
        if change.subject in {"node", "scope"}:
            if change.kind == "added":
                return self._after.whole(change.scope)
            if change.kind == "removed":
                return self._before.whole(change.scope)
        return None

    def at(self, path: str, *, added: bool) -> WholeModule | None:
        """The module that a path of the second graph, or of the first, lies in, where that came or went."""
        return (self._after if added else self._before).whole(path)

    def contents(self, whole: WholeModule, changes: Iterable[Change]) -> Contents:
        """How much is in a module, given its changes."""
        return (self._after if whole.added else self._before).contents(whole, changes)

    def class_name(self, whole: WholeModule) -> str:
        """The class of a module, where it is known."""
        scope = (self._after if whole.added else self._before).graph.scopes.get(whole.path)
        return "" if scope is None else scope.class_name


class _Side:
    """One graph, and for each module of it the topmost whole one that it lies in."""

    def __init__(self, diff: Diff, graph: Graph, tree: ModuleTree, *, added: bool) -> None:
        self.graph = graph
        self._tree = tree
        kind = "added" if added else "removed"
        mine = [change for change in diff.changes if change.kind == kind]
        own = {change.id for change in mine if change.subject == "scope"}
        changed = Counter(change.scope for change in mine if change.subject == "node")
        nodes = Counter(node.scope for node in graph.nodes.values())
        sizes = dict(_sizes(diff, added=added))
        scopes = self._tree.scopes
        counts = [
            _Count(
                nodes[scope.path],
                changed[scope.path],
                nodes[scope.path] if scope.path in own else 0,
                old=scope.path in graph.scopes and scope.path not in own,
                nothing_else=not nodes[scope.path] or sizes.get(scope.path, (1, 0)) == (0, 0),
            )
            for scope in scopes
        ]
        # A module stands behind the one that it lies in.
        for row in range(len(scopes) - 1, -1, -1):
            above = self._tree.parents[row]
            if above != OUTSIDE:
                counts[above] = counts[above].with_below(counts[row])
        self._tops: list[WholeModule | None] = []
        for row, scope in enumerate(scopes):
            above = self._tree.parents[row]
            found = self._tops[above] if above != OUTSIDE else None
            if found is None and scope.path:
                itself = scope.path in own and not counts[row].old
                if counts[row].is_whole(itself=itself):
                    found = WholeModule(added, scope.path, itself)
            self._tops.append(found)
        self._saved: Counter[WholeModule] = Counter()
        for path, size in _saved(diff, added=added):
            top = self.whole(path)
            if top is not None:
                self._saved[top] += size

    def whole(self, path: str) -> WholeModule | None:
        """The topmost whole module at or above a path."""
        row = self._tree.place(path)
        return None if row == OUTSIDE else self._tops[row]

    def contents(self, whole: WholeModule, changes: Iterable[Change]) -> Contents:
        """How much is in a whole module."""
        nodes = modules = parameters = size = unknown = 0
        for change in changes:
            if change.subject == "scope":
                modules += change.id != whole.path
                continue
            nodes += 1
            node = self.graph.nodes[change.id]
            unknown += unknown_slots([node])
            if node.role == "parameter":
                parameters += 1
                size += elements(node)
        return Contents(nodes, modules, parameters, size, self._saved[whole], unknown)


class _Count(NamedTuple):
    """Nodes at and below a module: all, those that are changes, those in modules that are changes themselves.

    ``old`` says that a listed module is no change, ``nothing_else`` that none has operations or parameters on the other
    side.
    """

    nodes: int
    changed: int
    in_new: int
    old: bool
    nothing_else: bool

    def with_below(self, below: _Count) -> _Count:
        return _Count(
            self.nodes + below.nodes,
            self.changed + below.changed,
            self.in_new + below.in_new,
            self.old or below.old,
            self.nothing_else and below.nothing_else,
        )

    def is_whole(self, *, itself: bool) -> bool:
        if self.nodes != self.changed:
            return False
        return itself or (self.nothing_else and self.nodes >= _FEWEST_NODES and self.in_new < self.nodes)


def _sizes(diff: Diff, *, added: bool) -> Iterator[tuple[str, tuple[int, int]]]:
    """By path on one side, the functions and parameters that the module has on the other."""
    for growth in diff.modules:
        if not growth.gone:
            other = growth.before if added else growth.after
            yield growth.path if added else growth.was or growth.path, (other.nodes, other.parameters)
        elif not added:
            yield growth.path, (Size().nodes, Size().parameters)


def _saved(diff: Diff, *, added: bool) -> Iterator[tuple[str, int]]:
    """By path on one side, the bytes that a module saves there beyond those on the other."""
    for growth in diff.modules:
        more = growth.after.saved_bytes - growth.before.saved_bytes
        if added and not growth.gone:
            yield growth.path, more
        elif not added:
            yield growth.was or growth.path, -more
