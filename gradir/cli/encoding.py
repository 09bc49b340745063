"""Share the options of commands that write ``.gir`` files, and read files to rewrite without loss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gradir.errors import NewerFormatError

if TYPE_CHECKING:
    from gradir.cli.parser import Parser
    from gradir.ir import Graph


class _Choices:
    """Load choices only for the option or the help, since codecs load slowly."""

    def __init__(self, declared: str, *more: str) -> None:
        self._declared, self._more = declared, more

    def __iter__(self) -> Iterator[str]:
        from gradir import codecs

        return iter((*getattr(codecs, self._declared), *self._more))


def add_encoding_options(parser: Parser) -> None:
    """Add ``--format`` and ``--compress``."""
    group = parser.group("output")
    group.add_argument(
        "--format",
        metavar="NAME",
        choices=_Choices("ENCODINGS"),
        default="json",
        help="encoding, one of %(choices)s (default: json)",
    )
    group.add_argument(
        "--compress",
        metavar="NAME",
        choices=_Choices("COMPRESSIONS", "none"),
        help="%(choices)s (default: by the suffix of the file)",
    )


def add_lossy_option(parser: Parser) -> None:
    """Add ``--lossy``."""
    parser.group("advanced").add_argument(
        "--lossy", action="store_true", help="drop what this gradir does not know in the file"
    )


def load_to_rewrite(path: str, *, lossy: bool) -> Graph:
    """Return the graph of a file without unknown keys, or with ``lossy`` of any file."""
    from gradir import api, codecs, files
    from gradir.codecs.codec import check_known

    if lossy:
        return api.load(path)
    data = files.read_bytes(path)
    with files.naming(path):
        graph = codecs.decode(data)
    if graph.read_from:
        raise NewerFormatError(
            f"GIR version {graph.read_from} is newer than this gradir, and what is new in it would be lost",
            file=files.name_of(path),
            advice="upgrade gradir, or lose it with --lossy",
        )
    with files.naming(path, "it would be lost: correct it, or lose it with --lossy"):
        check_known(data)
    return graph
