"""Processes that look at one architecture each, so that one that hangs, crashes or eats memory costs one row.

A worker is a Python with its own seed of hashes that has torch imported; it forks a process for each architecture,
which is fast, and clean of what an earlier one left behind.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import subprocess
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import msgspec
from wide.results import Result

__all__ = ["Worker", "serve"]

_SECONDS: Final = 300
_MEMORY: Final = 9 << 30
_TASKS: Final = ("compared", "digested")


class Worker:
    """A worker process, asked from here; not to be shared by threads."""

    def __init__(self, hash_seed: int, packages: Path) -> None:
        here = Path(__file__).resolve().parents[1]
        path = os.pathsep.join([str(here), str(packages)])
        environment = {
            **os.environ,
            "PYTHONHASHSEED": str(hash_seed),
            "PYTHONPATH": path,
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "wide.workers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )

    def ask(self, task: str, key: str) -> Result:
        """Do a task (``compared`` or ``digested``) for an architecture."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{task} {key}\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._process.stdout.readline(), type=Result)

    def keys(self) -> list[str]:
        """Every architecture that can be asked for."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("keys\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._process.stdout.readline(), type=list[str])

    def close(self) -> None:
        """Let the process end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def serve() -> None:
    """Answer the lines of standard input until it ends."""
    answers = os.fdopen(os.dup(1), "w")
    # What models print goes where it disturbs nothing.
    os.dup2(2, 1)
    from wide import catalogue, check

    catalogue.prepare()
    for line in sys.stdin:
        task, _, key = line.strip().partition(" ")
        answer: Any = catalogue.keys() if task == "keys" else _isolated(getattr(check, task), key)
        answers.write(msgspec.json.encode(answer).decode() + "\n")
        answers.flush()


def _isolated(function: Any, key: str) -> Result:
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(function, key, there))
    process.start()
    there.close()
    family, _, name = key.partition("/")
    try:
        if not here.poll(_SECONDS):
            return Result(family, name, failure="time", detail=f"more than {_SECONDS} s")
        return msgspec.json.decode(here.recv_bytes(), type=Result)
    except EOFError:
        process.join()
        return Result(family, name, failure="crash", detail=f"the process ended with {process.exitcode}")
    finally:
        process.kill()
        process.join()
        here.close()


def _run(function: Any, key: str, there: Connection) -> None:
    with contextlib.suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    family, _, name = key.partition("/")
    try:
        result = function(key)
    except Exception as error:  # noqa: BLE001 (it is told)
        result = Result(family, name, mismatches=[f"{type(error).__name__}: {error}"[:300]])
    there.send_bytes(msgspec.json.encode(result))
    there.close()
    # Nothing of what a model registered for the end is worth waiting for.
    os._exit(0)


if __name__ == "__main__":
    serve()
