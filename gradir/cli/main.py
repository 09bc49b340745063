"""Parse the command line, run one subcommand, turn errors into one line and an exit status."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Final, NoReturn

from gradir.errors import GradirError, GradirWarning
from gradir.version import __version__

__all__ = ["main", "report"]

_COMMANDS: Final = (
    "capture",
    "export",
    "view",
    "summary",
    "diff",
    "patch",
    "check",
    "info",
    "validate",
    "convert",
    "exporters",
    "git",
)
_TROUBLE: Final = 2
_INTERRUPTED: Final = 130
_DEBUG: Final = "GRADIR_DEBUG"

_EPILOG: Final = """\
examples:
  gradir capture examples/gpt.py:loss -o model.gir
  gradir export model.gir --to mermaid --depth 2
  gradir diff main.gir branch.gir

exit status: 0 done (diff: no difference), 1 diff found a difference, 2 trouble
"""


class _Parser(argparse.ArgumentParser):
    """Reports a wrong command line in one line, as every other error."""

    def error(self, message: str) -> NoReturn:
        self.exit(_TROUBLE, f"gradir: {message}; see {self.prog} --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    warnings.showwarning = _show_warning_with(warnings.showwarning)  # type: ignore[assignment]
    try:
        options = _parser(arguments).parse_args(arguments)
        # Whether the process ends with this command, and nothing else will want its streams.
        options.is_process = arguments is None
        status: int = options.run(options)
        sys.stdout.flush()
    except GradirError as error:
        report(str(error))
        return _TROUBLE
    except BrokenPipeError:
        # The reader has what it wanted. Python would complain again when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _TROUBLE
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception as error:
        if os.environ.get(_DEBUG):
            raise
        name = type(error).__name__
        report(f"internal error, {name}: {error}; {_DEBUG}=1 shows where")
        return _TROUBLE
    return status


def _parser(arguments: Sequence[str] | None) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="gradir",
        description="See, keep, compare and explain the autograd graph behind a PyTorch gradient.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"gradir {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    given = list(sys.argv[1:] if arguments is None else arguments)
    # Only the module of the command at hand is imported, unless help has to list them all.
    wanted = [name for name in _COMMANDS if given and given[0] == name] or _COMMANDS
    for name in wanted:
        import_module(f"gradir.cli.{name}_command").register(commands)
    return parser


def report(message: str) -> None:
    """Print one line on standard error."""
    print(f"gradir: {_one_line(message)}", file=sys.stderr)


def _one_line(message: str) -> str:
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in message)


def _show_warning_with(default: object) -> object:
    def show(message: Warning | str, category: type[Warning], *rest: object) -> None:
        if issubclass(category, GradirWarning):
            report(f"warning: {message}")
            return
        default(message, category, *rest)  # type: ignore[operator]

    return show
