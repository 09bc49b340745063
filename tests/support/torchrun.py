"""Run a program of tests/ranks, or gradir itself, on several processes of this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["command_on_ranks", "results_of"]

_PROGRAMS = Path(__file__).parents[1] / "ranks"
_SECONDS = 300


def results_of(program: str, ranks: int, folder: Path) -> list[object]:
    """What each rank of a program found, by rank."""
    done = _launched([str(_PROGRAMS / program)], ranks, folder)
    assert done.returncode == 0, done.stdout
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]


def command_on_ranks(arguments: Sequence[str], ranks: int, folder: Path) -> subprocess.CompletedProcess[str]:
    """The command ``gradir`` as each rank runs it in a folder, with all that the ranks printed."""
    return _launched(["--no-python", sys.executable, "-m", "gradir", *arguments], ranks, folder)


def _launched(command: Sequence[str], ranks: int, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "127.0.0.1",
        "OMP_NUM_THREADS": "1",
        "RANK_RESULTS": str(folder),
    }
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    started = subprocess.Popen(
        [*torchrun, "--nproc-per-node", str(ranks), *command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        told, _ = started.communicate(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        # The ranks are its children, and would wait for each other for ever.
        os.killpg(started.pid, signal.SIGKILL)
        told, _ = started.communicate()
        raise AssertionError(f"{command} did not end within {_SECONDS} s:\n{told}") from None
    return subprocess.CompletedProcess(command, started.returncode, told)
