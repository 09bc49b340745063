"""Show graphs and diffs in notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gradir import registry
from gradir.errors import ExportError
from gradir.ir import Graph
from gradir.ir.text import escape_unprintable
from gradir.lines import add_lines, name_cells
from gradir.passes import layers, readable
from gradir.pictures import render

if TYPE_CHECKING:
    from gradir.diffs.changes import Diff

_SECONDS: Final = 10.0
_PAGE: Final = "html"
# The most characters that a page may add to a notebook.
_LARGEST_PAGE: Final = 2_000_000
# A page of more nodes would take seconds.
_MOST_NODES: Final = 200_000
_NO_MODULE: Final = """\
<div>gradir saw no module run. To see the modules, run the forward inside <code>with gradir.record(model) as rec:</code>
and show <code>rec.capture(loss)</code>.</div>
"""

# Every notebook application shows such a frame, isolated from the notebook and without network access. The line below
# it also appears in untrusted notebooks and on sites that run no scripts.
_FRAME: Final = """\
<iframe srcdoc="{page}" title="{title}" width="100%" height="600" frameborder="0"
sandbox="allow-scripts allow-downloads"></iframe><div>{title}</div>
"""


def mimebundle(graph: Graph) -> dict[str, str]:
    """Return the graph by MIME type: text, a page, and SVG or, if nothing draws that, Mermaid."""
    shown = {"text/plain": repr(graph)}
    if len(graph.nodes) <= _MOST_NODES:
        page = _frame_page(registry.export(_PAGE, name_cells(add_lines(graph)), {}), repr(graph).strip("<>"))
        # The front-end records whether it knows the modules of operations.
        is_blind = graph.producer.options.get("scopes") is False and any(graph.scopes)
        shown |= {"text/html": f"{page}{_NO_MODULE * is_blind}"} if page else {}
    # The picture is for applications without HTML; a graph that stays large has none.
    small = readable(layers(graph))
    if small is None:
        return shown
    try:
        svg = render(registry.export("dot", small.graph, {"caption": small.note}), "svg", seconds=_SECONDS)
    except ExportError:
        return {**shown, "text/vnd.mermaid": registry.export("mermaid", small.graph, {"caption": small.note})}
    # Many pictures are wider than a cell.
    fitting = svg.decode().replace("<svg ", '<svg style="max-width:100%;height:auto" ', 1)
    return {**shown, "image/svg+xml": fitting}


def diff_mimebundle(diff: Diff) -> dict[str, str]:
    """Return a diff by MIME type: text, Markdown, and a page unless it is too large."""
    shown = {"text/plain": str(diff), "text/markdown": diff.to("markdown")}
    # A diff that was read from a file has no graphs to draw.
    sides = diff.sides
    if diff and sides and len(sides.before.nodes) + len(sides.after.nodes) <= _MOST_NODES:
        page = _frame_page(diff.to(_PAGE), shown["text/plain"].partition("\n")[0])
        shown |= {"text/html": page} if page else {}
    return shown


def _frame_page(page: str, title: str) -> str:
    """Return a page in a frame with its title below, or an empty text if it is too large for a notebook."""
    from html import escape

    shown = escape(page)
    return _FRAME.format(page=shown, title=escape(escape_unprintable(title))) if len(shown) <= _LARGEST_PAGE else ""
