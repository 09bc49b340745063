"""Parameters that a graph uses and its model does not own, so that no optimizer or checkpoint of it has them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from gradir.ir.name_ranges import ranges
from gradir.ir.text import counted
from gradir.ir.totals import elements

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gradir.ir import Node
    from gradir.review.comparison import Comparison

__all__ = ["Unowned", "unowned_parameters"]


class Unowned(NamedTuple):
    """New parameters without an owner; ``names`` are those that they had, or else the ids of their nodes."""

    parameters: int = 0
    elements: int = 0
    names: tuple[str, ...] = ()

    def text(self) -> str:
        """The names, and how large the parameters are."""
        return f"{ranges(self.names)} ({counted(self.elements, 'element')})"


def unowned_parameters(comparison: Comparison) -> Unowned:
    """The parameters without an owner that only the second graph has; both graphs have to know their modules.

    Where as many of the same sizes left the model, the names of those are given.

    >>> from gradir.ir import Graph, Node, Scope
    >>> from gradir.review.comparison import Comparison
    >>> nodes = Node("w", role="parameter", names=("w",)), Node("leaf:1", role="parameter")
    >>> a, b = (Graph.of([node], [Scope("")]) for node in nodes)
    >>> unowned_parameters(Comparison(a, b)).names, unowned_parameters(Comparison(b, a)).names
    (('w',), ())
    """
    before, after = comparison.graphs
    if not (comparison.diff and before.scopes and after.scopes):
        return Unowned()
    pairs = {new: before.nodes[old] for old, new in comparison.matching.nodes.items()}
    lost = [(node, pairs[node.id]) for node in after.nodes.values() if node.id in pairs and not node.names]
    lost = [(node, was) for node, was in lost if was.role == "parameter" and was.names]
    came = [node for node in after.nodes.values() if node.id not in pairs and _has_no_owner(node)]
    left = [node for node in before.nodes.values() if node.id not in comparison.matching.nodes]
    # Those that had no owner before may be these.
    spare = _tensors(node for node in left if _has_no_owner(node))
    new = [node for node in came if not _taken(spare, node)]
    gone = [node for node in left if node.role == "parameter" and node.names] if new else []
    known = gone if _tensors(gone) == _tensors(new) else new
    names = [name for node in [*(was for _, was in lost), *known] for name in node.names or (node.id,)]
    found = [*(node for node, _ in lost), *new]
    return Unowned(len(found), sum(map(elements, found)), tuple(names))


def _has_no_owner(node: Node) -> bool:
    return node.role == "parameter" and not node.names


def _tensors(nodes: Iterable[Node]) -> Counter[object]:
    return Counter(node.tensor for node in nodes)


def _taken(spare: Counter[object], node: Node) -> bool:
    found = spare[node.tensor] > 0
    spare[node.tensor] -= found
    return found
