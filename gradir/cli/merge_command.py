"""``gradir merge``: merge two edits of a graph, as git merges two branches."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from gradir import api, files
from gradir.cli.parser import Parser, add_output
from gradir.cli.report import one_line, report

if TYPE_CHECKING:
    from gradir.ir import Graph

DESCRIPTION = "Merge two edits of one graph, node by node and field by field."

EXAMPLES = (
    "gradir merge base.gir ours.gir theirs.gir -o merged.gir",
    "gradir merge :1:model.gir :2:model.gir :3:model.gir  # in a conflict of git",
)

DETAILS = """\
The result has the encoding of OURS. A merged graph is a proposal: it says what the merged program should give, and its
head says "merged". Capture the program again once its code is merged, or let 'gradir check' compare.

'gradir git install' makes git merge .gir files in this way. Where both sides changed the same thing in different ways,
there is a conflict: gradir reports each side's changes by module and writes nothing, so the file stays as OURS has it.
Merge the code, then capture it again, or take the graph of one side:
  gradir capture train.py:loss -o model.gir && git add model.gir
  git checkout --theirs model.gir && git add model.gir

Exit status: 0 merged, 1 a conflict, 2 trouble.
"""


def add_options(parser: Parser) -> None:
    about = "the .gir file before both edits, '-' (standard input) or REVISION:FILE"
    parser.add_argument("base", metavar="BASE", help=about)
    parser.add_argument("ours", metavar="OURS", help="the file with our edit")
    parser.add_argument("theirs", metavar="THEIRS", help="the file with their edit")
    parser.add_argument("name", metavar="NAME", nargs="?", help="name of the file in messages (default: OURS)")
    add_output(parser)


def run(options: argparse.Namespace) -> int:
    from msgspec.structs import replace

    from gradir import codecs
    from gradir.cli.suffixes import check_graph_name
    from gradir.diffs.merging import merge_graphs
    from gradir.git.repository import side
    from gradir.ir import Graph
    from gradir.ir.head import MERGED

    check_graph_name(options.output)
    sides = [side(word) for word in (options.base, options.ours, options.theirs)]
    name = options.name or files.name_of(sides[1].name)
    labels = [each.name for each in sides]
    if options.name:
        labels = [f"{name} ({label})" for label in ("base", "ours", "theirs")]
    base, ours, theirs = (each.blob() if each.revision else files.read_bytes(each.path) for each in sides)
    # If both sides added the file, git passes an empty base.
    before = _decode_side(base, labels[0]) if base else Graph.of([])
    graphs = before, _decode_side(ours, labels[1]), _decode_side(theirs, labels[2])
    found = merge_graphs(*graphs)
    if found.graph is None:
        from gradir.review.text import render_conflicts

        report(f"{name}: in conflict, and left as ours is: merge the code and capture it again (gradir merge --help)")
        for line in render_conflicts(found.conflicts, *graphs).splitlines():
            print(one_line(line), file=sys.stderr)
        return 1
    encoding, graph, made = codecs.encoding_of(codecs.decompress(ours)), found.graph, found.graph.producer
    # Nobody has run a merged program yet, unless the graph is that of one side.
    if not any(graph is side for side in graphs):
        graph = replace(graph, producer=replace(made, options={**made.options, MERGED: True}))
    with files.naming(name):
        data = codecs.encode(graph, encoding, codecs.compression_of(ours))
    files.write_bytes(options.output, data)
    report(f"{name}: both edits merged, as a proposal: capture the merged program again, or run gradir check on it")
    return 0


def _decode_side(data: bytes, name: str) -> Graph:
    with files.naming(name):
        return api.loads(data)
