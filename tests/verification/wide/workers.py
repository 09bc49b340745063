"""Processes that look at one architecture each, so that one that hangs, crashes or eats memory costs one row.

A worker is a Python with its own seed of hashes that has torch imported; it forks a process for each architecture,
which is fast, and clean of what an earlier one left behind.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import msgspec

from wide.results import Result

__all__ = ["Worker", "call_isolated", "two_workers"]

_SECONDS: Final = 300
_MEMORY: Final = 9 << 30


class Worker:
    """A worker process, asked from here; not to be shared by threads."""

    def __init__(self, hash_seed: int) -> None:
        tests = Path(__file__).resolve().parents[2]
        folders = [str(tests / name) for name in ("support", "verification")]
        environment = {
            **os.environ,
            "PYTHONHASHSEED": str(hash_seed),
            "PYTHONPATH": os.pathsep.join([*folders, *filter(None, [os.environ.get("PYTHONPATH")])]),
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

    def ask(self, task: str, key: str, *more: str) -> Result:
        """Do a task (``compared`` or ``exported``, or with a choice the one that goes with it) for an architecture."""
        return msgspec.json.decode(self._answer([task, key, *more]), type=Result)

    def keys(self) -> list[str]:
        """Every architecture that can be asked for."""
        return msgspec.json.decode(self._answer(["keys"]), type=list[str])

    def _answer(self, words: list[str]) -> str:
        asked, answered = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answered is not None
        asked.write("\t".join(words) + "\n")
        asked.flush()
        return answered.readline()

    def close(self) -> None:
        """Let the process end, also in the middle of something."""
        self._process.terminate()
        self._process.communicate()


@contextlib.contextmanager
def two_workers() -> Iterator[list[Worker]]:
    """Two workers whose hashes differ."""
    workers = [Worker(seed) for seed in (1, 2)]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.close()


def serve() -> None:
    """Answer the lines of standard input until it ends."""
    answers = os.fdopen(os.dup(1), "w")
    # What models print goes where it disturbs nothing.
    os.dup2(2, 1)
    from wide import catalogue, check, exporting

    catalogue.prepare()
    # What is there now is looked at by no collector of a process forked from here, which would copy it.
    gc.freeze()
    tasks = {
        "compared": check.compare,
        "digested": check.digest,
        "exported": exporting.compare_export,
        "exported again": exporting.digest_export,
    }
    for line in sys.stdin:
        task, *words = line.rstrip("\n").split("\t")
        if task.startswith("exported"):
            exporting.prepare()
        answer: Any = catalogue.keys() if task == "keys" else call_isolated(tasks[task], words)
        answers.write(msgspec.json.encode(answer).decode() + "\n")
        answers.flush()


def call_isolated(function: Callable[..., Result], words: list[str], seconds: float = _SECONDS) -> Result:
    """Call a function in a process of its own, which has so much time; the first of the words is the key."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(function, words, there))
    process.start()
    there.close()
    family, _, name = words[0].partition("/")
    try:
        if not here.poll(seconds):
            return Result(family, name, failure="time", detail=f"more than {seconds} s")
        return msgspec.json.decode(here.recv_bytes(), type=Result)
    except EOFError:
        process.join()
        return Result(family, name, failure="crash", detail=f"the process ended with {process.exitcode}")
    finally:
        process.kill()
        process.join()
        here.close()


def _run(function: Callable[..., Result], words: list[str], there: Connection) -> None:
    with contextlib.suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    family, _, name = words[0].partition("/")
    try:
        result = function(*words)
    except Exception as error:  # noqa: BLE001 (it is told)
        said = f"{type(error).__name__}: {error}"[:300]
        if isinstance(error, MemoryError) or "allocate memory" in said:
            result = Result(family, name, failure="memory", detail=said)
        else:
            result = Result(family, name, mismatches=[said])
    there.send_bytes(msgspec.json.encode(result))
    there.close()
    # Nothing of what a model registered for the end is worth waiting for.
    os._exit(0)


if __name__ == "__main__":
    serve()
