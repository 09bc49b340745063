"""What follows from freezing parameters, so that the line which says that they are frozen says it too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gradir.ir.edges import edges_into

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from gradir.diffs.model import Change
    from gradir.ir import Graph, Node
    from gradir.review.comparison import Comparison

__all__ = ["consequences"]

_ORDER: Final = frozenset({"order", "indices"})
_OF_BACKWARD: Final = ("saved", "attrs")
"""What an operation keeps for a backward to more or fewer of its inputs."""


def consequences(comparison: Comparison) -> frozenset[int]:
    """The places among the changes of what is no more than a consequence of parameters that were frozen or unfrozen.

    That is: the parameter leaves the graph, or is in it as what an operation saved; what accumulated its gradient goes;
    an operation goes whose every input has gone so; and one that had such an input has none there any more, with what
    it keeps for that. Only where the tables of modules prove that all these parameters are frozen.

    >>> from gradir.ir import Graph, Node, Scope, TensorMeta
    >>> from gradir.review.comparison import Comparison
    >>> def layer(role, trainable):
    ...     weight = Node("fc.w", role=role, scope="fc", outputs=(TensorMeta("float32", (6,)),))
    ...     return Graph.of([weight], [Scope("fc", own=6, total=6, trainable=trainable)])
    >>> found = Comparison(layer("parameter", 6), layer("buffer", 0))
    >>> [found.diff.changes[at].id for at in sorted(consequences(found))]
    ['fc', 'fc.w']
    """
    found: set[int] = set()
    for word, modules in comparison.frozen.items():
        owners = {module.trained for module in modules if module.proven}
        if owners:
            found.update(_Explained(comparison, owners, is_frozen=word == "frozen").places())
    left = [change for at, change in enumerate(comparison.diff.changes) if at not in found]
    if found and all(change.subject == "graph" and change.id in _ORDER for change in left):
        return frozenset(range(len(comparison.diff.changes)))
    return frozenset(found)


class _Explained:
    """The changes on the side of the graph in which the parameters are trained."""

    def __init__(self, comparison: Comparison, owners: Collection[str], *, is_frozen: bool) -> None:
        self._changes = comparison.diff.changes
        self._trained: Graph = comparison.before if is_frozen else comparison.after
        self._owners = owners
        self._is_frozen = is_frozen

    def places(self) -> Iterator[int]:
        kind = "removed" if self._is_frozen else "added"
        gone = {
            change.id: at for at, change in enumerate(self._changes) if change.subject == "node" and change.kind == kind
        }
        changed = [at for at, change in enumerate(self._changes) if change.kind not in {"added", "removed"}]
        roles = {self._name(self._changes[at]): at for at in changed if self._is_role(self._changes[at])}
        dead = set(roles)
        yield from roles.values()
        for node in self._trained.nodes.values():
            if node.id in gone and self._goes(node, dead):
                dead.add(node.id)
                yield gone[node.id]
        for at in changed:
            if self._is_count(self._changes[at]) or self._is_reader(self._changes[at], dead):
                yield at

    def _name(self, change: Change) -> str:
        return change.was or change.id if self._is_frozen else change.id

    def _goes(self, node: Node, dead: Collection[str]) -> bool:
        """Whether a node is there for the gradients of these parameters alone."""
        if node.role == "parameter":
            return node.scope in self._owners
        sources = [edge.src for edge in edges_into(node)]
        return node.role == "function" and bool(sources) and all(source in dead for source in sources)

    def _is_role(self, change: Change) -> bool:
        """Whether a parameter is now in the graph because an operation saved it, and for nothing else."""
        if change.subject != "node" or [field.path for field in change.fields] != [("role",)]:
            return False
        node = self._trained.nodes.get(self._name(change))
        other = change.fields[0].after if self._is_frozen else change.fields[0].before
        return node is not None and node.role == "parameter" and other == "buffer" and node.scope in self._owners

    def _is_count(self, change: Change) -> bool:
        return change.subject == "scope" and [field.path for field in change.fields] == [("trainable",)]

    def _is_reader(self, change: Change, dead: Collection[str]) -> bool:
        """Whether a node changed only in that it has no input where one of the gone nodes was."""
        node = self._trained.nodes.get(self._name(change)) if change.subject == "node" else None
        if node is None or change.kind != "changed":
            return False
        slots = [field for field in change.fields if field.path[0] == "in"]
        if not slots or not all(
            (field.after if self._is_frozen else field.before) is None
            if field.path[0] == "in"
            else field.path[0] in _OF_BACKWARD and len(field.path) > 1
            for field in change.fields
        ):
            return False
        return all(_source(node, field.path[-1]) in dead for field in slots)


def _source(node: Node, slot: object) -> str:
    ref = node.inputs[slot] if isinstance(slot, int) and slot < len(node.inputs) else None
    return "" if ref is None else ref.id
