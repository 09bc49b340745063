"""Parameters that were tied or untied, or that the graph uses and its model does not own any more."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gradir.diffs.changes import Finding
from gradir.ir.name_ranges import ranges
from gradir.ir.totals import elements

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gradir.ir import Graph, Node
    from gradir.review.evidence import Evidence


def tied(evidence: Evidence) -> Iterator[Finding]:
    """Report parameters that became one, and those that became several."""
    fields = [
        field
        for change in evidence.changes
        if change.subject == "node" and change.what == "parameter"
        for field in change.fields
        if field.path == ("names",)
    ]
    names = [_parameter_names(graph) for graph in evidence.graphs] if fields else []
    both = [[value if isinstance(value, tuple) else () for value in (each.before, each.after)] for each in fields]
    for kind, side in (("tied", 1), ("untied", 0)):
        found = [
            ranges(pair[side])
            for pair in both
            if len(pair[side]) > 1 and names[1 - side].intersection(pair[side]).difference(pair[1 - side])
        ]
        if found:
            yield Finding(kind, "change", tuple(found))


def unowned(evidence: Evidence) -> Iterator[Finding]:
    """Report parameters without an owner that only the second graph has, if both graphs know their modules.

    No optimizer and no checkpoint of the model has them. ``subjects`` are the names of the parameters that left the
    model, if these are as many of the same sizes, and otherwise the ids of the new nodes.
    """
    before, after = evidence.graphs
    nameless = [node for node in after.nodes.values() if not (node.op or node.names)]
    if not (evidence.changes and before.scopes and after.scopes and nameless):
        return
    pairs = ((new, before.nodes[old]) for old, new in evidence.matched.items())
    named = {new: was for new, was in pairs if was.names and was.role == "parameter"}
    lost = [(node, named[node.id]) for node in nameless if node.id in named]
    matched = {*evidence.matched.values()}
    came = [node for node in nameless if node.role == "parameter" and node.id not in matched]
    gone = [node for node in before.nodes.values() if node.id not in evidence.matched]
    # Those that had no owner before may be these.
    spare = _tensors(filter(_has_no_owner, gone))
    new = [node for node in came if not _take(spare, node)]
    owned = [node for node in gone if node.role == "parameter" and node.names] if new else []
    known = owned if _tensors(owned) == _tensors(new) else new
    names = [name for node in [*(was for _, was in lost), *known] for name in node.names or (node.id,)]
    found = [*(node for node, _ in lost), *new]
    if found:
        details = {"elements": sum(map(elements, found))}
        yield Finding("unowned", "error", tuple(names), count=len(found), details=details)


def _parameter_names(graph: Graph) -> set[str]:
    return {name for node in graph.nodes.values() if node.role == "parameter" for name in node.names}


def _has_no_owner(node: Node) -> bool:
    return node.role == "parameter" and not node.names


def _tensors(nodes: Iterable[Node]) -> Counter[object]:
    return Counter(node.tensor for node in nodes)


def _take(spare: Counter[object], node: Node) -> bool:
    found = spare[node.tensor] > 0
    spare[node.tensor] -= found
    return found
