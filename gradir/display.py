"""What a notebook shows for a graph."""

from __future__ import annotations

from typing import Final

from gradir import registry
from gradir.errors import ExportError
from gradir.ir import Graph
from gradir.passes import fold, scope_depth
from gradir.passes.fold import destination
from gradir.pictures import can_render, render

__all__ = ["mimebundle", "readable"]

_MOST_BOXES: Final = 150
_DEEPEST: Final = 16
_SECONDS: Final = 10.0
_PAGE: Final = "html"
_LARGEST_PAGE: Final = 2_000_000
"""Characters that a notebook is made larger by at most."""

_MOST_NODES: Final = 200_000
"""Of more no page is made, which would take seconds."""

_FRAME: Final = """\
<iframe srcdoc="{page}" title="{title}" width="100%" height="600" frameborder="0"
sandbox="allow-scripts allow-downloads"></iframe><div>{title}</div>
"""
"""A frame of a kind that every front-end of notebooks takes, without a host to ask and apart from the notebook.

Where a notebook is not trusted, and on a site that shows notebooks without scripts, the line below it is left.
"""


def mimebundle(graph: Graph) -> dict[str, str]:
    """The graph as text, as a page, and as a picture by MIME type: SVG where ``dot`` is installed, else Mermaid.

    Front-ends show the page; the picture is for what shows no HTML. There a graph of more than 150 boxes is folded by
    module, and one that stays larger has no picture, as one of hundreds of thousands of nodes has no page.
    """
    shown = {"text/plain": repr(graph)}
    if page := _framed(graph):
        shown["text/html"] = page
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


def _framed(graph: Graph) -> str:
    """The page of a graph in a frame; nothing where it is too large to be kept in a notebook."""
    from html import escape

    if len(graph.nodes) > _MOST_NODES:
        return ""
    page = escape(registry.export(_PAGE, graph, {}))
    return _FRAME.format(page=page, title=escape(repr(graph).strip("<>"))) if len(page) <= _LARGEST_PAGE else ""


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
        left = {destination(node, depth) or node.id for node in graph.nodes.values()}
        if len(left) > boxes:
            continue
        folded = fold(graph, depth)
        if len(folded.nodes) <= boxes:
            return folded
    return None
