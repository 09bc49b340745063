"""``gradir view``: open the picture of a ``.gir`` file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gradir.cli.export_command import add_exporter_options, exporter_values, load_to_draw
from gradir.cli.parser import Parser, add_input
from gradir.cli.plugin_options import add_pass_options, chosen_passes
from gradir.cli.report import report
from gradir.errors import ExportError

if TYPE_CHECKING:
    from gradir.ir import Graph

__all__ = ["DESCRIPTION", "EPILOG", "HELP", "add_options", "run"]

HELP = "draw a graph and open the picture"
DESCRIPTION = (
    "Draw a captured graph with Graphviz and open the picture in a browser. A graph too large to read "
    "is rolled up and folded by module, unless an option says what to show."
)

EPILOG = """\
examples:
  gradir view model.gir
  gradir view model.gir --depth 2 -O direction=LR -O theme=dark
  gradir view model.gir --focus h.3.attn --hops 2

'gradir export --to svg -o FILE' writes a picture and opens nothing.
'gradir export --to svg --help' lists what -O takes.
"""


def add_options(parser: Parser) -> None:
    """Add what the command takes."""
    add_input(parser)
    add_exporter_options(parser)
    add_pass_options(parser)


def run(options: argparse.Namespace) -> int:
    """Draw into a temporary file and open it."""
    import os
    import tempfile
    import webbrowser
    from pathlib import Path

    from gradir import api, files, registry

    values = exporter_values(options)
    registry.exporter_options("dot", values, "the picture")
    whole = load_to_draw(options)
    graph = chosen_passes(options)(whole)
    if graph is whole:
        graph, values = _readable(graph, values)
    svg = api.render(graph, "svg", seconds=options.seconds, **values)
    # Not removed: the browser reads it after this program has ended.
    handle, path = tempfile.mkstemp(prefix="gradir-", suffix=".svg")
    os.close(handle)
    files.write_bytes(path, svg)
    if not webbrowser.open(Path(path).as_uri()):
        raise ExportError(f"no browser could be opened; the picture is {path}")
    return 0


def _readable(graph: Graph, values: dict[str, object]) -> tuple[Graph, dict[str, object]]:
    """A large graph made small, and the options of the picture, which says so."""
    from gradir.passes import readable

    small = readable(graph)
    if small is None:
        raise ExportError(
            f"{len(graph.nodes):,} nodes are too many to read, and no depth makes them few: choose some with --focus, "
            "or give a --depth"
        )
    if not small.note:
        return graph, values
    report(f"{small.note}; --depth, --rollup, --drop and --focus say what to show")
    return small.graph, {"caption": small.note, **values}
