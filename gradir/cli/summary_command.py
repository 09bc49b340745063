"""``gradir summary``: print the layer table of a graph."""

from __future__ import annotations

import argparse

from gradir import files, registry
from gradir.cli.parser import Parser, add_output
from gradir.cli.plugin_options import add_option, make_help, read_options, spell_option
from gradir.cli.report import find_columns, write_output
from gradir.cli.sources import add_graph_argument, find_source, load, report_raised
from gradir.cli.suffixes import check_no_source
from gradir.options import option_infos

DESCRIPTION = "Print a row for each module: class, calls, output shape, parameters and saved bytes."

_EXPORTER = "summary"
_NARROWEST = 40

EXAMPLES = (
    "gradir summary train.py:loss",
    "gradir summary model.gir --depth 2",
    "gradir summary model.gir --style markdown >> REVIEW.md",
)

DETAILS = """\
Saved bytes are those that the operations of a module save for backward. Each storage counts once. This command is short
for 'gradir export GRAPH --to summary -O style=STYLE -O depth=N'.

Exit status: 0 done, 1 the program raised and the graph ends there, 2 trouble.
"""


def add_options(parser: Parser) -> None:
    add_graph_argument(parser)

    def add_declared() -> None:
        group = parser.group("what to show")
        for info in option_infos(registry.exporter(_EXPORTER).options):
            about = make_help(info)
            group.add_argument(spell_option(info.name), metavar=info.takes, default=argparse.SUPPRESS, help=about)

    parser.add_later(add_declared)
    add_option(parser.group("advanced"), "exporter 'summary'")
    add_output(parser)


def run(options: argparse.Namespace) -> int:
    source, path = find_source(options.file), files.Located(options.output)
    check_no_source(options.output)
    files.check_apart(source.path or "-", options.output)
    declared = registry.exporter(_EXPORTER).options.__struct_fields__
    words = {name: getattr(options, name) for name in declared if hasattr(options, name)}
    width = find_columns(options)
    default = {} if width is None else {"width": str(max(_NARROWEST, width))}
    values = {**default, **read_options(options), **words}
    # Loading a graph may take long, so check the options first.
    registry.exporter_options(_EXPORTER, values)
    loaded = load(options, source)
    write_output(path, registry.export(_EXPORTER, loaded.graph, values).encode())
    return report_raised(loaded)
