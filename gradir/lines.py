"""The text of source lines, of files that a capture in this process has shown."""

from __future__ import annotations

import linecache
from typing import Final

from msgspec.structs import replace

from gradir.ir import Graph
from gradir.ir.excerpt import shortened
from gradir.ir.marks import LINE
from gradir.ir.memo import Memo
from gradir.ir.text import printable

_FILES: Final[dict[str, set[str]]] = {}
"""By how it is shown, what Python calls a file."""

_LONGEST: Final = 200


def remember(shown: str, file: str) -> None:
    """Record how a file that Python calls ``file`` is shown."""
    _FILES.setdefault(shown, set()).add(file)


def line_text(file: str, line: int) -> str:
    """Return a line of a file that is shown so; nothing where it cannot be read, or several are shown so.

    No file is read because a graph names it: a graph from elsewhere may name any.
    """
    (name, *others) = _FILES.get(file) or ("",)
    return "" if others else linecache.getline(name, line).rstrip("\r\n")


def with_lines(graph: Graph) -> Graph:
    """The graph with the text of its source lines, for an exporter that shows them.

    >>> with_lines(Graph.of([])).nodes
    {}
    """
    if not _FILES or not any(node.source for node in graph.nodes.values()):
        return graph
    text_of = Memo[tuple[str, int], str](lambda place: printable(shortened(line_text(*place).strip(), _LONGEST)))
    texts = {
        key: text
        for key, node in graph.nodes.items()
        if node.source and (text := text_of[node.source.file, node.source.line])
    }
    nodes = graph.nodes
    marked = {key: replace(nodes[key], ext={**nodes[key].ext, LINE: text}) for key, text in texts.items()}
    return replace(graph, nodes={**nodes, **marked}) if marked else graph
