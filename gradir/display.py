"""What a notebook shows for a graph."""

from __future__ import annotations

from typing import Final

from gradir import registry
from gradir.errors import ExportError
from gradir.ir import Graph
from gradir.lines import with_lines
from gradir.passes import layers, readable
from gradir.pictures import render

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
    """The graph as text, as a page, and as a picture by MIME type: SVG, or Mermaid where gradir cannot draw it.

    Front-ends show the page; the picture, of layers, is for what shows no HTML. There a graph of more than 150 boxes is
    made small by `gradir.passes.readable`; one that stays large has no picture, as one of hundreds of thousands of
    nodes has no page.
    """
    shown = {"text/plain": repr(graph)}
    if page := _framed(graph):
        shown["text/html"] = page
    small = readable(layers(graph))
    if small is None:
        return shown
    try:
        svg = render(registry.export("dot", small.graph, {"caption": small.note}), "svg", seconds=_SECONDS)
    except ExportError:
        return {**shown, "text/vnd.mermaid": registry.export("mermaid", small.graph, {"caption": small.note})}
    # A cell is narrower than many a picture.
    fitting = svg.decode().replace("<svg ", '<svg style="max-width:100%;height:auto" ', 1)
    return {**shown, "image/svg+xml": fitting}


def _framed(graph: Graph) -> str:
    """The page of a graph in a frame; nothing where it is too large to be kept in a notebook."""
    from html import escape

    if len(graph.nodes) > _MOST_NODES:
        return ""
    page = escape(registry.export(_PAGE, with_lines(graph), {}))
    return _FRAME.format(page=page, title=escape(repr(graph).strip("<>"))) if len(page) <= _LARGEST_PAGE else ""
