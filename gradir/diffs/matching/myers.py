"""The shortest edit script of two short or similar sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["common_subsequence"]

_EDITS: Final = 1000
"""Scripts longer than this are not looked for."""


def common_subsequence(before: Sequence[int], after: Sequence[int]) -> list[tuple[int, int]] | None:
    """The pairs of positions of a longest common subsequence, or ``None`` when too much differs to find one cheaply.

    The greedy forward algorithm of E. W. Myers, "An O(ND) difference algorithm and its variations", Algorithmica 1
    (1986), given up beyond a fixed number of edits or of comparisons in proportion to the length.

    >>> common_subsequence([1, 2, 3, 4], [1, 3, 4, 5])
    [(0, 0), (2, 1), (3, 2)]
    """
    n, m = len(before), len(after)
    limit = min(n + m, _EDITS)
    budget = 8 * (n + m) + 1_000
    # ends[k] is the furthest position of ``before`` reached on diagonal k; negative k count from the end.
    ends = [0] * (2 * limit + 3)
    trace: list[list[int]] = []
    for edits in range(limit + 1):
        trace.append(ends.copy())
        first, last = -edits + 2 * max(0, edits - m), edits - 2 * max(0, edits - n)
        for k in range(first, last + 1, 2):
            down = k == -edits or (k != edits and ends[k - 1] < ends[k + 1])
            x = ends[k + 1] if down else ends[k - 1] + 1
            start, y = x, x - k
            while x < n and y < m and before[x] == after[y]:
                x += 1
                y += 1
            ends[k] = x
            budget -= x - start + 1
            if x >= n and y >= m:
                return _path(trace, n, m)
        if budget < 0:
            return None
    return None


def _path(trace: list[list[int]], x: int, y: int) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for edits in range(len(trace) - 1, -1, -1):
        ends, k = trace[edits], x - y
        down = k == -edits or (k != edits and ends[k - 1] < ends[k + 1])
        came = (k + 1) if down else (k - 1)
        from_x = ends[came] if edits else 0
        start = (from_x if down else from_x + 1) if edits else 0
        while x > start:
            x -= 1
            y -= 1
            pairs.append((x, y))
        x, y = from_x, from_x - came
    pairs.reverse()
    return pairs
