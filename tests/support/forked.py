"""Python processes that need not import torch: forks of one that has, which is started once for all tests of a process.

For tests of what a command or a script does. Each run is a process, with its own directory, environment, streams, exit
status and loaded programs, and costs a tenth of one that imports torch. What is about the start of a process (hash
seeds, flags of Python, what is imported, memory, how the interpreter ends) uses `subprocess`, and so does `run` by
itself where the environment asks for another interpreter than the one that is there, and where forks are not to be had.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fork_client import ask, settings_at_start

_HERE = Path(__file__).parent
_SHARED = "GRADIR_TESTS_FORKS"
_ENVIRONMENT = dict(os.environ)
"""Before a test changes it."""
_SETTINGS = settings_at_start(_ENVIRONMENT)
_PYTHON = sys.executable
"""Before the fixture ``forked_python`` puts a program in its place."""
_PROGRAM = """\
#!{python} -IS
import sys
sys.path.insert(0, {folder!r})
from fork_client import run_as
run_as({python!r}, {words!r}, {address!r}, {settings!r})
"""
_started_here = ExitStack()


@cache
def _address() -> str | None:
    """Return the socket of the server, which the first process that asks starts; None where forks are not to be had."""
    if not sys.platform.startswith("linux") or not find_spec("torch"):
        return None
    if _SHARED in _ENVIRONMENT:
        return _ENVIRONMENT[_SHARED]
    address = Path(_started_here.enter_context(tempfile.TemporaryDirectory(prefix="gradir-")), "forks")
    line = [sys.executable, str(_HERE / "fork_server.py"), str(address)]
    # The server ends with its standard input.
    server = _started_here.enter_context(subprocess.Popen(line, stdin=subprocess.PIPE, cwd="/", env=_ENVIRONMENT))
    while not address.exists():
        assert server.poll() is None, "the process to fork has ended"
        time.sleep(0.01)
    return str(address)


def share() -> None:
    """Let the processes that this one starts from now on fork the same one; it imports torch when the first asks."""
    if address := _address():
        os.environ[_SHARED] = address


def close() -> None:
    """End the server, if one was started here."""
    _started_here.close()
    _address.cache_clear()


def program(path: Path, words: Sequence[str] = ("-m", "gradir")) -> None:
    """Make an executable that is the command ``gradir``, or another of Python, to be called by what a test runs."""
    address, python = _address(), _PYTHON
    if address is None:
        path.write_text(f'#!/bin/sh\nexec {shlex.join([python, *words])} "$@"\n')
    else:
        path.write_text(
            _PROGRAM.format(python=python, folder=str(_HERE), words=[*words], address=address, settings=_SETTINGS)
        )
    path.chmod(0o755)


def run(
    command: Sequence[str | Path],
    *,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    text: bool = False,
    input: Any = None,
    check: bool = False,
    timeout: float = 300,
    executable: str | Path | None = None,
) -> subprocess.CompletedProcess[Any]:
    """`subprocess.run` of a command that begins with `sys.executable`, with both its streams captured.

    ``executable`` is the `sys.executable` of a fork: a `program` without words, where what it starts are forks too.
    """
    python, *words = map(os.fspath, command)
    environment = dict(os.environ if env is None else env)
    has_flag = words[0].startswith("-") and words[0] not in {"-m", "-c"}
    address = _address()
    if python != sys.executable or has_flag or address is None or settings_at_start(environment) != _SETTINGS:
        options = {"cwd": cwd, "env": env, "text": text, "input": input, "timeout": timeout}
        return subprocess.run([python, *words], check=check, capture_output=True, **options)
    request = {"words": words, "cwd": os.path.abspath(cwd or "."), "env": environment}  # noqa: PTH100
    if executable is not None:
        request["executable"] = os.fspath(executable)
    # Files, since a pipe that nobody reads would stop the process.
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(input.encode() if isinstance(input, str) else input or b"")
        given.seek(0)
        with ask(address, request, [0 if input is None else given.fileno(), out.fileno(), err.fileno()]) as connection:
            connection.settimeout(timeout)
            try:
                status = int(connection.recv(64))
            except TimeoutError as error:
                raise subprocess.TimeoutExpired([python, *words], timeout) from error
        written = []
        for stream in (out, err):
            stream.seek(0)
            written.append(stream.read())
    done: subprocess.CompletedProcess[Any] = subprocess.CompletedProcess([python, *words], status, *written)
    if text:
        done.stdout, done.stderr = (each.decode().replace("\r\n", "\n").replace("\r", "\n") for each in written)
    if check:
        done.check_returncode()
    return done
