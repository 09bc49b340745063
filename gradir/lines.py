"""Add the text of source lines to graphs captured in this process."""

from __future__ import annotations

import linecache
import re
import sys
from typing import Final

from msgspec.structs import replace

from gradir.ir import Graph, Source
from gradir.ir.marks import LINE
from gradir.ir.memo import Memo
from gradir.ir.text import printable, shortened

# By how it is shown, what Python calls a file.
_FILES: Final[dict[str, set[str]]] = {}

_LONGEST: Final = 200


def remember(shown: str, file: str) -> None:
    """Record how a file that Python calls ``file`` is shown."""
    _FILES.setdefault(shown, set()).add(file)


def line_text(file: str, line: int) -> str:
    """Return a line of a file that is shown so; nothing where it cannot be read, or several are shown so."""
    # Only files that ran here are read: a graph from elsewhere may name any, such as one with a secret.
    (name, *others) = _FILES.get(file) or ("",)
    return "" if others else linecache.getline(name, line).rstrip("\r\n")


def cell_of(filename: str) -> str:
    """Return which cell of a notebook Python calls so, as ``cell 3``; nothing where it is none."""
    if "IPython" not in sys.modules:
        return ""
    compiler = getattr(sys.modules["IPython"].get_ipython(), "compile", None)
    named = None if compiler is None else compiler.format_code_name(filename)
    number = re.search(r"\[(\d+)\]", named[1]) if named else None
    return f"cell {number[1]}" if number else ""


def with_cells(graph: Graph) -> Graph:
    """Return the graph with notebook cells instead of the file names that Python gives them."""
    known = Memo[str, str](lambda file: cell_of(*names) if len(names := _FILES.get(file) or ()) == 1 else "")

    def shown(source: Source | None) -> Source | None:
        return replace(source, file=cell) if source and (cell := known[source.file]) else source

    nodes = {
        key: replace(node, source=shown(node.source))
        for key, node in graph.nodes.items()
        if node.source and known[node.source.file]
    }
    cuts = tuple(replace(cut, source=shown(cut.source), via=shown(cut.via)) for cut in graph.cuts)
    return replace(graph, nodes={**graph.nodes, **nodes}, cuts=cuts) if nodes or cuts != graph.cuts else graph


def with_lines(graph: Graph) -> Graph:
    """Return the graph with the text of its source lines."""
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
