"""Both graphs in one, every node marked with what became of it, for any exporter to draw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gradir.diff.matching import match
from gradir.ir import Graph, Node, Ref
from gradir.ir.marks import STATUS, status

if TYPE_CHECKING:
    from gradir.diff.model import Diff
    from gradir.ir import Scope

__all__ = ["union"]


def union(a: Graph, b: Graph, diff: Diff) -> Graph:
    """The nodes of ``b``, and among them those that only ``a`` has, where they stood.

    What the diff says of a node is its mark, see `gradir.ir.marks`; a renamed or moved node counts as changed, and a
    node without an entry is as it was. An input that only the node of ``a`` had is a further slot of it in the union,
    unless it would lead backwards.

    >>> from gradir.diff.compare import compare
    >>> a, b = Graph.of([Node("x"), Node("y")]), Graph.of([Node("x"), Node("z", op="exp")])
    >>> [(node.id, dict(node.ext)) for node in union(a, b, compare(a, b)).nodes.values()]
    [('x', {}), ('y', {'diff': 'removed'}), ('z', {'diff': 'added'})]
    """
    there = match(a, b).nodes
    names = _names(a, b, there)
    kinds = {change.id: change.kind for change in diff.changes if change.subject == "node"}
    backwards = {after: a.nodes[before] for before, after in there.items()}
    nodes: dict[str, Node] = {}
    for node, gone in _merged(a, b, there):
        if gone:
            nodes[names[node.id]] = _removed(node, names, nodes)
            continue
        inputs = list(node.inputs)
        if node.id in backwards:
            inputs += _lost(backwards[node.id], node, names, nodes)
        kind = kinds.get(node.id, "")
        ext = node.ext if not kind else {**node.ext, STATUS: "added" if kind == "added" else "changed"}
        nodes[node.id] = replace(node, inputs=tuple(inputs), ext=ext)
    return Graph.of(nodes.values(), _scopes(a, b), b.cuts, b.producer)


def _names(a: Graph, b: Graph, there: Mapping[str, str]) -> dict[str, str]:
    """What the union calls each node of ``a``."""
    taken = set(b.nodes)
    names = dict(there)
    for node_id in a.nodes:
        if node_id not in names:
            free, count = node_id, 1
            while free in taken:
                count += 1
                free = f"{node_id}~{count}"
            taken.add(free)
            names[node_id] = free
    return names


def _merged(a: Graph, b: Graph, there: Mapping[str, str]) -> Iterator[tuple[Node, bool]]:
    """The nodes of ``b`` in order, and behind the node that they stood behind those that are gone."""
    behind: dict[str, list[tuple[Node, bool]]] = {}
    previous = ""
    for node in a.nodes.values():
        if node.id in there:
            previous = there[node.id]
        else:
            behind.setdefault(previous, []).append((node, True))
    yield from behind.get("", ())
    for node in b.nodes.values():
        yield node, False
        yield from behind.get(node.id, ())


def _removed(node: Node, names: Mapping[str, str], nodes: Mapping[str, Node]) -> Node:
    inputs = tuple(_known(ref, names, nodes) for ref in node.inputs)
    saved = tuple(replace(slot, origin=None, storage="") for slot in node.saved)
    return replace(node, id=names[node.id], inputs=inputs, saved=saved, base=None, ext={**node.ext, STATUS: "removed"})


def _lost(old: Node, new: Node, names: Mapping[str, str], nodes: Mapping[str, Node]) -> Iterator[Ref]:
    """The inputs that a node had from nodes that are gone."""
    present = {ref.id for ref in new.inputs if ref is not None}
    for ref in old.inputs:
        found = _known(ref, names, nodes)
        if found is not None and found.id not in present and status(nodes[found.id]) == "removed":
            present.add(found.id)
            yield found


def _known(ref: Ref | None, names: Mapping[str, str], nodes: Mapping[str, Node]) -> Ref | None:
    if ref is None or names[ref.id] not in nodes:
        return None
    source = nodes[names[ref.id]]
    fits = not source.outputs or ref.output_nr < len(source.outputs)
    return Ref(source.id, ref.output_nr) if fits else None


def _scopes(a: Graph, b: Graph) -> Iterator[Scope]:
    yield from b.scopes.values()
    yield from (scope for path, scope in a.scopes.items() if path not in b.scopes)
