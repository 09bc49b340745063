"""Run a program of tests/ranks on several processes of this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

__all__ = ["results_of"]

_PROGRAMS = Path(__file__).parents[1] / "ranks"
_SECONDS = 300


def results_of(program: str, ranks: int, folder: Path) -> list[object]:
    """What each rank of a program found, by rank."""
    environment = {
        **os.environ,
        "GLOO_SOCKET_IFNAME": "lo",
        "MASTER_ADDR": "127.0.0.1",
        "OMP_NUM_THREADS": "1",
        "RANK_RESULTS": str(folder),
    }
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    started = subprocess.Popen(
        [*torchrun, "--nproc-per-node", str(ranks), str(_PROGRAMS / program)],
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
        raise AssertionError(f"{program} did not end within {_SECONDS} s:\n{told}") from None
    assert started.returncode == 0, told
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]
