"""What the commands that compare have in common: the options, and showing a diff."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradir.diff.model import Diff

__all__ = ["add_comparison_options", "show"]


def add_comparison_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how a diff is made and shown."""
    parser.add_argument("--format", choices=["text", "json"], default="text", help="how to show it (default: text)")
    parser.add_argument("--color", choices=["auto", "always", "never"], default="auto", help="colour of the text form")


def show(found: Diff, options: argparse.Namespace) -> None:
    """Print a diff."""
    from gradir import files

    files.write_bytes("-", _shown(found, options).encode())


def _shown(found: Diff, options: argparse.Namespace) -> str:
    if options.format == "json":
        import msgspec

        return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"
    from gradir.diff.text import ANSI, NO_COLOUR, render_text

    return render_text(found, palette=ANSI if _wants_colour(options.color) else NO_COLOUR)


def _wants_colour(choice: str) -> bool:
    if choice != "auto":
        return choice == "always"
    # https://no-color.org
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
