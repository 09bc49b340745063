"""One HTML page that draws the graph, opens from disk and asks no host for anything.

The graph is two blocks of compressed JSON in base64, so that no text of a graph can become markup or script.
"""

from __future__ import annotations

import zlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from typing import Annotated, ClassVar, Final

import msgspec

from gradir.ir import Graph
from gradir.ir.jsontext import json_text
from gradir.ir.marks import ListedChange
from gradir.ir.text import escape_unprintable, pluralize
from gradir.progress import stage
from gradir.protocols import Options
from gradir.webpage import hash_for_policy, head
from gradir_exporters._page.columns import Columns
from gradir_exporters._page.tables import rows

__all__ = ["HtmlExporter", "HtmlOptions"]

# The offset of the operating system in a gzip header (RFC 1952), where zlib writes the current one.
_SYSTEM: Final = 9

# Unpacks the page's script, half of most pages if uncompressed. The policy allows both scripts by their hashes.
_START: Final = """\
(async () => {
  try {
    const signs = atob(document.getElementById("script").textContent);
    const bytes = new Uint8Array(signs.length);
    for (let at = 0; at < signs.length; at++) bytes[at] = signs.charCodeAt(at);
    const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(unpacked).text();
    document.body.append(script);
  } catch (error) {
    document.body.append(`This page cannot be drawn: ${error}`);
  }
})();
"""

_IMAGES: Final = "data: blob:"
# A page within a page; the sandbox keeps it from reaching the outer one.
_FRAME: Final = """\
<details class="graph"><summary>{title}</summary>
<iframe srcdoc="{page}" title="{title}" loading="lazy" sandbox="allow-scripts allow-downloads"></iframe>
</details>
"""


class HtmlOptions(Options, frozen=True, kw_only=True):
    """The names of the page."""

    title: Annotated[str, msgspec.Meta(description="the title of the page (default: the model and the file)")] = ""
    file: Annotated[str, msgspec.Meta(description="name of the graph's file or program")] = ""


class HtmlExporter:
    """A page to open in a browser: modules to open, search, paths, every detail; needs no network."""

    suffix: ClassVar[str] = ".html"
    options: ClassVar[type[Options]] = HtmlOptions
    shows_channels: ClassVar[bool] = True

    def export(self, graph: Graph, options: HtmlOptions) -> str:
        """Return the page.

        Raises:
            ExportError: an edge comes from a node that the graph does not have.
        """
        return self.export_changes(graph, options, (), {})

    def export_changes(
        self,
        graph: Graph,
        options: HtmlOptions,
        changes: Sequence[ListedChange],
        had: Mapping[str, tuple[int, int]],
        sides: Sequence[tuple[str, Graph]] = (),
    ) -> str:
        """Return the page of a diff: a graph with marked nodes, and a list of the changes."""
        with stage("collecting the data of the page"):
            columns = Columns(graph, changes, had, sides)
            title = options.title or _title(graph, options.file, sides)
            block = {"title": escape_unprintable(title), **columns.block()}
        with stage("packing the page"):
            first, second = (_pack(json_text(rows(part))) for part in (block, columns.facts.block()))
        contents = f"{pluralize(len(graph.nodes), 'node')} and {pluralize(columns.edges, 'edge')}"
        return _page(title, contents, first, second)

    def export_report(self, title: str, style: str, body: str, graphs: Sequence[tuple[str, Graph]]) -> str:
        """Return the page of a report with escaped markup and graphs below it."""
        # The page is the value of an attribute, so its markup is escaped too.
        frames = [
            _FRAME.format(
                title=escape(escape_unprintable(label)), page=escape(self.export(graph, HtmlOptions(title=label)))
            )
            for label, graph in graphs
        ]
        # A page in a srcdoc frame inherits the policy of the outer page.
        scripts = _scripts() if frames else "'none'"
        styles = " ".join(map(hash_for_policy, [style, *([_asset("style.css")] if frames else [])]))
        return f"""\
{head(escape_unprintable(title), style, scripts=scripts, styles=styles, images=_IMAGES)}
<body>
<main>
{body}{"".join(frames)}</main>
</body>
</html>
"""


def _title(graph: Graph, file: str, sides: Sequence[tuple[str, Graph]]) -> str:
    graphs = [side for _, side in sides] or [graph]
    classes = dict.fromkeys(filter(None, (each.scopes[""].class_name for each in graphs if "" in each.scopes)))
    parts = [" \u2192 ".join(names) for names in (classes, [name for name, _ in sides] or filter(None, [file]))]
    return ": ".join(filter(None, parts)) or "Graph"


def _pack(text: str) -> str:
    """Return a text compressed to the same bytes on every system, in base64."""
    # 31 window bits make a gzip header.
    packer = zlib.compressobj(level=6, wbits=31)
    data = packer.compress(text.encode()) + packer.flush()
    return b64encode(data[:_SYSTEM] + b"\xff" + data[_SYSTEM + 1 :]).decode()


@cache
def _script() -> str:
    return _pack(_asset("page.js"))


@cache
def _scripts() -> str:
    return f"{hash_for_policy(_START)} {hash_for_policy(_asset('page.js'))}"


@cache
def _asset(name: str) -> str:
    from importlib.resources import files

    return (files("gradir_exporters") / "_page" / name).read_text(encoding="utf-8")


def _page(title: str, contents: str, first: str, second: str) -> str:
    style = _asset("style.css")
    return f"""\
{head(escape_unprintable(title), style, scripts=_scripts(), images=_IMAGES)}
<body>
<noscript><p>This page draws a graph of {contents}, for which it needs JavaScript.</p></noscript>
<script type="application/octet-stream" id="gradir-columns">{first}</script>
<script type="application/octet-stream" id="gradir-details">{second}</script>
<script type="application/octet-stream" id="script">{_script()}</script>
<script>{_START}</script>
</body>
</html>
"""
