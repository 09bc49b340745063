"""``gradir summary``: the layer table of a ``.gir`` file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gradir.cli.parser import add_input, add_output
from gradir.cli.plugin_options import add_option, given_options, help_of, spelled
from gradir.cli.report import is_terminal

if TYPE_CHECKING:
    from gradir.cli.parser import Parser

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


def add_options(parser: Parser) -> None:
    """Add what the command takes."""
    add_input(parser)
    parser.add_later(lambda: _add_declared(parser))
    add_option(parser, "exporter 'summary'")
    add_output(parser)


def _add_declared(parser: Parser) -> None:
    """Make an option of each that the exporter declares."""
    from gradir import registry
    from gradir.options import option_infos

    for info in option_infos(registry.exporter(_EXPORTER).options):
        parser.add_argument(spelled(info.name), metavar=info.takes, default=argparse.SUPPRESS, help=help_of(info))


def run(options: argparse.Namespace) -> int:
    """Load, export, write."""
    from gradir import api, files, registry

    files.check_apart(options.file, options.output)
    declared = registry.exporter(_EXPORTER).options.__struct_fields__
    words = {name: getattr(options, name) for name in declared if hasattr(options, name)}
    values = {**_as_wide_as_the_terminal(options), **given_options(options), **words}
    # The values are checked first: loading a large file only to learn of a typing error takes a while.
    registry.exporter_options(_EXPORTER, values)
    graph = api.load(options.file)
    files.write_bytes(options.output, registry.export(_EXPORTER, graph, values).encode())
    return 0


def _as_wide_as_the_terminal(options: argparse.Namespace) -> dict[str, str]:
    """The width of the table where it is shown and not written; of a terminal that tells none, 80 places."""
    if options.output != "-" or not is_terminal():
        return {}
    import shutil

    return {"width": str(max(40, shutil.get_terminal_size().columns))}
