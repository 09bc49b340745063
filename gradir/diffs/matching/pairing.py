"""A matching under construction: what neighbours point to, what moved, and what is cheaper another way."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from gradir.diffs.matching.numbered import FREE, NOTHING
from gradir.diffs.matching.renames import Naming
from gradir.diffs.sequences import pair_unique

if TYPE_CHECKING:
    from gradir.diffs.matching.costs import Costs
    from gradir.diffs.matching.numbered import Surroundings

# Among more consumers than this no match is looked for: that would be quadratic.
_CROWD: Final = 16
# Nor among the producers of a node with more inputs than this.
_WIDE: Final = 64
# How many candidates are looked at for one node.
_CHOICES: Final = 4
# An exchange that touches more input slots than this is not tried.
_AROUND: Final = 200
# What removing one node and adding another costs.
_REPLACEMENT_COST: Final = 2
# How often an exchange is looked for at each node on average, at most.
_LOOKS: Final = 4
_MOVES: Final = (("tight", 2), ("loose", 2), ("tight", 1), ("loose", 1))


class Pairing:
    """A matching under construction, one to one at any time, and the ways to extend it."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._before, self._after = costs.before, costs.after
        self.partners = [*[FREE] * len(self._before), NOTHING]
        self.other_partners = [*[FREE] * len(self._after), NOTHING]

    def add(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Match positions that are both free."""
        there, back = self.partners, self.other_partners
        for node, other in pairs:
            there[node] = other
            back[other] = node

    def add_moved(self, surroundings: Surroundings) -> None:
        """Match what stands elsewhere: free nodes whose surroundings no other free node of their graph has."""
        for level in _MOVES:
            if FREE not in self.partners or FREE not in self.other_partners:
                return
            self.add(self._pair_unique_labels(*surroundings.at(*level)))

    def add_unique(self) -> None:
        """Match free nodes that say the same and are alone in that, where moving one is fewer edits than both."""
        for node, other in self._pair_unique_labels(self._before.tight, self._after.tight):
            if self._price_of_matching(node, other) < _REPLACEMENT_COST:
                self.add([(node, other)])

    def add_same_ids(self) -> None:
        """Match free nodes with one id and one role, also where that costs more: what froze keeps its operations."""
        index = self._after.index
        for node in self._free():
            other = index.get(self._before.ids[node], NOTHING)
            if other >= 0 and self.other_partners[other] < 0 and self._have_one_role(node, other):
                self.add([(node, other)])

    def add_neighbours(self) -> None:
        """Match free nodes of one loose label that stand at the same slots of matched nodes, and so on from there."""
        loose, other_loose = self._before.loose, self._after.loose
        self._spread(lambda node, other, _: loose[node] == other_loose[other])

    def add_changed(self) -> None:
        """Match free nodes of one role between matched neighbours where changing one is fewer edits than both."""

        def pays(node: int, other: int, votes: int) -> bool:
            if not self._have_one_role(node, other):
                return False
            record, other_record = self._before.nodes[node], self._after.nodes[other]
            modules = (Naming.of(each).path.rpartition(".")[2] for each in (record, other_record))
            if record.op and len(set(modules)) > 1:
                return False
            return self._price_of_matching(node, other) < _REPLACEMENT_COST + votes

        self._spread(pays)

    def exchange(self, suspects: Iterable[int]) -> None:
        """Give nodes the partner that their neighbours ask for where that is cheaper; its former one gets the other."""
        # It ends because each exchange lowers the cost of what it touches, or keeps the cost and brings equal names
        # together.
        queue = deque(dict.fromkeys(suspects))
        waiting = set(queue)
        looks = _LOOKS * len(self._before) + 100
        while queue and looks:
            looks -= 1
            node = queue.popleft()
            waiting.discard(node)
            if self._improve(node):
                for near in (*self._before.producers[node], *self._users(node)):
                    if near != NOTHING and near not in waiting:
                        waiting.add(near)
                        queue.append(near)

    def separate(self) -> None:
        """Free nodes that left a name which stays, where one that went and one that came are fewer edits."""
        # Consumers come before producers. What changed in its own place stays one node, however much of it changed.
        there, back = self.partners, self.other_partners
        for node in range(len(self._before) - 1, -1, -1):
            other = there[node]
            if other < 0 or self._costs.addresses.move_cost(node, other) <= _REPLACEMENT_COST:
                continue
            touched = dict.fromkeys((node, *self._users(node)))
            if sum(len(self._before.inputs[each]) for each in touched) > _AROUND:
                continue
            before = self._rate(touched, ())
            there[node], back[other] = FREE, FREE
            if self._rate(touched, ()) >= before:
                there[node], back[other] = other, node

    def _free(self) -> list[int]:
        return [node for node, other in enumerate(self.partners[:-1]) if other < 0]

    def _pair_unique_labels(self, labels: Sequence[int], other_labels: Sequence[int]) -> list[tuple[int, int]]:
        """Free nodes with a label that one free node has in each graph."""
        other_free = (node for node, other in enumerate(self.other_partners[:-1]) if other < 0)
        return pair_unique(
            ((labels[node], node) for node in self._free()), ((other_labels[other], other) for other in other_free)
        )

    def _price_of_matching(self, node: int, other: int) -> int:
        """Return the cost of matching these; a slot may contain the result of the node itself."""
        self.partners[node] = other
        price = self._costs.pair_cost(node, other, self.partners)
        self.partners[node] = FREE
        return price

    def _have_one_role(self, node: int, other: int) -> bool:
        return self._before.nodes[node].role == self._after.nodes[other].role

    def _spread(self, fits: Callable[[int, int, int], bool]) -> None:
        if FREE not in self.other_partners:
            return
        queue = deque(self._free())
        while queue:
            node = queue.popleft()
            if self.partners[node] >= 0:
                continue
            free = [vote for vote in self._votes(node) if self.other_partners[vote[0]] < 0]
            for other, votes in free[:_CHOICES]:
                if fits(node, other, votes):
                    self.add([(node, other)])
                    queue += self._free_around(node)
                    break

    def _votes(self, node: int) -> list[tuple[int, int]]:
        """Return nodes that stand among matched nodes as this one does with the number of slots, most first."""
        counts = Counter(self._candidates(node))
        return sorted(counts.items(), key=lambda vote: (-vote[1], vote[0]))

    def _candidates(self, node: int) -> Iterator[int]:
        there, below, above = self.partners, self._after.producers, self._after.consumers
        for slot, producer in enumerate(self._before.producers[node]):
            matched = there[producer]
            if matched < 0 or len(above[matched]) > _CROWD:
                continue
            for other in above[matched]:
                if slot < len(below[other]) and below[other][slot] == matched:
                    yield other
        consumers = self._before.consumers[node]
        if len(consumers) > _CROWD:
            return
        for consumer in consumers:
            matched = there[consumer]
            if matched < 0 or len(self._before.producers[consumer]) > _WIDE:
                continue
            for slot, producer in enumerate(self._before.producers[consumer]):
                if producer == node and slot < len(below[matched]) and below[matched][slot] != NOTHING:
                    yield below[matched][slot]

    def _free_around(self, node: int) -> Iterator[int]:
        for near in (self._before.producers[node], self._before.consumers[node]):
            if len(near) <= _CROWD:
                # Nothing has no partner to look for.
                yield from (other for other in near if self.partners[other] == FREE)

    def _improve(self, node: int) -> bool:
        for other, _ in self._votes(node)[:3]:
            if other == self.partners[node]:
                return False
            if self._may_be_one(node, other) and self._try_exchange(node, other):
                return True
        return False

    def _try_exchange(self, node: int, other: int) -> bool:
        """Match these two and their former partners, unless that is worse."""
        there, back = self.partners, self.other_partners
        former, displaced = there[node], back[other]
        moved = [node, displaced] if displaced >= 0 else [node]
        touched = dict.fromkeys(near for each in moved for near in (each, *self._users(each)))
        if sum(len(self._before.inputs[each]) for each in touched) > _AROUND:
            return False
        passed_on = former if displaced >= 0 and self._may_be_one(displaced, former) else FREE
        before = self._rate(touched, moved)
        there[node], back[other] = other, node
        if displaced >= 0:
            there[displaced] = passed_on
        if former >= 0:
            back[former] = displaced if passed_on >= 0 else FREE
        if self._rate(touched, moved) < before:
            return True
        there[node], back[other] = former, displaced
        if displaced >= 0:
            there[displaced] = other
        if former >= 0:
            back[former] = node
        return False

    def _rate(self, touched: Iterable[int], moved: Iterable[int]) -> tuple[int, int]:
        """Return the cost of some nodes, then the number of lost names; lower is better."""
        there, naming, other_naming = self.partners, self._before.naming_labels, self._after.naming_labels
        kept = sum(there[node] >= 0 and naming[node] == other_naming[there[node]] for node in moved)
        return sum(self._costs.node_cost(node, there) for node in touched), -kept

    def _may_be_one(self, node: int, other: int) -> bool:
        """Return whether two nodes have one loose label, or are operations in one place."""
        if other < 0:
            return False
        before, after = self._before, self._after
        if before.loose[node] == after.loose[other]:
            return True
        if not (before.nodes[node].op and after.nodes[other].op):
            return False
        inputs, other_inputs = before.inputs[node], after.inputs[other]
        return before.address_labels[node] == after.address_labels[other] and len(inputs) == len(other_inputs)

    def _users(self, node: int) -> list[int]:
        return [*self._before.consumers[node], *self._before.savers[node]]


def join_matchings(
    one: Sequence[int], two: Sequence[int], costs: tuple[Sequence[int], Sequence[int]], order: Sequence[int],
    position: Sequence[int],
) -> list[int]:  # fmt: skip
    """Join two matchings: take the cheaper of both between any two positions where both can be cut."""
    # A cut divides both graphs so that neither matching pairs a node before it with one after it, so the result is one
    # to one. `costs` has the cost of each node of the first graph in either matching, `order` its nodes in
    # sequence, and `position` the place of each node of the second graph in the other sequence.
    found = list(one)
    last = len(position)
    ends = [(position[one[node]], position[two[node]]) for node in order]
    lowest = accumulate((min(x if x >= 0 else last, y if y >= 0 else last) for x, y in reversed(ends)), min)
    reach = list(accumulate((max(pair) for pair in ends), max))
    floor = [*lowest][::-1]
    costs_one, costs_two = costs
    start, balance = 0, 0
    for x, node in enumerate(order):
        balance += costs_two[node] - costs_one[node]
        if x + 1 == len(order) or reach[x] < floor[x + 1]:
            if balance < 0:
                for inside in order[start : x + 1]:
                    found[inside] = two[inside]
            start, balance = x + 1, 0
    return found
