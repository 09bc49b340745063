"""Run a program of tests/ranks, or gradir itself, on several processes of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import forked

_PROGRAMS = Path(__file__).parents[1] / "ranks"
_SECONDS = 300


def results_of(program: str, ranks: int, folder: Path) -> list[object]:
    """What each rank of a program found, by rank."""
    done = _launch([str(_PROGRAMS / program)], ranks, folder)
    assert done.returncode == 0, done.stdout
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]


def command_on_ranks(arguments: Sequence[str], ranks: int, folder: Path) -> subprocess.CompletedProcess[str]:
    """The command ``gradir`` as each rank runs it in a folder, with all that the ranks printed."""
    return _launch(["-m", "gradir"], ranks, folder, arguments)


def _launch(
    command: Sequence[str], ranks: int, folder: Path, arguments: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "127.0.0.1",
        "RANK_RESULTS": str(folder),
    }
    rank = folder.parent / f"{folder.name}-rank"
    forked.program(rank, command)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    words = ["--nproc-per-node", str(ranks), "--no-python", str(rank), *arguments]
    done = forked.run([*torchrun, *words], cwd=folder, env=environment, text=True, timeout=_SECONDS)
    return subprocess.CompletedProcess(command, done.returncode, done.stdout + done.stderr)
