"""Ranks in few words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

__all__ = ["span"]

_MOST: Final = 8


def span(ranks: Iterable[int]) -> str:
    """Some ranks, those that follow each other by the first and the last.

    >>> span([3]), span([0, 2, 1, 5]), span(range(0, 100, 2))
    ('rank 3', 'ranks 0-2, 5', 'ranks 0, 2, 4, 6, 8, 10 and 44 more')
    """
    runs: list[list[int]] = []
    ordered = sorted(ranks)
    for rank in ordered:
        if runs and runs[-1][1] == rank - 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    shown = runs if len(runs) <= _MOST else runs[: _MOST - 2]
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in shown)
    left = len(ordered) - sum(last - first + 1 for first, last in shown)
    more = f" and {left:,} more" if left else ""
    return f"{'rank' if len(ordered) == 1 else 'ranks'} {text}{more}"
