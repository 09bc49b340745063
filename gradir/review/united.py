"""Both graphs of a diff in one, for pictures and pages, and where each change stands in it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from gradir.diffs.sequences import matched
from gradir.errors import ExportError
from gradir.ir import Graph, Node, Ref
from gradir.ir.edges import DATA, edges_into, rewired
from gradir.ir.marks import LOST, STATUS, WAS, status
from gradir.passes import around
from gradir.passes.wiring import has_one_input, without
from gradir.vocabulary import vocabulary_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gradir.diffs.changes import Change, Diff
    from gradir.diffs.correspondence import Correspondence
    from gradir.ir import Cut, Scope

__all__ = ["DrawnUnion", "United"]

_CHANGED: Final = "changed"
_HOPS: Final = 1


class United:
    """Both graphs of a diff as one; ``graph`` has every node marked with what became of it, see `gradir.ir.marks`.

    Raises:
        ExportError: the diff was read from a file or edited since, so its graphs are not known.

    >>> from gradir.ir import Graph, Node
    >>> from gradir.review.reviewing import reviewed
    >>> united = United(reviewed(Graph.of([Node("x")]), Graph.of([Node("y", op="exp")])))
    >>> [(node.id, dict(node.ext)) for node in united.graph.nodes.values()]
    [('x', {'diff': 'removed'}), ('y', {'diff': 'added'})]
    """

    def __init__(self, diff: Diff) -> None:
        sides = diff.sides
        if sides is None:
            raise ExportError("a picture needs both graphs, and a diff that was read has none: compare them again")
        self._before, self._after, self._names = sides.before, sides.after, sides.names()
        self.graph: Graph = marked_union(sides.before, sides.after, diff, self._names)

    @cached_property
    def drawn(self) -> DrawnUnion:
        """The same as pictures show it, and what stands for the nodes that are not in it."""
        return drawn_union(self.graph)

    def node(self, change: Change) -> str:
        """Return the node of a change of a node or a cut; nothing if there is none."""
        if change.subject not in {"node", "cut"}:
            return ""
        # A cut that came is a node that went.
        is_gone = (change.kind == "removed") == (change.subject == "node")
        found = self._names.union_ids.get(change.id, change.id) if is_gone else change.id
        return found if found in self.graph.nodes else ""

    def drawn_node(self, change: Change) -> str:
        """Return the same in `drawn`."""
        found = self.node(change)
        return self.drawn.instead.get(found, found)

    def cut(self, change: Change) -> Cut | None:
        """Return the cut that came or went with the ids and paths of the union; nothing for another change."""
        if change.subject != "cut" or change.kind not in {"added", "removed"}:
            return None
        is_gone = change.kind == "removed"
        cut = change.cut or self._cuts[is_gone].get((change.what, change.id))
        if cut is None or not is_gone:
            return cut
        at, into = (self._names.union_ids.get(node, "") for node in (cut.at, cut.into))
        return replace(cut, at=at, into=into, scope=self.path(cut.scope))

    @cached_property
    def _cuts(self) -> tuple[Mapping[tuple[str, str], Cut], ...]:
        """The cuts of parameters of the second graph and of the first, by their kinds and first names."""
        return tuple(
            {(cut.kind, cut.names[0]): cut for cut in graph.cuts if cut.names and not cut.is_place}
            for graph in (self._after, self._before)
        )

    def path(self, path: str) -> str:
        """Return the path in the union of a module of the first graph."""
        return self._names.union_paths.get(path, path)

    def changed_part(self, hops: int = _HOPS) -> Graph:
        """Return the changed nodes with what is at most ``hops`` edges away, without gradient accumulators.

        >>> from gradir.ir import Graph, Node, Ref
        >>> from gradir.review.reviewing import reviewed
        >>> a = Graph.of([Node("a"), Node("b", inputs=(Ref("a", 0),)), Node("c", inputs=(Ref("b", 0),))])
        >>> b = Graph.of([*list(a.nodes.values())[:2], Node("c", op="exp", inputs=(Ref("b", 0),))])
        >>> list(United(reviewed(a, b)).changed_part().nodes)
        ['b', 'c']
        """
        union = self.drawn.graph
        return around(union, [node.id for node in union.nodes.values() if status(node)], hops)


class DrawnUnion(NamedTuple):
    """The graph, and ``instead`` by each node that is not in it the one that stands for it."""

    graph: Graph
    instead: Mapping[str, str]


def drawn_union(union: Graph) -> DrawnUnion:
    """Return a marked union without its gradient accumulators.

    If only the accumulator of a tensor changed, the tensor is marked as changed.
    """
    accumulators = vocabulary_of(union).accumulators
    instead: dict[str, str] = {}
    changed: dict[str, None] = {}
    for node in union.nodes.values():
        if node.op in accumulators and has_one_input(node) and (source := node.inputs[0]) is not None:
            tensor = instead[node.id] = instead.get(source.id, source.id)
            if status(node) and not status(union.nodes[tensor]):
                changed[tensor] = None
    graph = without(union, instead, lambda _: True)
    if not changed:
        return DrawnUnion(graph, instead)
    marked = {key: replace(graph.nodes[key], ext={**graph.nodes[key].ext, STATUS: _CHANGED}) for key in changed}
    return DrawnUnion(replace(graph, nodes={**graph.nodes, **marked}), instead)


def marked_union(a: Graph, b: Graph, diff: Diff, correspondence: Correspondence) -> Graph:
    """Return the nodes of ``b``, and where they stood those that only ``a`` has.

    Each changed node has a mark, see `gradir.ir.marks`; a renamed or moved node counts as changed. An input that only
    the node of ``a`` had is a further slot of it, unless it would lead backwards.
    """
    names, shown = correspondence.union_ids, correspondence.union_paths
    # A removed node may have the name of another that is there.
    kinds = {change.id: change.kind for change in diff.changes if change.subject == "node" and change.kind != "removed"}
    nodes: dict[str, Node] = {}
    for _, old, node in matched(correspondence.nodes(a.nodes), b.nodes):
        if node is None:
            if old is not None:
                removed = _removed(old, names, nodes)
                nodes[removed.id] = replace(removed, scope=shown.get(old.scope, old.scope))
            continue
        lost = list(_lost(old, node, names, nodes)) if old else []
        kind = kinds.get(node.id, "")
        ext = node.ext if not kind else {**node.ext, STATUS: "added" if kind == "added" else "changed"}
        if kind and old is not None and old.op and node.op and old.op != node.op:
            ext = {**ext, WAS: old.op}
        if lost:
            ext = {**ext, LOST: tuple(range(len(node.inputs), len(node.inputs) + len(lost)))}
        nodes[node.id] = replace(node, inputs=(*node.inputs, *lost), ext=ext)
    return replace(b, nodes=nodes, scopes={scope.path: scope for scope in _scopes(a, b, shown)})


def _removed(node: Node, names: Mapping[str, str], nodes: Mapping[str, Node]) -> Node:
    edges = rewired(node, lambda ref, kind: _known(ref, names, nodes) if kind == DATA else None)
    saved = tuple(replace(slot, origin=None, storage="") for slot in node.saved)
    return replace(node, id=names[node.id], saved=saved, ext={**node.ext, STATUS: "removed"}, **edges)


def _lost(old: Node, new: Node, names: Mapping[str, str], nodes: Mapping[str, Node]) -> Iterator[Ref]:
    """Yield the inputs that a node had and has no more."""
    present = {edge.src for edge in edges_into(new) if edge.input_nr >= 0}
    for edge in edges_into(old):
        found = _known(edge.ref, names, nodes) if edge.input_nr >= 0 else None
        if found is not None and found.id not in present:
            present.add(found.id)
            yield found


def _known(ref: Ref, names: Mapping[str, str], nodes: Mapping[str, Node]) -> Ref | None:
    if names[ref.id] not in nodes:
        return None
    source = nodes[names[ref.id]]
    fits = not source.outputs or ref.output_nr < len(source.outputs)
    return Ref(source.id, ref.output_nr) if fits else None


def _scopes(a: Graph, b: Graph, shown: Mapping[str, str]) -> Iterator[Scope]:
    yield from b.scopes.values()
    for path, scope in a.scopes.items():
        if shown[path] not in b.scopes:
            yield replace(scope, path=shown[path])
