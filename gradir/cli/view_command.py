"""``gradir view``: open a graph as a page in a browser, or as a picture."""

from __future__ import annotations

import argparse
import os
from typing import Final

from gradir import files
from gradir.cli.export_command import add_drawing_options, export_graph
from gradir.cli.parser import Parser
from gradir.cli.sources import add_graph_argument, find_source, report_raised
from gradir.cli.suffixes import check_suffix, find_format, find_suffix
from gradir.errors import ExportError
from gradir.pictures import PICTURES

DESCRIPTION = "Open a graph in a browser, as a page to click through and search or as a picture."

EXAMPLES = (
    "gradir view train.py:loss",
    "gradir view model.gir --overlay gradients.json",
    "gradir view net.py:Net --input 'float32[8,3,32,32]' --graph forward",
    "gradir view model.gir -o model.html  # write the page, open nothing",
    "gradir view model.gir --to svg --depth 2 -O direction=LR -O theme=dark",
    "gradir view model.gir --to svg --focus h.3.attn --hops 2",
)

DETAILS = """\
A picture shows layers, and one of more than 150 nodes is made small enough to read: see 'gradir help export'. Where
there is no browser, gradir prints the path of the file.

If a parameter of a program gets no gradient, gradir runs the program a second time for the page, to record where it is
lost. 'gradir export -o page.html' does so too.

Exit status: 0 done, 1 the program raised and the graph ends there, 2 trouble.
"""

_PAGE: Final = "html"


def add_options(parser: Parser) -> None:
    add_graph_argument(parser)
    output = parser.group("output")
    output.add_argument("--to", choices=(_PAGE, *PICTURES), help="page or picture (default: by the suffix of -o)")
    output.add_argument("-o", "--output", metavar="FILE", help="write to FILE ('-': standard output), open nothing")
    add_drawing_options(parser)


def run(options: argparse.Namespace) -> int:
    source = find_source(options.file)
    path = None if options.output is None else files.Located(options.output)
    if options.output not in {None, "-"}:
        options.to = options.to or find_format(options.output)
        if options.to not in {_PAGE, *PICTURES}:
            raise ExportError(f"cannot view {options.to}: use 'gradir export {options.file} -o {options.output}'")
        check_suffix(options.output, options.to, find_suffix(options.to, {}))
        files.check_apart(source.path or "-", options.output)
    options.to = options.to or _PAGE
    data, loaded = export_graph(options, source)
    if path is not None:
        files.write_bytes(path, data)
    else:
        _open(data, options.to)
    return report_raised(loaded)


def _open(data: bytes, suffix: str) -> None:
    import tempfile
    import webbrowser
    from pathlib import Path

    # The browser reads the file after this process ends, so it stays.
    handle, path = tempfile.mkstemp(prefix="gradir-", suffix=f".{suffix}")
    os.close(handle)
    files.write_bytes(path, data)
    if not webbrowser.open(Path(path).as_uri()):
        print(path)
