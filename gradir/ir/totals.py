"""What a reader asks of a graph first: how many, how large."""

from __future__ import annotations

import math

import msgspec

from gradir.ir.graph import Graph
from gradir.ir.model import Node

__all__ = ["Totals", "elements", "totals"]

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
    nodes = graph.nodes
    storages: dict[str, int] = {}
    parameters = 0
    folded_bytes = 0
    for node in nodes.values():
        if node.role == "parameter":
            parameters += elements(node)
        elif node.role == "module":
            parameters += _count(node, "parameters")
            folded_bytes += _count(node, "saved_bytes")
        for saved in node.saved:
            key = saved.storage or f"{node.id}.{saved.slot}"
            owner = nodes.get(key)
            if saved.bytes is not None and (owner is None or owner.role not in _OWNERS):
                storages[key] = max(storages.get(key, 0), saved.bytes)
    edges = sum(1 for _ in graph.edges)
    return Totals(len(nodes), edges, parameters, sum(storages.values()) + folded_bytes)


def elements(node: Node) -> int:
    """The number of elements of a node's first output; 0 when a size is unknown or symbolic."""
    shape = node.shape
    if shape is None or not all(isinstance(size, int) for size in shape):
        return 0
    return math.prod(size for size in shape if isinstance(size, int))


def _count(node: Node, attribute: str) -> int:
    value = node.attrs.get(attribute)
    return value if isinstance(value, int) else 0
