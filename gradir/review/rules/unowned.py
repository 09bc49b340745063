"""Parameters that a graph uses and its model does not own, so that no optimizer or checkpoint of it has them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gradir.diffs.changes import Finding
from gradir.ir.totals import elements

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gradir.ir import Node
    from gradir.review.evidence import Evidence


def unowned(evidence: Evidence) -> Iterator[Finding]:
    """The parameters without an owner that only the second graph has; both graphs have to know their modules.

    Where as many of the same sizes left the model, the names of those are given, else the ids of their nodes.

    >>> from gradir.ir import Graph, Node, Scope
    >>> from gradir.review.reviewing import reviewed
    >>> nodes = Node("w", role="parameter", names=("w",)), Node("leaf:1", role="parameter")
    >>> a, b = (Graph.of([node], [Scope("")]) for node in nodes)
    >>> next(found.text for found in reviewed(a, b).findings if found.kind == "unowned")
    '1 parameter not in the model: w (0 elements)'
    """
    before, after = evidence.graphs
    if not (evidence.changes and before.scopes and after.scopes):
        return
    pairs = {new: before.nodes[old] for old, new in evidence.matched.items()}
    lost = [(node, pairs[node.id]) for node in after.nodes.values() if node.id in pairs and not node.names]
    lost = [(node, was) for node, was in lost if was.role == "parameter" and was.names]
    came = [node for node in after.nodes.values() if node.id not in pairs and _has_no_owner(node)]
    gone = [node for node in before.nodes.values() if node.id not in evidence.matched]
    # Those that had no owner before may be these.
    spare = _tensors(node for node in gone if _has_no_owner(node))
    new = [node for node in came if not _taken(spare, node)]
    owned = [node for node in gone if node.role == "parameter" and node.names] if new else []
    known = owned if _tensors(owned) == _tensors(new) else new
    names = [name for node in [*(was for _, was in lost), *known] for name in node.names or (node.id,)]
    found = [*(node for node, _ in lost), *new]
    if found:
        yield Finding(
            "unowned", "error", tuple(names), count=len(found), details={"elements": sum(map(elements, found))}
        )


def _has_no_owner(node: Node) -> bool:
    return node.role == "parameter" and not node.names


def _tensors(nodes: Iterable[Node]) -> Counter[object]:
    return Counter(node.tensor for node in nodes)


def _taken(spare: Counter[object], node: Node) -> bool:
    found = spare[node.tensor] > 0
    spare[node.tensor] -= found
    return found
