"""Join two matchings piece by piece, each piece from the one in which it costs less."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

__all__ = ["crossed"]


def crossed(
    one: Sequence[int], two: Sequence[int], costs: tuple[Sequence[int], Sequence[int]], order: Sequence[int],
    position: Sequence[int],
) -> list[int]:  # fmt: skip
    """The cheaper of both between any two places where both can be cut.

    A cut divides both graphs so that neither matching pairs a node before it with one after it; the pieces of
    different matchings therefore never meet, and the result is one to one. ``costs`` has what each node of the first
    graph costs in either matching, ``order`` its nodes in sequence, ``position`` where in the other sequence each node
    of the second graph stands.
    """
    found = list(one)
    last = len(position)
    places = [(position[one[place]], position[two[place]]) for place in order]
    lowest = accumulate((min(x if x >= 0 else last, y if y >= 0 else last) for x, y in reversed(places)), min)
    reach = list(accumulate((max(pair) for pair in places), max))
    floor = [*lowest][::-1]
    costs_one, costs_two = costs
    start, balance = 0, 0
    for x, place in enumerate(order):
        balance += costs_two[place] - costs_one[place]
        if x + 1 == len(order) or reach[x] < floor[x + 1]:
            if balance < 0:
                for inside in order[start : x + 1]:
                    found[inside] = two[inside]
            start, balance = x + 1, 0
    return found
