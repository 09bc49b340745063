"""Longest increasing subsequences: what is still in order after a change of order."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

__all__ = ["increasing"]


def increasing(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest subsequence whose second numbers increase, by patience sorting (C. Schensted, 1961).

    >>> increasing([(0, 5), (1, 1), (2, 2), (3, 0), (4, 7)])
    [(1, 1), (2, 2), (4, 7)]
    """
    tops: list[int] = []
    piles: list[int] = []
    before: list[int] = []
    for place, (_, value) in enumerate(pairs):
        pile = bisect_left(tops, value)
        before.append(piles[pile - 1] if pile else -1)
        if pile == len(tops):
            tops.append(value)
            piles.append(place)
        else:
            tops[pile] = value
            piles[pile] = place
    found = []
    place = piles[-1] if piles else -1
    while place >= 0:
        found.append(pairs[place])
        place = before[place]
    found.reverse()
    return found
