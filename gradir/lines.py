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
from gradir.ir.text import escape_unprintable, shorten

# Python's names of a file, by the name that gradir shows.
_FILES: Final[dict[str, set[str]]] = {}
_LONGEST: Final = 200


def remember(shown: str, file: str) -> None:
    """Record that gradir shows the file ``file`` as ``shown``."""
    _FILES.setdefault(shown, set()).add(file)


def line_text(file: str, line: int) -> str:
    """Return a line of the file that gradir shows as ``file``, or an empty text if it is unreadable or ambiguous."""
    # Read only files that ran here: a graph from elsewhere may name any file, such as one with a secret.
    name, *others = _FILES.get(file) or ("",)
    return "" if others else linecache.getline(name, line).rstrip("\r\n")


def cell_of(filename: str) -> str:
    """Return the notebook cell with this file name, such as ``cell 3``, or an empty text if it is none."""
    if "IPython" not in sys.modules:
        return ""
    compiler = getattr(sys.modules["IPython"].get_ipython(), "compile", None)
    named = None if compiler is None else compiler.format_code_name(filename)
    number = re.search(r"\[(\d+)\]", named[1]) if named else None
    return f"cell {number[1]}" if number else ""


def name_cells(graph: Graph) -> Graph:
    """Return the graph with notebook cells instead of the file names that Python gives them."""
    known = Memo[str, str](lambda file: cell_of(*names) if len(names := _FILES.get(file) or ()) == 1 else "")

    def name_cell(source: Source | None) -> Source | None:
        return replace(source, file=cell) if source and (cell := known[source.file]) else source

    nodes = {
        key: replace(node, source=name_cell(node.source))
        for key, node in graph.nodes.items()
        if node.source and known[node.source.file]
    }
    cuts = tuple(replace(cut, source=name_cell(cut.source), via=name_cell(cut.via)) for cut in graph.cuts)
    return replace(graph, nodes={**graph.nodes, **nodes}, cuts=cuts) if nodes or cuts != graph.cuts else graph


def add_lines(graph: Graph) -> Graph:
    """Return the graph with the text of its source lines."""
    if not _FILES or not any(node.source for node in graph.nodes.values()):
        return graph
    text_of = Memo[tuple[str, int], str](lambda place: escape_unprintable(shorten(line_text(*place).strip(), _LONGEST)))
    marked = {
        key: replace(node, ext={**node.ext, LINE: text})
        for key, node in graph.nodes.items()
        if node.source and (text := text_of[node.source.file, node.source.line])
    }
    return replace(graph, nodes={**graph.nodes, **marked}) if marked else graph
