"""``gradir patch``: apply a diff to a ``.gir`` file."""

from __future__ import annotations

import argparse

from gradir import api, files
from gradir.cli.parser import Parser, add_input, add_output
from gradir.cli.suffixes import add_encoding_options, add_lossy_option, check_graph_name, load_to_rewrite
from gradir.errors import GraphError, PatchError

DESCRIPTION = "Apply a diff to the graph that it starts from, or undo it with --reverse."

EXAMPLES = (
    "gradir patch old.gir change.json -o same-as-new.gir",
    "gradir patch new.gir change.json --reverse -o same-as-old.gir",
    "gradir diff old.gir new.gir --format json > change.json",
)


def add_options(parser: Parser) -> None:
    add_input(parser)
    parser.add_argument("diff", metavar="DIFF", help="JSON diff of 'gradir diff --format json'")
    parser.group("input").add_argument("-R", "--reverse", action="store_true", help="undo the diff")
    add_output(parser)
    add_encoding_options(parser)
    add_lossy_option(parser)


def run(options: argparse.Namespace) -> int:
    from gradir.diffs.diff_json import decode

    check_graph_name(options.output)
    with files.naming(options.diff):
        found = decode(files.read_bytes(options.diff))
    graph = load_to_rewrite(options.file, lossy=options.lossy)
    with files.prefixing(files.name_of(options.file), GraphError, PatchError):
        changed = api.unpatch(graph, found) if options.reverse else api.patch(graph, found)
    api.save(changed, options.output, format=options.format, compress=options.compress, lossy=options.lossy)
    return 0
