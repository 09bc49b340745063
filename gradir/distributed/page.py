"""What was found of ranks, as a page to open in a browser."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import Final

from gradir import registry
from gradir.distributed.model import Finding, Ranks
from gradir.distributed.words import headline, rest, row, title
from gradir.errors import ExportError
from gradir.ir import Graph
from gradir.ir.text import counted, printable
from gradir.protocols import Reports

_EXPORTER: Final = "html"
_TITLE: Final = "gradir ranks"
_MOST_GRAPHS: Final = 8
_MOST_NODES: Final = 200_000
"""Of more nodes no graph is put into the page, which has to be read whole."""

_HEADS: Final = ("ranks", "nodes", "edges", "bytes saved for backward", "elements held", "collectives")

_STYLE: Final = """\
:root{color-scheme:light dark;--text:#1f2328;--ground:#fff;--line:#7b858f;--panel:#f6f8fa;--alarm:#b83a00;
--good:#00735a}
@media (prefers-color-scheme:dark){
:root{--text:#e9eef3;--ground:#0d1117;--line:#7d8792;--panel:#161b22;--alarm:#ff8a4c;--good:#2fc79c}}
body{max-width:75rem;margin:0 auto;padding:1rem;background:var(--ground);color:var(--text);
font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.3rem}h2{font-size:1.05rem;margin:1.6rem 0 .4rem}
.table{overflow-x:auto}table{border-collapse:collapse}
th,td{padding:.2rem .7rem;border:1px solid var(--line);text-align:right}th:first-child,td:first-child{text-align:left}
section{border-left:4px solid var(--alarm);padding:.1rem 1rem;margin:1rem 0;background:var(--panel)}
section h2{color:var(--alarm);margin:.4rem 0}.proof{border-left:4px solid var(--good);padding-left:1rem}
li,.names{overflow-wrap:anywhere}code{font:13px/1.5 ui-monospace,monospace}
.graph{margin:.5rem 0}summary{cursor:pointer;padding:.3rem 0}
iframe{width:100%;height:min(80vh,56rem);border:1px solid var(--line)}
"""


def page(ranks: Ranks) -> str:
    """One page: groups, what differs first, the proof or the hang, and a graph of each group to open.

    Raises:
        ExportError: the exporter of pages is another one, that makes none of a report.
        FileError: a file of which a graph is shown is not there any more.
    """
    exporter = registry.exporter(_EXPORTER)
    if not isinstance(exporter, Reports):
        raise ExportError(f"the exporter {_EXPORTER!r} makes no page of a report: use the one of gradir")
    shown, left = _shown(ranks)
    body = "".join(f"{line}\n" for line in _body(ranks, left, has_graphs=bool(shown)))
    return exporter.export_report(_TITLE, _STYLE, body, shown)


def _shown(ranks: Ranks) -> tuple[list[tuple[str, Graph]], int]:
    """The graphs of the first groups, with what they are called, and how many are left out."""
    graphs = ranks.graphs
    named = [
        (f"graph of {row(group)[0]}: {counted(group.nodes, 'node')}", graph)
        for group, graph in zip(ranks.groups, graphs, strict=False)
        if group.nodes <= _MOST_NODES
    ]
    return named[:_MOST_GRAPHS], len(graphs) - len(named[:_MOST_GRAPHS])


def _body(ranks: Ranks, left: int, *, has_graphs: bool) -> Iterator[str]:
    yield f"<h1>{_text(headline(ranks))}</h1>"
    yield '<div class="table" tabindex="0" role="region" aria-label="groups of ranks"><table><thead><tr>'
    yield "".join(f'<th scope="col">{head}</th>' for head in _HEADS)
    yield "</tr></thead><tbody>"
    for group in ranks.groups:
        name, *counts = map(_text, row(group))
        yield f'<tr><th scope="row">{name}</th>{"".join(f"<td>{count}</td>" for count in counts)}</tr>'
    yield "</tbody></table></div>"
    for finding in ranks.findings:
        yield from _section(finding)
    for line in map("".join, rest(ranks)):
        yield f'<p class="proof names">{_text(line)}</p>'
    if has_graphs or left:
        yield "<h2>Graphs</h2>"
    if left:
        yield f"<p>{counted(left, 'graph')} more {'is' if left == 1 else 'are'} not in this page.</p>"


def _section(finding: Finding) -> Iterable[str]:
    lines = "".join(f"<li><code>{_text(line)}</code></li>" for line in finding.lines)
    return (f"<section><h2>{_text(title(finding))}</h2><ul>{lines}</ul></section>",)


def _text(text: str) -> str:
    return escape(printable(text))
