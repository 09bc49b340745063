"""What a reader asks of a graph first: how many, how large."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec

from gradir.ir.graph import Graph
from gradir.ir.model import Node, Saved

__all__ = ["Totals", "elements", "saved_bytes", "totals"]

_OWNERS = frozenset({"leaf", "parameter", "buffer"})


class Totals(msgspec.Struct, frozen=True, gc=False):
    """Counts and sizes of one graph.

    ``parameters`` counts elements; ``saved_bytes`` is the memory that lives for backward alone, in bytes: every
    storage once, those of leaves, parameters and buffers left out.
    """

    nodes: int = 0
    edges: int = 0
    parameters: int = 0
    saved_bytes: int = 0


def totals(graph: Graph) -> Totals:
    """Count a graph.

    >>> totals(Graph.of([Node("w", role="parameter")]))
    Totals(nodes=1, edges=0, parameters=0, saved_bytes=0)
    """
    nodes = graph.nodes.values()
    folded = [node for node in nodes if node.role == "module"]
    return Totals(
        len(graph.nodes),
        sum(1 for _ in graph.edges),
        sum(elements(node) for node in nodes if node.role == "parameter") + _sum(folded, "parameters"),
        saved_bytes(nodes, graph.nodes) + _sum(folded, "saved_bytes"),
    )


def saved_bytes(members: Iterable[Node], nodes: Mapping[str, Node]) -> int:
    """The bytes that the saved slots of ``members`` keep alive: each storage once, those of owners left out.

    ``nodes`` are all nodes of the graph, in which a storage's owner is looked up.
    """
    storages: dict[str, int] = {}
    repeated = 0
    for node in members:
        own: set[str] = set()
        for saved in node.saved:
            if saved.bytes is None or _has_owner(saved, nodes):
                continue
            key = saved.storage or f"{node.id}.{saved.slot}"
            if key in own:
                repeated += saved.bytes
                continue
            if not saved.storage:
                own.add(key)
            storages[key] = max(storages.get(key, 0), saved.bytes)
    return sum(storages.values()) + repeated


def _has_owner(saved: Saved, nodes: Mapping[str, Node]) -> bool:
    owner = nodes.get(saved.storage)
    return owner is not None and owner.role in _OWNERS


def elements(node: Node) -> int:
    """The number of elements of a node's first output; 0 when a size is unknown or symbolic."""
    shape = node.shape
    if shape is None or not all(isinstance(size, int) for size in shape):
        return 0
    return math.prod(size for size in shape if isinstance(size, int))


def _sum(folded: Iterable[Node], attribute: str) -> int:
    values = [node.attrs.get(attribute) for node in folded]
    return sum(value for value in values if isinstance(value, int))
