"""Match what an alignment left over: what moved, what its neighbours point to, what became another operation."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from gradir.diffs.matching.renames import Naming
from gradir.diffs.matching.sides import FREE, NOTHING

if TYPE_CHECKING:
    from gradir.diffs.matching.costs import Costs
    from gradir.diffs.matching.sides import Side
    from gradir.diffs.matching.tokens import Tokens

__all__ = ["Pairing"]

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
