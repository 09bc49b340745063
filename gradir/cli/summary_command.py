"""``gradir summary``: the layer table of a ``.gir`` file."""

from __future__ import annotations

import argparse

from gradir.cli.parser import Parser, add_output
from gradir.cli.plugin_options import add_option, given_options, help_of, spelled
from gradir.cli.report import columns, write_shown
from gradir.cli.sources import add_graph_argument, load, refuse_program_options, source_of, status_of
from gradir.cli.suffixes import check_no_source

DESCRIPTION = "Print a row for each module: class, calls, output shape, parameters and saved bytes."

_EXPORTER = "summary"
_NARROWEST = 40

EXAMPLES = (
    "gradir summary train.py:loss",
    "gradir summary model.gir --depth 2",
    "gradir summary model.gir --style markdown >> REVIEW.md",
)

DETAILS = """\
Saved bytes are what the operations of a module keep for backward, every storage counted once. This command is short
for 'gradir export GRAPH --to summary -O style=STYLE -O depth=N'.

Exit status: 0 done, 1 the program raised and the graph ends there, 2 trouble.
"""


def add_options(parser: Parser) -> None:
    add_graph_argument(parser)

    def add_declared() -> None:
        from gradir import registry
        from gradir.options import option_infos

        group = parser.group("what to show")
        for info in option_infos(registry.exporter(_EXPORTER).options):
            group.add_argument(spelled(info.name), metavar=info.takes, default=argparse.SUPPRESS, help=help_of(info))

    parser.add_later(add_declared)
    add_option(parser.group("advanced"), "exporter 'summary'")
    add_output(parser)


def run(options: argparse.Namespace) -> int:
    from gradir import files, registry

    source, path = source_of(options.file), files.Located(options.output)
    check_no_source(options.output)
    files.check_apart(source.path or "-", options.output)
    declared = registry.exporter(_EXPORTER).options.__struct_fields__
    words = {name: getattr(options, name) for name in declared if hasattr(options, name)}
    width = columns(options)
    shown = {} if width is None else {"width": str(max(_NARROWEST, width))}
    values = {**shown, **given_options(options), **words}
    # The values are checked first: loading a large file only to learn of a typing error takes a while.
    registry.exporter_options(_EXPORTER, values)
    if not source.is_program:
        refuse_program_options(options, source.word)
    loaded = load(options, source)
    write_shown(path, registry.export(_EXPORTER, loaded.graph, values).encode())
    return status_of(loaded)
