"""``gradir view``: open the graph of a file or of a program as a page, or its picture."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from gradir.cli.capturing import (
    RAISED,
    SPEC_HELP,
    add_graph_option,
    add_noting_options,
    add_run_options,
)
from gradir.cli.export_command import add_exporter_options, exporter_values, graph_to_draw
from gradir.cli.parser import Parser
from gradir.cli.plugin_options import add_pass_options, chosen_passes
from gradir.cli.report import report
from gradir.errors import ExportError
from gradir.pictures import PICTURES

if TYPE_CHECKING:
    from gradir.ir import Graph

__all__ = ["DESCRIPTION", "EPILOG", "HELP", "add_options", "run"]

HELP = "open a graph as a page in a browser"
DESCRIPTION = (
    "Open a graph as a page in a browser, which opens and closes modules, searches, and tells all of a node: the graph "
    "of a .gir file, or of a program, which is run as by 'gradir capture'. "
    "With --to svg, png or pdf it is a static picture; there a graph too large to read is rolled up "
    f"and folded by module, unless an option says what to show.\n\n{SPEC_HELP}"
)

EPILOG = """\
examples:
  gradir view model.gir
  gradir view train.py:loss
  gradir view net.py:Net --input 'float32[8,3,32,32]' --graph forward
  gradir view model.gir --overlay gradients.json
  gradir view model.gir --to svg --depth 2 -O direction=LR -O theme=dark
  gradir view model.gir --to svg --focus h.3.attn --hops 2

'gradir export --to html -o FILE' writes the page and opens nothing; 'gradir export --to NAME --help' lists what -O
takes. Where there is no browser, the path of the file is printed.

exit status: 0 done, 1 a program raised, and the graph of its forward is shown up to there, 2 trouble
"""

_PAGE: Final = "html"


def add_options(parser: Parser) -> None:
    """Add what the command takes."""
    parser.add_argument(
        "file", metavar="FILE|SPEC", help="a .gir file ('-' is standard input), or what to capture and show"
    )
    parser.add_argument(
        "--to",
        choices=(_PAGE, *PICTURES),
        default=_PAGE,
        help="write a page or a static picture; pdf needs Graphviz (default: html)",
    )
    add_exporter_options(parser)
    add_pass_options(parser)
    add_run_options(parser)
    add_noting_options(parser)
    add_graph_option(parser, "show of a program")
    parser.set_defaults(verify=False, raised="")


def run(options: argparse.Namespace) -> int:
    """Load or capture, write into a temporary file and open it."""
    import os
    import tempfile
    import webbrowser
    from pathlib import Path

    from gradir import files

    data = _page(options) if options.to == _PAGE else _picture(options)
    # Not removed: the browser reads it after this program has ended.
    handle, path = tempfile.mkstemp(prefix="gradir-", suffix=f".{options.to}")
    os.close(handle)
    files.write_bytes(path, data)
    if not webbrowser.open(Path(path).as_uri()):
        print(path)
    if options.raised:
        report(f"{options.raised}; the graph ends there")
        return RAISED
    return 0


def _page(options: argparse.Namespace) -> bytes:
    """The graph as a page, with the name of its file for a title where none is given."""
    from pathlib import Path

    from gradir import registry

    values = exporter_values(options)
    registry.exporter_options(_PAGE, values, "the page")
    passes = chosen_passes(options)
    graph = passes(graph_to_draw(options, _PAGE))
    name = Path(options.file).name
    return registry.export(_PAGE, graph, {"title": name, **values} if name not in {"", "-"} else values).encode()


def _picture(options: argparse.Namespace) -> bytes:
    """Return the graph as a picture, folded where it is too large to read."""
    from gradir import api, registry

    values = exporter_values(options)
    registry.exporter_options("dot", values, "the picture")
    passes = chosen_passes(options)
    whole = graph_to_draw(options, "dot")
    graph = passes(whole)
    if graph is whole:
        graph, values = _readable(graph, values)
    return api.render(graph, options.to, seconds=options.seconds, **values)


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
