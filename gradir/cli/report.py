"""What a command says on standard error."""

from __future__ import annotations

import sys

__all__ = ["report"]


def report(message: str) -> None:
    """Print one line on standard error."""
    # To print, no stream means standard output.
    if sys.stderr is not None:
        print(f"gradir: {_one_line(message)}", file=sys.stderr)


def _one_line(message: str) -> str:
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in message)
