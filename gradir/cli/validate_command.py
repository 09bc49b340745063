"""``gradir validate``: is this a GIR document."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from gradir.cli.report import one_line, report
from gradir.errors import FormatError, GradirError

__all__ = ["DESCRIPTION", "HELP", "add_options", "run"]

HELP = "check that files are valid GIR"
DESCRIPTION = (
    "Check that each file is a GIR document: fields and types as in the schema and no others, no key "
    "twice, ids unique, and edges, in topological order, between nodes that exist. Exit status 2 when one is not."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument("files", metavar="FILE", nargs="+", help="a .gir file; '-' is stdin")
    parser.add_argument(
        "--strict", action="store_true", help="also demand the canonical bytes, as gradir itself writes them"
    )


def run(options: argparse.Namespace) -> int:
    """Check every file; report each that is not valid."""
    check = _check_strictly if options.strict else _check
    verdicts = [_is_valid(path, check) for path in options.files]
    return 0 if all(verdicts) else 2


def _is_valid(path: str, check: Callable[[bytes], int]) -> bool:
    from gradir import files

    try:
        count = check(files.read_bytes(path))
    except FormatError as error:
        report(str(error.moved(file=path)))
        return False
    except GradirError as error:
        report(str(error))
        return False
    files.write_bytes("-", f"{one_line(path)}: valid, {count:,} nodes\n".encode())
    return True


def _check(data: bytes) -> int:
    from gradir import codecs
    from gradir.codecs.strict import check_keys
    from gradir.codecs.unknown import check_known

    graph = codecs.decode(data)
    check_keys(data)
    check_known(data)
    return len(graph.nodes)


def _check_strictly(data: bytes) -> int:
    from gradir.codecs.strict import check_canonical

    return len(check_canonical(data).nodes)
