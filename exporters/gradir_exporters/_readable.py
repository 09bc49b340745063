"""What a static picture draws by default: a graph that is small enough to read, and a caption that says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradir.errors import warn
from gradir.pictures import LARGE

if TYPE_CHECKING:
    from gradir.ir import Graph


def drawn_by_default(graph: Graph, caption: str) -> tuple[Graph, str]:
    """Return the graph to draw and its caption; a graph that somebody has folded already is drawn as it is.

    Warns:
        GradirWarning: the graph is drawn smaller than it is.
    """
    if len(graph.nodes) <= LARGE or is_folded(graph):
        return graph, caption
    # Imported for a large graph alone: to draw a small one should start fast.
    from gradir.passes import smallest

    small = smallest(graph)
    if small.graph is not graph:
        warn(f"{small.note}; --all, in Python all=True, draws every node; --depth, --rollup, --drop, --focus choose")
    return small.graph, f"{caption}; {small.note}" if caption else small.note


def is_folded(graph: Graph) -> bool:
    """Whether a module is one node already."""
    return any(node.role == "module" for node in graph.nodes.values())
