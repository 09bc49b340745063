"""How a process asks ``fork_server.py`` for a fork. A `forked.program` runs this file, so it imports little."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

_READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "OMP_", "MKL_")
_READ_LATER = ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "PYTHONIOENCODING")
_UTF8 = ("utf-8", "UTF-8", "utf8")
"""How a locale ends in which Python does as it does without one."""


def settings_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a process reads when it starts, so that a fork cannot follow them."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(_READ_AT_START) and not (name.startswith(_READ_LATER) or value.endswith(_UTF8))
    }


def ask(address: str, request: Mapping[str, Any], descriptors: Sequence[int]) -> socket.socket:
    """Start a fork with these standard streams. Return the socket from which to read its exit status."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(address)
    socket.send_fds(connection, [json.dumps(request).encode()], list(descriptors))
    return connection


def run_as(python: str, words: Sequence[str], address: str, settings: Mapping[str, str]) -> NoReturn:
    """Be a fork that runs these words and the arguments, or become another Python where the settings differ."""
    words, environment = [*words, *sys.argv[1:]], dict(os.environ)
    if settings_at_start(environment) != settings:
        os.execv(python, [python, *words])
    with ask(address, {"words": words, "cwd": os.getcwd(), "env": environment}, [0, 1, 2]) as connection:  # noqa: PTH109
        # A launcher ends its processes so, and a rank then writes its file.
        signal.signal(signal.SIGTERM, lambda number, _: connection.send(str(number).encode()))
        status = int(connection.recv(64))
    if status < 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)
