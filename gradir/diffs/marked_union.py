"""Both graphs in one, every node marked with what became of it, for any exporter to draw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gradir.diffs.sequences import matched
from gradir.ir import Graph, Node, Ref
from gradir.ir.edges import DATA, edges_into, rewired
from gradir.ir.marks import LOST, STATUS, WAS

if TYPE_CHECKING:
    from gradir.diffs.changes import Diff
    from gradir.diffs.correspondence import Correspondence
    from gradir.ir import Scope


def marked_union(a: Graph, b: Graph, diff: Diff, correspondence: Correspondence) -> Graph:
    """The nodes of ``b``, and among them those that only ``a`` has, where they stood.

    What the diff says of a node is its mark, see `gradir.ir.marks`; a renamed or moved node counts as changed, and a
    node without an entry is as it was. An input that only the node of ``a`` had is a further slot of it in the union,
    unless it would lead backwards.

    >>> from gradir.diffs.compare import compare
    >>> from gradir.diffs.correspondence import Correspondence
    >>> from gradir.diffs.matching import match
    >>> a, b = Graph.of([Node("x"), Node("y")]), Graph.of([Node("x"), Node("z", op="exp")])
    >>> union = marked_union(a, b, compare(a, b), Correspondence(a, b, match(a, b)))
    >>> [(node.id, dict(node.ext)) for node in union.nodes.values()]
    [('x', {}), ('y', {'diff': 'removed'}), ('z', {'diff': 'added'})]
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
    """The inputs that a node had and has no more."""
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
