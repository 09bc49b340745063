"""``gradir convert``: change the encoding of a ``.gir`` file."""

from __future__ import annotations

import argparse

from gradir import api
from gradir.cli.parser import Parser, add_input
from gradir.cli.suffixes import add_encoding_options, add_lossy_option, check_graph_name, load_to_rewrite

DESCRIPTION = "Write a .gir file again, in JSON or MessagePack, compressed or not, in canonical form."

EXAMPLES = (
    "gradir convert model.gir packed.gir --format msgpack",
    "gradir convert model.gir model.gir.gz",
    "gradir convert packed.gir model.gir",
    "gunzip -c old.gir.gz | gradir convert - - --format msgpack > packed.gir",
)


def add_options(parser: Parser) -> None:
    add_input(parser, "source")
    parser.add_argument("target", metavar="TARGET", help="where to write; '-' is standard output")
    add_encoding_options(parser)
    add_lossy_option(parser)


def run(options: argparse.Namespace) -> int:
    check_graph_name(options.target)
    graph = load_to_rewrite(options.source, lossy=options.lossy)
    api.save(graph, options.target, format=options.format, compress=options.compress, lossy=options.lossy)
    return 0
