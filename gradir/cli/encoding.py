"""The options of every command that writes a ``.gir`` file."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator

__all__ = ["add_encoding_options"]


class _Choices:
    """Names that are asked for once an option is given, or the help: the codecs take their time to load."""

    def __init__(self, names: Callable[[], Iterable[str]]) -> None:
        self._names = names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())


def add_encoding_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--format`` and ``--compress``."""
    parser.add_argument(
        "--format",
        metavar="NAME",
        choices=_Choices(_formats),
        default="json",
        help="%(choices)s (default: json): json has one node a line, to be read and compared, msgpack a third of its "
        "size or less from some hundred nodes on",
    )
    parser.add_argument(
        "--compress",
        metavar="NAME",
        choices=_Choices(_compressions),
        help="%(choices)s: compress the file; without this option a name that ends in .gz or .zst asks for it",
    )


def _formats() -> Iterable[str]:
    from gradir import codecs

    return codecs.ENCODINGS


def _compressions() -> Iterable[str]:
    from gradir import codecs

    return (*codecs.COMPRESSIONS, "none")
