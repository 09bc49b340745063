"""Run a command of gradir in a process of its own, such as the capture of a second program."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from gradir.cli.report import one_line
from gradir.errors import SpecError
from gradir.progress import stage

if TYPE_CHECKING:
    from gradir.ir import Graph

_RAISED: Final = 1
_INTERRUPTED: Final = 130
_OWN: Final = "gradir: "

_START: Final = "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); from {} import main; sys.exit(main())"
"""Runs the command with the same path to import from, whatever lies in the working directory."""


def command_line(words: Sequence[str], module: str = "gradir.cli.main") -> list[str]:
    """Return the command that runs gradir with these words, or another module's ``main``, in another process."""
    return [sys.executable, "-c", _START.format(module), json.dumps(sys.path), *words]


@contextmanager
def capturing_apart(options: argparse.Namespace, spec: str) -> Iterator[Callable[[], tuple[Graph, str]]]:
    """Capture a program in another process while the body of the context runs.

    Gives a function that waits, and returns the graph and the error that ended its forward before its time. It raises
    a `SpecError` where the program cannot be captured.
    """
    words = ["capture", spec, "-o", "-", "--format", "msgpack", *_program_words(options)]
    process = subprocess.Popen(  # noqa: S603 (gradir itself)
        command_line(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with process:
        try:
            yield lambda: _captured(process, spec)
        finally:
            process.kill()


def _captured(process: subprocess.Popen[bytes], spec: str) -> tuple[Graph, str]:
    from gradir import api

    with stage(f"capturing {spec}"):
        data, said = process.communicate()
    if process.returncode == _INTERRUPTED:
        raise KeyboardInterrupt
    lines = said.decode(errors="replace").splitlines()
    # The program may print behind it, as from an exit handler.
    own = [number for number, line in enumerate(lines) if line.startswith(_OWN)] if process.returncode else []
    last = lines.pop(own[-1]).removeprefix(_OWN) if own else ""
    for line in lines:
        print(one_line(line), file=sys.stderr)
    if process.returncode not in (0, _RAISED) or not data:
        raise SpecError(last or f"{spec}: its process ended with status {process.returncode}, and gave no graph")
    return api.loads(data), last.rpartition("; wrote ")[0]


def _program_words(options: argparse.Namespace) -> list[str]:
    """The options of a program as they stand on a command line."""
    from gradir.request import declared

    words = ["--traceback"] if options.traceback else []
    for name, each in declared("graph").items():
        value = getattr(options, name)
        if each.flag is None or value == each.default:
            continue
        for one in value if isinstance(value, list) else [value]:
            words += [each.flag] if one is True else [each.flag, str(one)]
    return [*words, "--", *options.program_arguments] if options.program_arguments else words
