"""The command ``gradir`` in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import forked

import gradir

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def runner(folder: Path, environment: dict[str, str]) -> Run:
    """What runs the gradir command in a folder, where each process that the command starts is forked too."""
    python = folder.parent / f"{folder.name}-python"
    forked.program(python, ())

    def run(*arguments: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "gradir", *arguments]
        return forked.run(command, cwd=folder, env=environment, text=True, input=input, executable=python)

    return run


def fails(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """Expect one line on standard error, with these words in it."""
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert done.stderr.startswith("gradir: ")
    assert done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr


def raises(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """Expect the traceback of the user's program, with nothing of gradir in it, and behind it that one line."""
    assert done.returncode == 2, done
    assert done.stdout == ""
    *trace, last = done.stderr.splitlines()
    assert trace[0] == "Traceback (most recent call last):"
    assert not [line for line in trace if str(Path(gradir.__file__).parent) in line]
    assert last.startswith("gradir: ")
    for word in words:
        assert word in last
