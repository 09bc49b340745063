"""``gradir export``: from a ``.gir`` file to any format."""

from __future__ import annotations

import argparse

from gradir.cli.pass_options import add_pass_options, chosen_passes
from gradir.errors import ExportError

__all__ = ["register"]

_EPILOG = """\
examples:
  gradir export model.gir --to mermaid --depth 2 -o model.mmd
  gradir export model.gir --to dot -O show_saved=true | dot -Tsvg -o model.svg
  gradir export model.gir --to tree --drop accumulate_grad --hide-shape-ops --rollup
  gradir export model.gir --to mermaid --focus 'h.3.attn' --hops 2

'gradir exporters' lists the formats and their options.
"""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "export",
        help="export a graph to DOT, Mermaid, a tree, text …",
        description="Write a captured graph in another format.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE", help="a .gir file; '-' is stdin")
    parser.add_argument("--to", metavar="NAME", required=True, help="the exporter")
    parser.add_argument("-o", "--output", metavar="FILE", default="-", help="where to write; '-' (default) is stdout")
    parser.add_argument(
        "-O", "--option", metavar="KEY=VALUE", action="append", default=[], help="an option of the exporter"
    )
    add_pass_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Load, apply passes, export, write."""
    from gradir import api, files, registry

    # The names are checked first: loading a large file only to learn of a typing error takes a while.
    values = dict(_key_value(text) for text in options.option)
    registry.exporter_options(options.to, values)
    passes = chosen_passes(options)
    graph = passes(api.load(options.file))
    files.write_bytes(options.output, registry.export(options.to, graph, values).encode())
    return 0


def _key_value(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ExportError(f"-O {text!r}: expected KEY=VALUE")
    return key.replace("-", "_"), value
