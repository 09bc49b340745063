"""A matching under construction: what neighbours point to, and what is cheaper another way."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from gradir.diffs.matching.numbered import FREE, NOTHING
from gradir.diffs.matching.renames import Naming

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gradir.diffs.matching.costs import Costs
    from gradir.diffs.matching.numbered import Side, Tokens

__all__ = ["Pairing", "crossed", "repair"]


_CROWD: Final = 16
"""Among more consumers than this no match is looked for: that would be quadratic."""

_WIDE: Final = 64
"""Nor among the producers of a node with more inputs than this."""

_CHOICES: Final = 4
"""How many candidates are looked at for one node."""

_MOVES: Final = (("tight", 2), ("loose", 2), ("tight", 1), ("loose", 1))


class Pairing:
    """A matching under construction, one to one at any time, and the ways to extend it."""

    def __init__(self, before: Side, after: Side) -> None:
        self._before, self._after = before, after
        self.there = [*[FREE] * len(before), NOTHING]
        self.back = [*[FREE] * len(after), NOTHING]

    def add(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Match positions that are both free."""
        there, back = self.there, self.back
        for place, other in pairs:
            there[place] = other
            back[other] = place

    def free(self) -> list[int]:
        """The positions in the first graph that are not matched."""
        return [place for place in range(len(self._before)) if self.there[place] < 0]

    def other_free(self) -> list[int]:
        """The positions in the second graph that are not matched."""
        return [place for place in range(len(self._after)) if self.back[place] < 0]

    def add_moved(self, tokens: Tokens) -> None:
        """Match what stands elsewhere: free nodes whose token no other free node of their side has."""
        for level in _MOVES:
            free, other_free = self.free(), self.other_free()
            if not free or not other_free:
                return
            of, other_of = tokens.at(*level)
            here, there = _once(free, of), _once(other_free, other_of)
            self.add((place, there[token]) for token, place in here.items() if token in there)

    def add_lone(self, costs: Costs) -> None:
        """Match free nodes that say the same and are alone in that, where moving one is fewer edits than both."""
        here, there = _once(self.free(), self._before.tight), _once(self.other_free(), self._after.tight)
        for label, place in here.items():
            if label in there and self._price(costs, place, there[label]) < 2:
                self.add([(place, there[label])])

    def add_same_ids(self) -> None:
        """Match free nodes with one id and one role."""
        index = self._after.index
        for place in self.free():
            other = index.get(self._before.ids[place], NOTHING)
            if other >= 0 and self.back[other] < 0 and self._same_role(place, other):
                self.add([(place, other)])

    def add_neighbours(self) -> None:
        """Match free nodes of one loose label that stand at the same slots of matched nodes, and so on from there."""
        loose, other_loose = self._before.loose, self._after.loose
        self._spread(lambda place, other, _: loose[place] == other_loose[other])

    def add_changed(self, costs: Costs) -> None:
        """Match free nodes of one role between matched neighbours where changing one is fewer edits than both."""

        def pays(place: int, other: int, votes: int) -> bool:
            return self._alike(place, other) and self._price(costs, place, other) < 2 + votes

        self._spread(pays)

    def _price(self, costs: Costs, place: int, other: int) -> int:
        """What changes when these are matched; a slot may keep what the node itself made."""
        self.there[place] = other
        price = costs.pair(place, other, self.there)
        self.there[place] = FREE
        return price

    def _alike(self, place: int, other: int) -> bool:
        """Whether two nodes have one role, and their modules one name."""
        paths = (Naming.of(side.nodes[at]).path for side, at in ((self._before, place), (self._after, other)))
        name, other_name = (path.rpartition(".")[2] for path in paths)
        is_function = bool(self._before.nodes[place].op)
        return self._same_role(place, other) and (not is_function or name == other_name)

    def _same_role(self, place: int, other: int) -> bool:
        return self._before.nodes[place].role == self._after.nodes[other].role

    def _spread(self, fits: Callable[[int, int, int], bool]) -> None:
        if not self.other_free():
            return
        queue = deque(self.free())
        while queue:
            place = queue.popleft()
            if self.there[place] >= 0:
                continue
            free = [vote for vote in self.votes(place) if self.back[vote[0]] < 0]
            for other, votes in free[:_CHOICES]:
                if fits(place, other, votes):
                    self.add([(place, other)])
                    queue += self._free_around(place)
                    break

    def votes(self, place: int) -> list[tuple[int, int]]:
        """Nodes of the other side that stand among matched nodes as this one does: in how many slots, most first."""
        counts = Counter(self._candidates(place))
        return sorted(counts.items(), key=lambda vote: (-vote[1], vote[0]))

    def _candidates(self, place: int) -> Iterator[int]:
        there, below, above = self.there, self._after.below, self._after.above
        for slot, producer in enumerate(self._before.below[place]):
            matched = there[producer]
            if matched < 0 or len(above[matched]) > _CROWD:
                continue
            for other in above[matched]:
                if slot < len(below[other]) and below[other][slot] == matched:
                    yield other
        consumers = self._before.above[place]
        if len(consumers) > _CROWD:
            return
        for consumer in consumers:
            matched = there[consumer]
            if matched < 0 or len(self._before.below[consumer]) > _WIDE:
                continue
            for slot, producer in enumerate(self._before.below[consumer]):
                if producer == place and slot < len(below[matched]) and below[matched][slot] != NOTHING:
                    yield below[matched][slot]

    def _free_around(self, place: int) -> Iterator[int]:
        for near in (self._before.below[place], self._before.above[place]):
            if len(near) <= _CROWD:
                for other in near:
                    if other != NOTHING and self.there[other] < 0:
                        yield other


def _once(places: Iterable[int], tokens: list[int]) -> dict[int, int]:
    """The places by token where only one has it."""
    found: dict[int, int] = {}
    repeated: set[int] = set()
    for place in places:
        token = tokens[place]
        if token in found:
            repeated.add(token)
        else:
            found[token] = place
    return {token: place for token, place in found.items() if token not in repeated}


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
