"""Run a command of gradir in a subprocess, such as the capture of a second program."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Final

from gradir import api, forwards
from gradir.cli.programs import Loaded
from gradir.cli.rank_files import fill_in_own_rank
from gradir.cli.report import INTERRUPTED, PREFIX, RAISED, one_line
from gradir.errors import SpecError
from gradir.progress import stage

# The subprocess imports from the same places, whatever its working directory contains.
_START: Final = "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); from {} import main; sys.exit(main())"


def make_command(words: Sequence[str], module: str = "gradir.cli.main") -> list[str]:
    """Return the command that runs gradir, or another module's ``main``, in a subprocess with these arguments."""
    return [sys.executable, "-c", _START.format(module), json.dumps(sys.path), *words]


@contextmanager
def capture_apart(options: argparse.Namespace, spec: str, folder: str | None = None) -> Iterator[Callable[[], Loaded]]:
    """Capture a program in a subprocess that starts in ``folder``, while the body of the context runs.

    Yield a function that waits and returns the result of `gradir.cli.programs.capture_program`. It raises a
    `SpecError` if the program cannot be captured.
    """
    with TemporaryDirectory() as place:
        # Under a launcher, gradir writes no file without the rank in its name.
        path = os.path.join(place, "graph.{rank}.gir")
        words = ["capture", spec, "-o", path, "--format", "msgpack", *list_program_options(options)]
        process = subprocess.Popen(  # noqa: S603 (gradir itself)
            make_command(words),
            # Two programs cannot read one standard input.
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=folder or None,
        )
        with process:
            try:
                yield lambda: _finish_capture(process, spec, fill_in_own_rank(path))
            finally:
                # If the body failed, nobody waits for the capture.
                process.kill()


def _finish_capture(process: subprocess.Popen[bytes], spec: str, path: str) -> Loaded:
    with stage(f"capturing {spec}"):
        printed = process.communicate()[1]
    if process.returncode == INTERRUPTED:
        raise KeyboardInterrupt
    lines = printed.decode(errors="replace").splitlines()
    # The program may print after gradir's last line, for example in an exit handler.
    own = [number for number, line in enumerate(lines) if line.startswith(PREFIX)] if process.returncode else []
    last = lines.pop(own[-1]).removeprefix(PREFIX) if own else ""
    forward_path = forwards.forward_name(path)
    written = f"wrote {one_line(os.path.dirname(path))}"
    unwritten, missing = f"{PREFIX}{one_line(forward_path)} is not written: ", f"{spec} gives none"
    for line in lines:
        if line.startswith(unwritten):
            missing = line.removeprefix(unwritten)
        elif not line.startswith(written):
            print(one_line(line), file=sys.stderr)
    if process.returncode not in (0, RAISED) or not os.path.exists(path):
        raise SpecError(last or f"cannot capture {spec}: its process ended with status {process.returncode}")
    forward = api.load(forward_path) if os.path.exists(forward_path) else None
    return Loaded(api.load(path), last.rpartition("; wrote ")[0], forward, "" if forward else missing)


def list_program_options(options: argparse.Namespace) -> list[str]:
    """Return the options of a program as command-line arguments."""
    from gradir.request import list_options

    words = ["--traceback"] if options.traceback else []
    for name, each in list_options("graph").items():
        value = getattr(options, name)
        if each.flag is None or value == each.default:
            continue
        for one in value if isinstance(value, list) else [value]:
            words += [each.flag] if one is True else [each.flag, str(one)]
    return [*words, "--", *options.program_arguments] if options.program_arguments else words
