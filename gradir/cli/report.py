"""What a command says on standard error, and whether somebody looks at its output."""

from __future__ import annotations

import sys
from typing import Final

__all__ = ["COMPLETING", "TROUBLE", "is_terminal", "one_line", "report"]

TROUBLE: Final = 2
"""The exit status where something is wrong."""

COMPLETING: Final = "_ARGCOMPLETE"
"""The variable by which a shell asks for what may come next: the name is argcomplete's."""


def is_terminal() -> bool:
    """Whether somebody reads standard output as it is written."""
    return sys.stdout is not None and sys.stdout.isatty()


def report(message: str) -> None:
    """Print one line on standard error."""
    # To print, no stream means standard output.
    if sys.stderr is not None:
        print(f"gradir: {one_line(message)}", file=sys.stderr)


def one_line(message: str) -> str:
    """A message on one line, whatever names and texts of a user it holds, and without what acts on a terminal."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in message)
