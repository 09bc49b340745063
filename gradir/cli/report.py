"""Write messages on standard error, and a command's output."""

from __future__ import annotations

import argparse
import os
import re
import sys
from typing import Any, Final, TextIO

from gradir import files

# The beginning of gradir's messages.
PREFIX: Final = "gradir: "
# The exit status of an error.
TROUBLE: Final = 2
# The exit status of a command that shows the operations before a program raised.
RAISED: Final = 1
# The exit status that a shell gives a program ended by SIGINT.
INTERRUPTED: Final = 130

# A shell sets argcomplete's variable to ask for the possible next words.
COMPLETING: Final = "_ARGCOMPLETE"

_CI: Final = "GITHUB_ACTIONS"
_READ: Final = frozenset(("text", "markdown", ".txt", ".md"))
# A log of GitHub Actions reads ``::`` at the start of a line, or ``##[`` anywhere, as a command.
_COMMANDS: Final = re.compile(r"(^|[\r\n])((?:\x1b\[[0-9;]*[A-Za-z]|[^!-~\r\n])*):(?=:)|#(?=#\w*\[)")


def is_terminal() -> bool:
    """Return whether standard output is a terminal."""
    return sys.stdout is not None and sys.stdout.isatty()


def add_colour(group: Any) -> None:
    """Add the option that `wants_colour` reads."""
    group.add_argument("--color", choices=["auto", "always", "never"], default="auto", help="colour of the text form")


def wants_colour(options: argparse.Namespace) -> bool:
    """Return whether text is coloured: as chosen, or on a terminal."""
    if options.color != "auto":
        return bool(options.color == "always")
    return options.output == "-" and can_redraw(sys.stdout)


def can_redraw(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal that may get colours and lines that change."""
    if stream is None or not stream.isatty():
        return False
    # https://no-color.org
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def find_columns(options: argparse.Namespace) -> int | None:
    """Return the number of columns of the terminal that shows the output, or ``None`` for another output."""
    if options.output != "-" or not is_terminal():
        return None
    # shutil loads all compressions.
    import shutil

    return shutil.get_terminal_size().columns


def report(message: str) -> None:
    """Print one line on standard error."""
    # print() takes None for standard output.
    if sys.stderr is not None:
        print(f"{PREFIX}{one_line(message)}", file=sys.stderr)


def one_line(message: str) -> str:
    """Return a message on one line, without control characters and commands of CI logs."""
    return escape_commands("".join(char if char.isprintable() else repr(char)[1:-1] for char in message))


def write_output(path: str | os.PathLike[str], data: bytes, form: str = "text") -> None:
    """Write a command's output to a file or to standard output, without commands for a CI log."""
    # Logs contain text for people; JSON and pictures keep their bytes.
    is_log = form in _READ and files.is_stdout(os.fspath(path)) and not files.is_regular_stdout()
    files.write_bytes(path, escape_commands(data.decode()).encode() if is_log else data)


def escape_commands(text: str) -> str:
    """Return a text in which a CI log finds no command."""
    if not os.environ.get(_CI):
        return text
    # The number of the last character replaces it, so that the line stays readable.
    return _COMMANDS.sub(lambda found: f"{found[0][:-1]}\\x{ord(found[0][-1]):x}", text)
