"""The options by which a rank is captured without the others."""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

from gradir.errors import SpecError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from gradir.cli.parser import Parser

__all__ = ["add_rank_options", "check_ranks", "standing_in"]

_MOST: Final = 10_000_000
"""More processes than anybody has, of which lists are made."""


def add_rank_options(parser: Parser) -> None:
    """Add the options that say which ranks, of how many."""
    group = parser.group("distributed")
    which = group.add_mutually_exclusive_group()
    which.add_argument(
        "--rank",
        metavar="R",
        dest="ranks",
        type=_rank,
        help="with --world, capture as rank R, in one process and without data",
    )
    which.add_argument(
        "--ranks",
        dest="ranks",
        choices=("sample", "all"),
        help="with --world, capture all ranks, or a sample that covers the mesh",
    )
    group.add_argument("--world", metavar="W", type=_world, help="number of ranks, with --rank or --ranks")


def check_ranks(options: argparse.Namespace) -> None:
    """Refuse what does not say a rank of how many; what is captured so has no data.

    Raises:
        SpecError: one of the options is missing, or there is no such rank.
    """
    ranks, world = options.ranks, options.world
    if (ranks is None) != (world is None):
        raise SpecError(
            f"--world {world} needs --rank R, or --ranks sample or all: which of them to capture"
            if ranks is None
            else f"--rank{'' if isinstance(ranks, int) else 's'} {ranks} needs --world W: how many ranks there are"
        )
    if world is None:
        return
    if isinstance(ranks, int) and ranks >= world:
        raise SpecError(f"--rank {ranks}: of --world {world} the last rank is {world - 1}")
    options.fake = True


def standing_in(options: argparse.Namespace) -> AbstractContextManager[None]:
    """Let the program inside be the rank that was named, if one was."""
    if options.world is None:
        return nullcontext()
    from gradir import capturing

    return capturing.standing_in(options.ranks, options.world, options.frontend)


def _rank(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) >= _MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of a rank: 0 is the first")
    return int(text)


def _world(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or not 0 < int(text) <= _MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of ranks")
    return int(text)
