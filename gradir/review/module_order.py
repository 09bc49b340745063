"""Where in the model a change stands, and the order in which modules are told."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gradir.diffs.order import matched
from gradir.ir import Scope
from gradir.ir.module_tree import ModuleTree

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gradir.diffs.model import Change
    from gradir.ir import Graph
    from gradir.review.comparison import Comparison

__all__ = ["Place", "Places", "module_tree"]


class Place(NamedTuple):
    """A module: its path in the second graph, or in the first where only that has it."""

    path: str
    gone: bool = False


class Places:
    """The module that each change belongs to, in the order of the model.

    That is the order of the module table of the second graph, a module before those in it; what is gone stands where
    it stood. Modules that no graph knows come last, in the order in which they are asked for.
    """

    def __init__(self, comparison: Comparison) -> None:
        diff = comparison.diff
        self._gone = {change.id for change in diff.changes if (change.subject, change.kind) == ("scope", "removed")}
        self._gone.update(growth.path for growth in diff.modules if growth.gone)
        self._now = {growth.was: growth.path for growth in diff.modules if growth.was}
        before, after = (tree.scopes for tree in comparison.trees)
        # Twice may be said to be at one path where the diff is none of these graphs.
        there = {self._before(scope.path): scope for scope in before}, {Place(scope.path): scope for scope in after}
        self._order = {place: at for at, (place, _, _) in enumerate(matched(*there))}

    def of(self, change: Change) -> Place:
        """The module that a change belongs to; what was removed names its own as the first graph does."""
        return self.of_path(change.scope, added=change.kind != "removed")

    def of_path(self, path: str, *, added: bool) -> Place:
        """The module at a path of the second graph, or of the first."""
        return Place(path) if added else self._before(path)

    def position(self, place: Place) -> int:
        """A number that grows in the order of the model."""
        return self._order.setdefault(place, len(self._order))

    def sections(self, changes: Iterable[Change]) -> list[tuple[Place, list[Change]]]:
        """The changes by module, in the order of the model."""
        found: dict[Place, list[Change]] = {}
        for change in changes:
            found.setdefault(self.of(change), []).append(change)
        return sorted(found.items(), key=lambda section: self.position(section[0]))

    def _before(self, path: str) -> Place:
        return Place(path, gone=True) if path in self._gone else Place(self._now.get(path, path))


def module_tree(graph: Graph) -> ModuleTree:
    """The modules of a graph, with those that only its nodes name.

    >>> from gradir.ir import Graph, Node
    >>> module_tree(Graph.of([Node("f:1", scope="fc")], [Scope("")])).names
    ['', 'fc']
    """
    unlisted = dict.fromkeys(node.scope for node in graph.nodes.values() if node.scope not in graph.scopes)
    return ModuleTree([*graph.scopes.values(), *map(Scope, unlisted)])
