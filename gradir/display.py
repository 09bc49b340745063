"""What a notebook shows for a graph."""

from __future__ import annotations

from typing import Final

from gradir import registry
from gradir.errors import ExportError
from gradir.ir import Graph
from gradir.passes import readable
from gradir.pictures import can_render, render

__all__ = ["mimebundle"]

_SECONDS: Final = 10.0


def mimebundle(graph: Graph) -> dict[str, str]:
    """The graph as text, and as a picture by MIME type: SVG where ``dot`` is installed, else Mermaid.

    A graph of more than 150 boxes is made small by `gradir.passes.readable`; one that stays large is text only.
    """
    shown = {"text/plain": repr(graph)}
    small = readable(graph)
    if small is None:
        return shown
    if can_render():
        try:
            svg = render(registry.export("dot", small.graph, {"caption": small.note}), "svg", seconds=_SECONDS)
        except ExportError:
            pass
        else:
            # A cell is narrower than many a picture.
            fitting = svg.decode().replace("<svg ", '<svg style="max-width:100%;height:auto" ', 1)
            return {**shown, "image/svg+xml": fitting}
    return {**shown, "text/vnd.mermaid": registry.export("mermaid", small.graph, {"caption": small.note})}
