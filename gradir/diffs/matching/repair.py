"""Improve a matching one node at a time: what two neighbours agree on, against what an alignment chose."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from gradir.diffs.matching.sides import FREE, NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gradir.diffs.matching.costs import Costs
    from gradir.diffs.matching.neighbours import Pairing
    from gradir.diffs.matching.sides import Side

__all__ = ["repair"]

_AROUND: Final = 200
"""An exchange that touches more input slots than this is not tried."""

_LOOKS: Final = 4
"""How often each node is looked at on average, at most."""


def repair(pairing: Pairing, sides: tuple[Side, Side], costs: Costs, suspects: Iterable[int]) -> None:
    """Give nodes the partner that their neighbours ask for where that is cheaper; its former partner gets the other.

    It ends because each exchange lowers the cost of what it touches, or keeps the cost and brings equal names
    together.
    """
    _Repair(pairing, sides, costs).run(suspects)


class _Repair:
    def __init__(self, pairing: Pairing, sides: tuple[Side, Side], costs: Costs) -> None:
        self._pairing = pairing
        self._before, self._after = sides
        self._costs = costs

    def run(self, suspects: Iterable[int]) -> None:
        queue = deque(dict.fromkeys(suspects))
        waiting = set(queue)
        looks = _LOOKS * len(self._before) + 100
        while queue and looks:
            looks -= 1
            place = queue.popleft()
            waiting.discard(place)
            if self._improve(place):
                for near in self._near(place):
                    if near not in waiting:
                        waiting.add(near)
                        queue.append(near)

    def _improve(self, place: int) -> bool:
        there = self._pairing.there
        for other, _ in self._pairing.votes(place)[:3]:
            if other == there[place]:
                return False
            if self._alike(place, other) and self._exchange(place, other):
                return True
        return False

    def _exchange(self, place: int, other: int) -> bool:
        """Match these two and their former partners, unless that is worse."""
        there, back = self._pairing.there, self._pairing.back
        former, displaced = there[place], back[other]
        touched = dict.fromkeys([place, *self._users(place)])
        if displaced >= 0:
            touched.update(dict.fromkeys([displaced, *self._users(displaced)]))
        if sum(len(self._before.inputs[node]) for node in touched) > _AROUND:
            return False
        passed_on = former if displaced >= 0 and self._alike(displaced, former) else FREE
        before = self._price(touched), -self._names_kept((place, displaced))
        self._set(place, other, displaced, passed_on, former)
        if (self._price(touched), -self._names_kept((place, displaced))) < before:
            return True
        self._set(place, former, displaced, other, FREE)
        back[other] = displaced
        if former >= 0:
            back[former] = place
        return False

    def _set(self, place: int, other: int, displaced: int, passed_on: int, former: int) -> None:
        there, back = self._pairing.there, self._pairing.back
        if former >= 0:
            back[former] = FREE
        there[place] = other
        if other >= 0:
            back[other] = place
        if displaced >= 0:
            there[displaced] = passed_on
            if passed_on >= 0:
                back[passed_on] = displaced

    def _alike(self, place: int, other: int) -> bool:
        """Whether two nodes may be one: they say the same, or are operations in one place, as those of a chain are."""
        if other < 0:
            return False
        before, after = self._before, self._after
        if before.loose[place] == after.loose[other]:
            return True
        if not (before.nodes[place].op and after.nodes[other].op) or before.spots[place] != after.spots[other]:
            return False
        return len(before.inputs[place]) == len(after.inputs[other])

    def _users(self, place: int) -> list[int]:
        return [*self._before.above[place], *self._before.keepers[place]]

    def _near(self, place: int) -> list[int]:
        return [other for other in (*self._before.below[place], *self._users(place)) if other != NOTHING]

    def _price(self, places: Iterable[int]) -> int:
        there = self._pairing.there
        return sum(1 if there[place] < 0 else self._costs.pair(place, there[place], there) - 1 for place in places)

    def _names_kept(self, places: Sequence[int]) -> int:
        there = self._pairing.there
        naming, other_naming = self._before.naming, self._after.naming
        return sum(place >= 0 and there[place] >= 0 and naming[place] == other_naming[there[place]] for place in places)
