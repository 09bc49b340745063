"""``gradir patch``: apply a diff to a ``.gir`` file."""

from __future__ import annotations

import argparse

from gradir.cli.encoding import add_encoding_options
from gradir.cli.rewriting import add_lossy_option, load_to_rewrite
from gradir.errors import FormatError, GraphError, PatchError

__all__ = ["DESCRIPTION", "EPILOG", "HELP", "add_options", "run"]

HELP = "apply a diff to a .gir file"
DESCRIPTION = "Apply a diff to the graph that it starts from; with --reverse, undo it."

EPILOG = """\
examples:
  gradir diff old.gir new.gir --format json > change.json
  gradir patch old.gir change.json -o same-as-new.gir
  gradir patch new.gir change.json --reverse -o same-as-old.gir
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("file", metavar="FILE", help="a .gir file; '-' is stdin")
    parser.add_argument("diff", metavar="DIFF", help="what 'gradir diff --format json' wrote")
    parser.add_argument("-R", "--reverse", action="store_true", help="from the second graph to the first")
    parser.add_argument("-o", "--output", metavar="FILE", default="-", help="where to write; '-' (default) is stdout")
    add_encoding_options(parser)
    add_lossy_option(parser)


def run(options: argparse.Namespace) -> int:
    """Load, patch, save."""
    from gradir import api, files
    from gradir.diffs.diff_json import decode

    try:
        found = decode(files.read_bytes(options.diff))
    except FormatError as error:
        raise error.moved(file=options.diff) from error
    graph = load_to_rewrite(options.file, lossy=options.lossy)
    try:
        changed = api.unpatch(graph, found) if options.reverse else api.patch(graph, found)
    except (GraphError, PatchError) as error:
        raise type(error)(f"{options.file}: {error}") from error
    api.save(changed, options.output, format=options.format, compress=options.compress, lossy=options.lossy)
    return 0
