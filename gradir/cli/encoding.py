"""The options of every command that writes a ``.gir`` file."""

from __future__ import annotations

import argparse
from typing import Final

__all__ = ["add_encoding_options"]

# Spelled out here: the codecs are not imported to print a help text.
_FORMATS: Final = ("json", "msgpack")
_COMPRESSIONS: Final = ("gzip", "zstd", "none")


def add_encoding_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--format`` and ``--compress``."""
    parser.add_argument(
        "--format",
        choices=_FORMATS,
        default="json",
        help="json (default), one node a line, to be read and compared, or msgpack, a third of its size or less from "
        "some hundred nodes on",
    )
    parser.add_argument(
        "--compress",
        choices=_COMPRESSIONS,
        help="compress the file; without this option a name that ends in .gz or .zst asks for it",
    )
