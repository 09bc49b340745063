"""Python processes that need not import torch: forks of one that has, which is started once for all tests of a process.

For tests of what a command or a script does. Each run is a process, with its own directory, environment, streams, exit
status and loaded programs, and costs a tenth of one that imports torch. What is about the start of a process (hash
seeds, flags of Python, what is imported, memory, how the interpreter ends) uses `subprocess`, and so does `run` by
itself where the environment asks for another interpreter than the one that is there, and where forks are not to be had.
"""

from __future__ import annotations

import json
import os
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

__all__ = ["close", "program", "run", "share"]

_SERVER = Path(__file__).with_name("fork_server.py")
_CHANGES_NOTHING = (
    "PYTHONUNBUFFERED",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONPYCACHEPREFIX",
    "PYTHONIOENCODING",
)
_READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "OMP_", "MKL_")
_SHARED = "GRADIR_TESTS_FORKS"
_UTF8 = ("utf-8", "UTF-8", "utf8")
"""How a locale ends in which Python does as it does where there is none."""
_ENVIRONMENT = dict(os.environ)
"""Before a test changes it."""
_CHUNK = 512
"""What a pipe that can be written to takes at least: PIPE_BUF of POSIX."""


_PROGRAM = """\
#!{python} -IS
import json, os, socket, sys
words = [*{words!r}, *sys.argv[1:]]
environment = dict(os.environ)
read_at_start = {{
    name: value
    for name, value in environment.items()
    if name.startswith({read_at_start!r}) and not (name.startswith({changes_nothing!r}) or value.endswith({utf8!r}))
}}
if read_at_start != {expected!r}:
    os.execv({python!r}, [{python!r}, *words])
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
    server.connect({address!r})
    request = {{"words": words, "cwd": os.getcwd(), "env": environment}}
    socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
    server.recv(64)
    status = int(server.recv(64))
if status < 0:
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


class _Server:
    """The way to the process that is forked, which another process may have started."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.read_at_start = _read_at_start(_ENVIRONMENT)

    def started(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> tuple[socket.socket, int]:
        """Fork; returns where to read how it ended, and the number of the process."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect(self.address)
        socket.send_fds(connection, [json.dumps(request).encode()], list(descriptors))
        return connection, int(connection.recv(64))

    def close(self) -> None:
        """Leave it to who started it."""


class _OwnServer(_Server):
    """The process that is forked, started here."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="gradir-")
        address = Path(self._folder.name, "forks")
        super().__init__(str(address))
        ours, self._lifeline = os.pipe()
        line = [sys.executable, str(_SERVER), self.address, str(ours)]
        self._process = subprocess.Popen(line, pass_fds=[ours], stdin=subprocess.DEVNULL, cwd="/", env=_ENVIRONMENT)
        os.close(ours)
        while not address.exists():
            assert self._process.poll() is None, "the process to fork has ended"
            time.sleep(0.01)

    def close(self) -> None:
        os.close(self._lifeline)
        self._process.wait()
        self._folder.cleanup()


@cache
def _server() -> _Server | None:
    if not sys.platform.startswith("linux") or not find_spec("torch"):
        return None
    shared = _ENVIRONMENT.get(_SHARED)
    return _Server(shared) if shared else _OwnServer()


def share() -> None:
    """Let the processes that this one starts from now on fork the same one; it imports torch when the first asks."""
    server = _server()
    if server is not None:
        os.environ[_SHARED] = server.address


def close() -> None:
    """End the server, if one was started here."""
    if _server.cache_info().currsize and (server := _server()) is not None:
        server.close()
    _server.cache_clear()


def program(path: Path, words: Sequence[str] = ("-m", "gradir")) -> None:
    """Make an executable that is the command ``gradir``, or another of Python, to be called by what a test runs."""
    server = _server()
    if server is None:
        path.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, *words])} "$@"\n')
    else:
        path.write_text(
            _PROGRAM.format(
                python=sys.executable,
                words=[*words],
                read_at_start=_READ_AT_START,
                changes_nothing=_CHANGES_NOTHING,
                utf8=_UTF8,
                expected=server.read_at_start,
                address=server.address,
            )
        )
    path.chmod(0o755)


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_READ_AT_START) and not (name.startswith(_CHANGES_NOTHING) or value.endswith(_UTF8))
    }


def _can_be_forked(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    if command[0] != sys.executable or (command[1].startswith("-") and command[1] not in {"-m", "-c"}):
        return False
    server = _server()
    return server is not None and _read_at_start(environment) == server.read_at_start


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
    words = list(map(os.fspath, command))
    environment = dict(os.environ if env is None else env)
    if not _can_be_forked(words, environment):
        return subprocess.run(
            words, cwd=cwd, env=env, text=text, input=input, check=check, timeout=timeout, capture_output=True
        )
    request = {"words": words[1:], "cwd": str(Path(cwd or ".").absolute()), "env": environment}
    if executable is not None:
        request["executable"] = os.fspath(executable)
    given = input.encode() if isinstance(input, str) else input
    status, out, err = _done(request, given, timeout)
    done: subprocess.CompletedProcess[Any] = subprocess.CompletedProcess(words, status, out, err)
    if text:
        done.stdout, done.stderr = (each.decode().replace("\r\n", "\n").replace("\r", "\n") for each in (out, err))
    if check:
        done.check_returncode()
    return done


def _done(request: Mapping[str, Any], given: bytes | None, timeout: float) -> tuple[int, bytes, bytes]:
    """The exit status of a fork, and what it wrote."""
    server = _server()
    assert server is not None
    out, their_out = os.pipe()
    err, their_err = os.pipe()
    their_in, into = os.pipe() if given is not None else (0, -1)
    connection, child = server.started(request, [their_in, their_out, their_err])
    for descriptor in (their_out, their_err, *((their_in,) if given is not None else ())):
        os.close(descriptor)
    with connection:
        try:
            found = _exchanged(out, err, into, given or b"", time.monotonic() + timeout)
        except TimeoutError as error:
            os.kill(child, signal.SIGKILL)
            raise subprocess.TimeoutExpired(request["words"], timeout) from error
        return int(connection.recv(64)), *found


def _exchanged(out: int, err: int, into: int, given: bytes, until: float) -> tuple[bytes, bytes]:
    """Write what is given and read both streams to their ends."""
    read: dict[int, bytearray] = {out: bytearray(), err: bytearray()}
    with selectors.DefaultSelector() as waiting:
        for descriptor in read:
            waiting.register(descriptor, selectors.EVENT_READ)
        if into >= 0:
            waiting.register(into, selectors.EVENT_WRITE)
        try:
            while waiting.get_map():
                ready = waiting.select(until - time.monotonic())
                if not ready:
                    raise TimeoutError
                for key, _ in ready:
                    if key.fd == into:
                        given = _written(into, given)
                        is_over = not given
                    else:
                        part = os.read(key.fd, 1 << 16)
                        read[key.fd] += part
                        is_over = not part
                    if is_over:
                        waiting.unregister(key.fd)
                        os.close(key.fd)
        finally:
            for descriptor in list(waiting.get_map()):
                os.close(descriptor)
    return bytes(read[out]), bytes(read[err])


def _written(descriptor: int, given: bytes) -> bytes:
    """Write a part; returns what is left, nothing where nobody reads it."""
    try:
        return given[os.write(descriptor, given[:_CHUNK]) :]
    except BrokenPipeError:
        return b""
