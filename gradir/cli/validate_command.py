"""``gradir validate``: is this a GIR document."""

from __future__ import annotations

import argparse

from gradir.errors import FormatError

__all__ = ["register"]


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "validate",
        help="check that files are valid GIR",
        description="Check that each file is a GIR document whose ids are unique and whose edges, in topological "
        "order, name existing nodes.",
    )
    parser.add_argument("files", metavar="FILE", nargs="+", help="a .gir file; '-' is stdin")
    parser.add_argument(
        "--strict", action="store_true", help="also demand the canonical bytes, as gradir itself writes them"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Check every file; the first invalid one is an error."""
    from gradir import api, files

    for path in options.files:
        data = files.read_bytes(path)
        try:
            graph = api.loads(data)
        except FormatError as error:
            raise FormatError(f"{path}: {error}") from error
        if options.strict and api.dumps(graph) != data:
            raise FormatError(f"{path}: valid, but not in canonical form: load and save it to make it so")
        print(f"{path}: valid, {len(graph.nodes):,} nodes")
    return 0
