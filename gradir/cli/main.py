"""Parse the command line, run one subcommand, turn errors into one line and an exit status."""

from __future__ import annotations

import atexit
import errno
import gc
import io
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final

from gradir.cli.report import COMPLETING, INTERRUPTED, TROUBLE, can_redraw, report
from gradir.errors import GradirError, GradirWarning, did_you_mean
from gradir.files import flush_stdout, silence_stdout
from gradir.version import __version__

if TYPE_CHECKING:
    from gradir.cli.parser import Parser

# Every command, in the order of the help, with its description. The module is ``gradir.cli.NAME_command``.
COMMANDS: Final[Mapping[str, str]] = {
    "capture": "capture the autograd graph of a program",
    "run": "run a script, capture one backward",
    "export": "write a graph as a picture, page or text",
    "view": "open a graph as a page in a browser",
    "summary": "print layers, parameters and saved bytes",
    "diff": "compare two graphs",
    "patch": "apply a diff to a .gir file",
    "merge": "merge two edits of a .gir file",
    "check": "fail when a graph has changed",
    "watch": "run a script and find problems in its training",
    "explain": "find where a gradient is lost",
    "ranks": "compare the ranks of a distributed run",
    "info": "describe a graph: counts, operations, cuts",
    "validate": "check that files are valid GIR",
    "convert": "write a .gir file in another encoding",
    "exporters": "list the exporters and their options",
    "debug": "print version information for bug reports",
    "git": "show graphs in git diff, merge them",
    "completion": "print the completion script of a shell",
    "help": "explain a command or a topic in full",
}

_HELP: Final = ("-h", "--help")
_VERSION: Final = "--version"
# The exit status that a shell gives a program ended by SIGPIPE, as in diff(1): neither a difference nor trouble.
_UNREAD: Final = 141
# The disk is full or broken, or the file would be larger than allowed.
_FULL: Final = (errno.ENOSPC, errno.EFBIG, errno.EIO)
_DEBUG: Final = "GRADIR_DEBUG"

_OVERVIEW: Final = """\
usage: gradir COMMAND [OPTIONS] ...

Draw, save, compare and explain the graph behind a gradient.

commands:
{commands}

options:
  -h, --help  show this help message and exit
  --version   show the version and exit

examples:
  gradir export examples/gpt.py:loss -o model.html
  gradir explain train.py:loss
  gradir diff main:model.gir train.py:loss

'gradir COMMAND --help' lists the options of a command,
'gradir help COMMAND' has all of its examples, and
'gradir help program' lists forms of programs.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    warnings.showwarning = partial(_show_warning, warnings.showwarning)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        # Escape what the encoding of standard output lacks, as standard error does, and do not fail.
        sys.stdout.reconfigure(errors="backslashreplace")
    # Without arguments the process ends with this command, so nothing else needs its streams or memory.
    is_process = arguments is None
    if is_process:
        # Python's last search for reference cycles would take longer than most commands.
        atexit.register(gc.freeze)
    try:
        return _run(list(sys.argv[1:] if arguments is None else arguments), is_process=is_process)
    except (GradirError, GradirWarning) as error:
        # Under 'python -W error', a warning is an exception.
        report(str(error))
        return TROUBLE
    except BrokenPipeError:
        # The reader closed the pipe.
        silence_stdout()
        return _UNREAD
    except KeyboardInterrupt:
        report("interrupted")
        return INTERRUPTED
    except Exception as error:
        if os.environ.get(_DEBUG):
            raise
        if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
            # A print failed, such as that of a help text; gradir.files names the file in its errors.
            silence_stdout()
            report(f"standard output: cannot be written: {error.strerror}")
        else:
            report(f"internal error, {type(error).__name__}: {error}; {_DEBUG}=1 shows where")
        return TROUBLE


def _run(arguments: Sequence[str], *, is_process: bool) -> int:
    if COMPLETING in os.environ:
        from gradir.cli.completion_command import complete

        complete(os.environ.get("COMP_LINE", "").split()[1:])
    if not arguments:
        raise GradirError("expected a command; see gradir --help")
    first = arguments[0]
    if first in COMMANDS:
        return _run_command(arguments, is_process=is_process)
    if first in _HELP or first == _VERSION:
        print(make_overview() if first in _HELP else f"gradir {__version__}\n", end="")
        flush_stdout()
        return 0
    noun = "option" if first.startswith("-") else "command"
    near = did_you_mean(first, [*COMMANDS, *_HELP, _VERSION])
    raise GradirError(f"unknown {noun} {first!r}{near}; see gradir --help")


def make_overview() -> str:
    """Return the output of ``gradir --help``, without loading a command."""
    width = max(map(len, COMMANDS))
    return _OVERVIEW.format(commands="\n".join(f"  {name:<{width}}  {does}" for name, does in COMMANDS.items()))


def _run_command(arguments: Sequence[str], *, is_process: bool) -> int:
    import argparse
    from contextlib import nullcontext

    from gradir.cli.progress import show_progress

    known = argparse.Namespace(arguments=arguments, is_process=is_process)
    try:
        options = make_parser(arguments[0]).parse_args(arguments[1:], known)
        with show_progress() if can_redraw(sys.stderr) else nullcontext():
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


def make_parser(name: str, make: Callable[..., Parser] | None = None) -> Parser:
    """Load one command and return its parser; ``make`` takes the arguments of `Parser`."""
    from gradir.cli.parser import Parser

    command = import_module(f"gradir.cli.{name}_command")
    parser = (make or Parser)(
        prog=f"gradir {name}",
        description=command.DESCRIPTION,
        examples=getattr(command, "EXAMPLES", ()),
        details=getattr(command, "DETAILS", ""),
    )
    parser.set_defaults(run=getattr(command, "run", None))
    command.add_options(parser)
    return parser


def _show_warning(default: Callable[..., None], message: Warning | str, category: type[Warning], *rest: object) -> None:
    if issubclass(category, GradirWarning):
        report(f"warning: {message}")
    else:
        default(message, category, *rest)
