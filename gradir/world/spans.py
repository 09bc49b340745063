"""Ranks in few words."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["span"]


def span(ranks: Iterable[int]) -> str:
    """Some ranks, those that follow each other by the first and the last.

    >>> span([3]), span([0, 2, 1, 5])
    ('rank 3', 'ranks 0-2, 5')
    """
    runs: list[list[int]] = []
    ordered = sorted(ranks)
    for rank in ordered:
        if runs and runs[-1][1] == rank - 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    text = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
    return f"{'rank' if len(ordered) == 1 else 'ranks'} {text}"
