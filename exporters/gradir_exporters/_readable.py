"""Choose the graph that a static picture draws by default."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradir.errors import warn
from gradir.ir.marks import is_layer
from gradir.pictures import LARGE

if TYPE_CHECKING:
    from gradir.ir import Graph


def drawn_by_default(graph: Graph, caption: str) -> tuple[Graph, str]:
    """Return the graph to draw and its caption; a folded graph is drawn as it is.

    Warns:
        GradirWarning: the graph is drawn smaller than it is.
    """
    is_small = len(graph.nodes) <= LARGE and not any(map(is_layer, graph.nodes.values()))
    if is_small or is_folded(graph):
        return graph, caption
    # Imported for a large graph and for layers alone: to draw a small one should start fast.
    from gradir.passes import smallest

    small = smallest(graph)
    if small.graph is not graph:
        warn(f"{small.note}; --all, in Python all=True, draws every node; --depth, --rollup, --drop, --focus choose")
    return small.graph, "; ".join(filter(None, (caption, small.note)))


def is_folded(graph: Graph) -> bool:
    """Return whether a module with submodules is one node already."""
    return any(node.role == "module" and not is_layer(node) for node in graph.nodes.values())
