"""``gradir validate``: check a GIR document."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gradir import files
from gradir.cli.parser import Parser, add_input
from gradir.cli.report import one_line, report
from gradir.errors import GradirError

if TYPE_CHECKING:
    from gradir.ir import Graph

DESCRIPTION = "Check that each file is a valid GIR document, and exit with 2 if one is not."
EXAMPLES = ("gradir validate model.gir", "gradir validate --strict *.gir", "gradir validate --ranks run.*.gir")
DETAILS = """\
Fields and types are those of the schema and no others, no key occurs twice, ids are unique, and edges run in
topological order between nodes that exist.
"""


def add_options(parser: Parser) -> None:
    add_input(parser, "files", nargs="+")
    group = parser.group("input")
    group.add_argument("--strict", action="store_true", help="also require the canonical bytes")
    group.add_argument("--ranks", action="store_true", help="also require that the files are the ranks of one run")


def run(options: argparse.Namespace) -> int:
    verdicts = [_is_valid(path, strict=options.strict) for path in options.files]
    if not all(verdicts):
        return 2
    if options.ranks:
        from gradir.distributed.reading import read_ranks

        # It raises if the files are not those of one run.
        read_ranks(options.files)
    return 0


def _is_valid(path: str, *, strict: bool) -> bool:
    try:
        with files.naming(path):
            count = len(_check_document(files.read_bytes(path), strict=strict).nodes)
    except GradirError as error:
        report(str(error))
        return False
    files.write_bytes("-", f"{one_line(files.name_of(path))}: valid, {count:,} nodes\n".encode())
    return True


def _check_document(data: bytes, *, strict: bool) -> Graph:
    from gradir.codecs.codec import check_known, decode
    from gradir.codecs.strict import check_canonical, check_keys

    # Canonical bytes have no repeated and no unknown keys.
    if strict:
        return check_canonical(data)
    graph = decode(data)
    check_keys(data)
    check_known(data)
    return graph
