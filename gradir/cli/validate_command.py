"""``gradir validate``: is this a GIR document."""

from __future__ import annotations

import argparse
import sys

from gradir.errors import FormatError, GradirError

__all__ = ["register"]


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "validate",
        help="check that files are valid GIR",
        description="Check that each file is a GIR document: fields and types as in the schema, no key twice, ids "
        "unique, and edges, in topological order, between nodes that exist. Exit status 2 when one is not.",
    )
    parser.add_argument("files", metavar="FILE", nargs="+", help="a .gir file; '-' is stdin")
    parser.add_argument(
        "--strict", action="store_true", help="also demand the canonical bytes, as gradir itself writes them"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Check every file; report each that is not valid."""
    from gradir import files
    from gradir.cli.main import report

    check = _check_strictly if options.strict else _check
    failures = 0
    for path in options.files:
        try:
            count = check(files.read_bytes(path))
        except FormatError as error:
            failures += 1
            report(f"{path}: {error}")
        except GradirError as error:
            failures += 1
            report(str(error))
        else:
            print(f"{path}: valid, {count:,} nodes")
            sys.stdout.flush()
    return 2 if failures else 0


def _check(data: bytes) -> int:
    from gradir import codecs

    graph = codecs.decode(data)
    codecs.check_keys(data)
    return len(graph.nodes)


def _check_strictly(data: bytes) -> int:
    from gradir import codecs

    return len(codecs.check_canonical(data).nodes)
