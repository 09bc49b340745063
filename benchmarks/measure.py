"""What benchmarks share: how they are started and timed, and their tables.

Runs are interleaved in one process: on a shared machine only ratios taken side by side mean anything.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

__all__ = ["is_smoke", "run_deep", "run_measured", "table", "time_in_turns"]

T = TypeVar("T")


def time_in_turns(
    make: Callable[[], T], runs: Mapping[str, Callable[[T], object]], repetitions: int
) -> dict[str, float]:
    """The median seconds of each run, every repetition on an input of its own, the runs taking turns."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repetitions):
        for name, run in runs.items():
            subject = make()
            gc.collect()
            start = time.perf_counter()
            result = run(subject)
            times[name].append(time.perf_counter() - start)
            del subject, result
    return {name: statistics.median(values) for name, values in times.items()}


class Done(NamedTuple):
    """The exit status and output of a process, its processor time in seconds, and its most memory in MiB, as text."""

    status: int
    output: str
    seconds: str
    memory: str


def run_measured(command: Sequence[str], stream: str = "stdout") -> Done:
    """Run a process, and measure it; ``stream`` is the one to read."""
    process = subprocess.Popen(command, text=True, **{stream: subprocess.PIPE})  # type: ignore[call-overload]
    output = getattr(process, stream).read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    memory = used.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    return Done(process.returncode, output, f"{used.ru_utime + used.ru_stime:.1f}", f"{memory:,.0f}")


def is_smoke(description: str | None) -> bool:
    """Whether the command line asks for small sizes; there is nothing else to ask of most benchmarks."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="small sizes, to see that it runs")
    smoke: bool = parser.parse_args().smoke
    return smoke


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def run_deep(main: Callable[..., None], *arguments: object) -> None:
    """Run a program with room for torchviz, which walks a graph by recursion, once a node."""
    sys.setrecursionlimit(10**7)
    threading.stack_size(1 << 30)
    thread = threading.Thread(target=main, args=arguments)
    thread.start()
    thread.join()
