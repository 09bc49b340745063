"""What commands have in common that write the graph of one file to another: nothing is lost unasked."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gradir.errors import FormatError, NewerFormatError

if TYPE_CHECKING:
    from gradir.ir import Graph

__all__ = ["add_lossy_option", "load_to_rewrite"]


def add_lossy_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--lossy``."""
    parser.add_argument(
        "--lossy",
        action="store_true",
        help="write without what this gradir does not know in the file: keys that are misspelt, or of a newer version",
    )


def load_to_rewrite(path: str, *, lossy: bool) -> Graph:
    """The graph of a file of which all is known, or with ``lossy`` of any.

    Raises:
        GradirError: the file cannot be read.
        FormatError: it holds no graph, or what would be lost.
        NewerFormatError: it is of a newer version, of which a part would be lost.
    """
    from gradir import api, codecs, files
    from gradir.codecs.unknown import check_known

    if lossy:
        return api.load(path)
    data = files.read_bytes(path)
    name = files.name_of(path)
    try:
        graph = codecs.decode(data)
    except FormatError as error:
        raise error.moved(file=name) from error
    if graph.read_from:
        raise NewerFormatError(
            f"GIR version {graph.read_from} is newer than this gradir, and what is new in it would be lost",
            file=name,
            advice="upgrade gradir, or lose it with --lossy",
        )
    try:
        check_known(data)
    except FormatError as error:
        raise error.moved(file=name, advice="it would be lost: correct it, or lose it with --lossy") from error
    return graph
