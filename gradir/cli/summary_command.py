"""``gradir summary``: the layer table of a ``.gir`` file."""

from __future__ import annotations

import argparse

__all__ = ["DESCRIPTION", "EPILOG", "HELP", "add_options", "run"]

HELP = "print the layers with their shapes, parameters and saved bytes"
DESCRIPTION = (
    "Print a row for each module: class, calls, output shape, parameters, and the bytes that its "
    "operations save for backward, every storage counted once."
)

_EXPORTER = "summary"

EPILOG = """\
examples:
  gradir summary model.gir --depth 2
  gradir summary model.gir --style markdown >> REVIEW.md

The same as 'gradir export FILE --to summary -O style=STYLE -O depth=N'.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("file", metavar="FILE", help="a .gir file; '-' is stdin")
    parser.add_argument(
        "--depth", metavar="N", help="leave out the modules below this depth; their numbers still count"
    )
    parser.add_argument("--style", metavar="STYLE", help="table (default), markdown, csv or json")
    parser.add_argument("-o", "--output", metavar="FILE", default="-", help="where to write; '-' (default) is stdout")


def run(options: argparse.Namespace) -> int:
    """Load, export, write."""
    from gradir import api, files, registry

    files.check_apart(options.file, options.output)
    given = {"depth": options.depth, "style": options.style}
    values = {name: value for name, value in given.items() if value is not None}
    # The values are checked first: loading a large file only to learn of a typing error takes a while.
    registry.exporter_options(_EXPORTER, values)
    graph = api.load(options.file)
    files.write_bytes(options.output, registry.export(_EXPORTER, graph, values).encode())
    return 0
