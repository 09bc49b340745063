"""Parse the command line, run one subcommand, turn errors into one line and an exit status."""

from __future__ import annotations

import argparse
import atexit
import errno
import gc
import io
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from importlib import import_module
from typing import Final

from gradir.cli.parser import COMPLETING, TROUBLE, Parser
from gradir.cli.progress import is_wanted, progress_shown
from gradir.cli.report import report
from gradir.errors import GradirError, GradirWarning
from gradir.files import flush_stdout, silence_stdout
from gradir.version import __version__

__all__ = ["COMMANDS", "main"]

COMMANDS: Final = (
    "capture",
    "run",
    "export",
    "view",
    "summary",
    "diff",
    "patch",
    "merge",
    "check",
    "explain",
    "ranks",
    "info",
    "validate",
    "convert",
    "exporters",
    "debug",
    "git",
    "completion",
)
_VERSION: Final = "--version"
_INTERRUPTED: Final = 130
_UNREAD: Final = 141
"""What a shell reports of a program that died of SIGPIPE, as diff(1) does: neither a difference nor trouble."""
_FULL: Final = (errno.ENOSPC, errno.EFBIG, errno.EIO)
_DEBUG: Final = "GRADIR_DEBUG"

_EPILOG: Final = """\
examples:
  gradir capture examples/gpt.py:loss -o model.gir
  gradir export model.gir --to mermaid --depth 2
  gradir diff main.gir branch.gir

exit status: 0 done, 1 diff found a difference, merge a conflict, explain an error, or a forward ends where it raised,
2 trouble, 130 interrupted
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    warnings.showwarning = _show_warning_with(warnings.showwarning)  # type: ignore[assignment]
    _print_anything()
    # Where the process ends with this command, nothing else will want its streams, nor its memory.
    is_process = arguments is None
    given = list(sys.argv[1:] if arguments is None else arguments)
    if is_process:
        # Python looks for cycles once more as it ends, which takes longer than most commands have worked.
        atexit.register(gc.freeze)
    try:
        status = _run(given, is_process=is_process)
    except (GradirError, GradirWarning) as error:
        # A warning is raised where the interpreter was told to take warnings for errors.
        report(str(error))
        return TROUBLE
    except BrokenPipeError:
        # The reader has what it wanted.
        silence_stdout()
        return _UNREAD
    except KeyboardInterrupt:
        report("interrupted")
        return _INTERRUPTED
    except Exception as error:
        if os.environ.get(_DEBUG):
            raise
        if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
            # From a help text or another print: all else that is written goes through gradir.files.
            silence_stdout()
            report(f"standard output: cannot be written: {error.strerror}")
            return TROUBLE
        name = type(error).__name__
        report(f"internal error, {name}: {error}; {_DEBUG}=1 shows where")
        return TROUBLE
    return status


def _run(arguments: Sequence[str], *, is_process: bool) -> int:
    known = argparse.Namespace(arguments=arguments, is_process=is_process)
    try:
        if COMPLETING in os.environ:
            from gradir.cli.completion_command import complete

            # The words are there; the arguments are not.
            complete(_parser(os.environ.get("COMP_LINE", "").split()[1:]))
        options = _parser(arguments).parse_args(arguments, known)
        with progress_shown() if is_wanted() else nullcontext():
            status: int = options.run(options)
    except GradirError as error:
        if error.__cause__ is not None or getattr(known, "traceback", False):
            from gradir.cli.program_errors import show_cause

            show_cause(error, whole=getattr(known, "traceback", False))
        raise
    except SystemExit:
        flush_stdout()
        raise
    flush_stdout()
    return status


def _print_anything() -> None:
    """Escape what the encoding of standard output lacks, as standard error does, and do not fail."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    whole = Parser(
        prog="gradir",
        description="See, keep, compare and explain the autograd graph behind a gradient.",
        epilog=_EPILOG,
    )
    whole.add_argument(_VERSION, action="version", version=f"gradir {__version__}")
    commands = whole.add_subparsers(prog=whole.prog, metavar="COMMAND", required=True)
    for name in _needed(given):
        command = import_module(f"gradir.cli.{name}_command")
        epilog = getattr(command, "EPILOG", None)
        parser = commands.add_parser(name, help=command.HELP, description=command.DESCRIPTION, epilog=epilog)
        parser.set_defaults(run=getattr(command, "run", None))
        command.add_options(parser)
    return whole


def _needed(given: Sequence[str]) -> Sequence[str]:
    """The commands whose options have to be known; each takes a module to import."""
    first = given[0] if given else ""
    if first == _VERSION:
        # Its action is the first to run, and ends the program.
        return ()
    return (first,) if first in COMMANDS else COMMANDS


def _show_warning_with(default: object) -> object:
    def show(message: Warning | str, category: type[Warning], *rest: object) -> None:
        if issubclass(category, GradirWarning):
            report(f"warning: {message}")
            return
        default(message, category, *rest)  # type: ignore[operator]

    return show
