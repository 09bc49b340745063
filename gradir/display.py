"""What a notebook shows for a graph."""

from __future__ import annotations

from typing import Final

from gradir import registry
from gradir.errors import ExportError
from gradir.ir import Graph
from gradir.passes import destinations, fold, scope_depth
from gradir.pictures import can_render, render

__all__ = ["mimebundle", "readable"]

_MOST_BOXES: Final = 150
_DEEPEST: Final = 16
_SECONDS: Final = 10.0


def mimebundle(graph: Graph) -> dict[str, str]:
    """The graph as text, and as a picture by MIME type: SVG where ``dot`` is installed, else Mermaid.

    A graph of more than 150 boxes is folded by module; one that stays larger is shown as text only.
    """
    shown = {"text/plain": repr(graph)}
    small = readable(graph)
    if small is None:
        return shown
    if can_render():
        try:
            svg = render(registry.export("dot", small, {}), "svg", seconds=_SECONDS)
        except ExportError:
            pass
        else:
            return {**shown, "image/svg+xml": svg.decode()}
    return {**shown, "text/vnd.mermaid": registry.export("mermaid", small, {})}


def readable(graph: Graph, boxes: int = _MOST_BOXES) -> Graph | None:
    """The graph, folded by module as little as makes it at most ``boxes`` nodes; ``None`` where no depth does.

    >>> from gradir.ir import Node
    >>> layers = Graph.of([Node(f"f:{number}", scope=f"h.{number // 10}") for number in range(1000)])
    >>> len(readable(layers, 120).nodes), len(readable(layers, 99).nodes)
    (100, 1)
    """
    if len(graph.nodes) <= boxes:
        return graph
    deepest = min(max(scope_depth(node.scope) for node in graph.nodes.values()), _DEEPEST)
    for depth in range(deepest, -1, -1):
        module = destinations(graph, depth)
        left = {module(node) or node.id for node in graph.nodes.values()}
        if len(left) > boxes:
            continue
        folded = fold(graph, depth)
        if len(folded.nodes) <= boxes:
            return folded
    return None
