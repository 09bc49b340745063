"""Align two sequences of tokens: common ends, anchors that occur once, and short edit scripts between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from gradir.diffs.increasing import increasing
from gradir.diffs.matching.myers import common_subsequence

__all__ = ["Gap", "align", "gaps_between"]

_ROUNDS: Final = 6
"""How often a gap is split at anchors of its own: each round looks at every position at most once."""


class Gap(NamedTuple):
    """Two ranges that are yet to be aligned: ``start`` included, ``end`` not."""

    start: int
    end: int
    other_start: int
    other_end: int


def align(before: Sequence[int], after: Sequence[int], gaps: Iterable[Gap]) -> tuple[list[tuple[int, int]], list[Gap]]:
    """Pairs of equal tokens within the gaps, in order within each, and the gaps that remain.

    Tokens that occur once on both sides are the anchors, the longest increasing subsequence of them is kept (the
    patience diff of Bram Cohen, as first in Bazaar), and what lies between is aligned in turn.

    >>> align([1, 2, 9, 3], [1, 8, 3], [Gap(0, 4, 0, 3)])
    ([(0, 0), (3, 2)], [Gap(start=1, end=3, other_start=1, other_end=2)])
    """
    pairs: list[tuple[int, int]] = []
    left: list[Gap] = []
    stack = [(gap, _ROUNDS) for gap in gaps]
    stack.reverse()
    while stack:
        whole, rounds = stack.pop()
        gap = _trimmed(before, after, whole, pairs)
        if gap.start == gap.end or gap.other_start == gap.other_end:
            continue
        anchors = _shortest(before, after, gap)
        if anchors is not None:
            pairs += anchors
            left += gaps_between(anchors, gap)
            continue
        anchors = _anchors(before, after, gap) if rounds else []
        if anchors:
            pairs += anchors
            stack += [(inner, rounds - 1) for inner in reversed(gaps_between(anchors, gap))]
        else:
            left.append(gap)
    return pairs, left


def gaps_between(pairs: Iterable[tuple[int, int]], gap: Gap) -> list[Gap]:
    """What lies between pairs that increase on both sides, where there is something on both."""
    ends = [(gap.start - 1, gap.other_start - 1), *pairs, (gap.end, gap.other_end)]
    return [
        Gap(x + 1, next_x, y + 1, next_y) for (x, y), (next_x, next_y) in pairwise(ends) if next_x - x > 1 < next_y - y
    ]


def _trimmed(before: Sequence[int], after: Sequence[int], gap: Gap, pairs: list[tuple[int, int]]) -> Gap:
    x, end, y, other_end = gap
    start = x
    while x < end and y < other_end and before[x] == after[y]:
        x += 1
        y += 1
    pairs += zip(range(start, x), range(gap.other_start, y), strict=True)
    while x < end and y < other_end and before[end - 1] == after[other_end - 1]:
        end -= 1
        other_end -= 1
        pairs.append((end, other_end))
    return Gap(x, end, y, other_end)


def _shortest(before: Sequence[int], after: Sequence[int], gap: Gap) -> list[tuple[int, int]] | None:
    """A longest common subsequence of a gap; tokens that one side lacks only make it longer to find."""
    both = set(before[gap.start : gap.end]).intersection(after[gap.other_start : gap.other_end])
    here = [x for x in range(gap.start, gap.end) if before[x] in both]
    there = [y for y in range(gap.other_start, gap.other_end) if after[y] in both]
    found = common_subsequence([before[x] for x in here], [after[y] for y in there])
    return None if found is None else [(here[x], there[y]) for x, y in found]


def _anchors(before: Sequence[int], after: Sequence[int], gap: Gap) -> list[tuple[int, int]]:
    here, there = _once(before, gap.start, gap.end), _once(after, gap.other_start, gap.other_end)
    return increasing([(place, there[token]) for token, place in here.items() if token in there])


def _once(tokens: Sequence[int], start: int, end: int) -> dict[int, int]:
    places: dict[int, int] = {}
    repeated: set[int] = set()
    for place in range(start, end):
        token = tokens[place]
        if token in places:
            repeated.add(token)
        else:
            places[token] = place
    for token in repeated:
        del places[token]
    return places
