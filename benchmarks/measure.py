"""Interleaved timing in one process: on a shared machine only ratios taken side by side mean anything."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

__all__ = ["interleaved", "table"]

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
