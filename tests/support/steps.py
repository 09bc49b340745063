"""What something costs: lines that Python runs, not seconds, and the most memory."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def steps(run: Callable[[], object]) -> int:
    """The lines and calls of Python code that ``run`` makes; the same on every machine."""
    count = 0

    def trace(frame: object, event: str, argument: object) -> Callable[..., object]:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return count


def measure_memory(run: Callable[[], T]) -> tuple[T, int]:
    """Return what ``run`` returns, and the most memory in bytes that it took."""
    tracemalloc.start()
    try:
        return run(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
