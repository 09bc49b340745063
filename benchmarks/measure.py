"""Interleaved timing in one process: on a shared machine only ratios taken side by side mean anything."""

from __future__ import annotations

import gc
import statistics
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

__all__ = ["interleaved", "run_deep", "table"]

T = TypeVar("T")


def interleaved(make: Callable[[], T], runs: Mapping[str, Callable[[T], object]], repetitions: int) -> dict[str, float]:
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
