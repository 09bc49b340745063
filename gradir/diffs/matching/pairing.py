"""A matching under construction: from neighbours, moved nodes and cheaper exchanges."""

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

# The most consumers to search for a match, since the search is quadratic.
_CROWD: Final = 16
# The most inputs of a node to search its producers.
_WIDE: Final = 64
# The most candidates for one node.
_CHOICES: Final = 4
# The most input slots that an exchange may touch.
_AROUND: Final = 200
# The cost of removing one node and adding another.
_REPLACEMENT_COST: Final = 2
# The most attempts of an exchange for each node, on average.
_LOOKS: Final = 4
_MOVES: Final = (("tight", 2), ("loose", 2), ("tight", 1), ("loose", 1))


class Pairing:
    """A matching under construction, always one to one, with methods to extend it."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._before, self._after = costs.before, costs.after
        self.partners = [*[FREE] * len(self._before), NOTHING]
        self.other_partners = [*[FREE] * len(self._after), NOTHING]

    def add(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Match positions that are both free."""
        for node, other in pairs:
            self.partners[node], self.other_partners[other] = other, node

    def add_moved(self, surroundings: Surroundings) -> None:
        """Match free nodes whose surroundings are unique among the free nodes of their graph."""
        for level in _MOVES:
            if FREE not in self.partners or FREE not in self.other_partners:
                return
            self.add(self._pair_unique_labels(*surroundings.find_labels(*level)))

    def add_unique(self) -> None:
        """Match free nodes whose tight labels are equal and unique, if a move costs less than a replacement."""
        for node, other in self._pair_unique_labels(self._before.tight, self._after.tight):
            if self._match_cost(node, other) < _REPLACEMENT_COST:
                self.add([(node, other)])

    def add_same_ids(self) -> None:
        """Match free nodes with the same id and role, even at a higher cost: frozen ones keep their operations."""
        for node in self._free():
            other = self._after.index.get(self._before.ids[node], NOTHING)
            if other >= 0 and self.other_partners[other] < 0 and self._have_same_role(node, other):
                self.add([(node, other)])

    def add_neighbours(self) -> None:
        """Match free nodes with equal loose labels at the same slots of matched nodes, and go on from there."""
        loose, other_loose = self._before.loose, self._after.loose
        self._spread(lambda node, other, _: loose[node] == other_loose[other])

    def add_changed(self) -> None:
        """Match free nodes between matched neighbours if a change costs less."""

        def pays(node: int, other: int, votes: int) -> bool:
            if not self._have_same_role(node, other):
                return False
            records = self._before.nodes[node], self._after.nodes[other]
            modules = {Naming.of(record).path.rpartition(".")[2] for record in records}
            if records[0].op and len(modules) > 1:
                return False
            return self._match_cost(node, other) < _REPLACEMENT_COST + votes

        self._spread(pays)

    def exchange(self, suspects: Iterable[int]) -> None:
        """Swap partners of nodes with those that their neighbours suggest, if that is cheaper."""
        # It ends, because each exchange lowers the cost, or keeps it and matches more equal names.
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
        """Free matched nodes that left a remaining name, if a replacement costs less."""
        # Consumers come before producers. A node that changed in its own place stays matched.
        partners, other_partners = self.partners, self.other_partners
        for node in range(len(self._before) - 1, -1, -1):
            other = partners[node]
            if other < 0 or self._costs.addresses.move_cost(node, other) <= _REPLACEMENT_COST:
                continue
            touched = dict.fromkeys((node, *self._users(node)))
            if self._is_too_wide(touched):
                continue
            before = self._rate(touched, ())
            partners[node], other_partners[other] = FREE, FREE
            if self._rate(touched, ()) >= before:
                partners[node], other_partners[other] = other, node

    def _free(self) -> list[int]:
        return [node for node, other in enumerate(self.partners[:-1]) if other < 0]

    def _pair_unique_labels(self, labels: Sequence[int], other_labels: Sequence[int]) -> list[tuple[int, int]]:
        """Return pairs of free nodes with a label that is unique in each graph."""
        other_free = (node for node, other in enumerate(self.other_partners[:-1]) if other < 0)
        return pair_unique(
            ((labels[node], node) for node in self._free()), ((other_labels[other], other) for other in other_free)
        )

    def _match_cost(self, node: int, other: int) -> int:
        # The pair must be matched meanwhile, since a saved slot may contain the result of the node itself.
        self.partners[node] = other
        cost = self._costs.pair_cost(node, other, self.partners)
        self.partners[node] = FREE
        return cost

    def _is_too_wide(self, touched: Iterable[int]) -> bool:
        return sum(len(self._before.inputs[node]) for node in touched) > _AROUND

    def _have_same_role(self, node: int, other: int) -> bool:
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
        """Return nodes with the same matched neighbours as this one and the number of slots, most first."""
        counts = Counter(self._candidates(node))
        return sorted(counts.items(), key=lambda vote: (-vote[1], vote[0]))

    def _candidates(self, node: int) -> Iterator[int]:
        partners, producers, users = self.partners, self._after.producers, self._after.consumers
        for slot, producer in enumerate(self._before.producers[node]):
            matched = partners[producer]
            if matched < 0 or len(users[matched]) > _CROWD:
                continue
            for other in users[matched]:
                if slot < len(producers[other]) and producers[other][slot] == matched:
                    yield other
        consumers = self._before.consumers[node]
        if len(consumers) > _CROWD:
            return
        for consumer in consumers:
            matched = partners[consumer]
            if matched < 0 or len(self._before.producers[consumer]) > _WIDE:
                continue
            for slot, producer in enumerate(self._before.producers[consumer]):
                if producer == node and slot < len(producers[matched]) and producers[matched][slot] != NOTHING:
                    yield producers[matched][slot]

    def _free_around(self, node: int) -> Iterator[int]:
        for near in (self._before.producers[node], self._before.consumers[node]):
            if len(near) <= _CROWD:
                # `NOTHING` has no partner.
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
        partners, other_partners = self.partners, self.other_partners
        former, displaced = partners[node], other_partners[other]
        moved = [node, displaced] if displaced >= 0 else [node]
        touched = dict.fromkeys(near for each in moved for near in (each, *self._users(each)))
        if self._is_too_wide(touched):
            return False
        offered = former if displaced >= 0 and self._may_be_one(displaced, former) else FREE
        before = self._rate(touched, moved)
        partners[node], other_partners[other] = other, node
        if displaced >= 0:
            partners[displaced] = offered
        if former >= 0:
            other_partners[former] = displaced if offered >= 0 else FREE
        if self._rate(touched, moved) < before:
            return True
        partners[node], other_partners[other] = former, displaced
        if displaced >= 0:
            partners[displaced] = other
        if former >= 0:
            other_partners[former] = node
        return False

    def _rate(self, touched: Iterable[int], moved: Iterable[int]) -> tuple[int, int]:
        """Return the cost of some nodes, then minus the number of equal names; lower is better."""
        partners, naming, other_naming = self.partners, self._before.naming_labels, self._after.naming_labels
        equal = sum(partners[node] >= 0 and naming[node] == other_naming[partners[node]] for node in moved)
        return sum(self._costs.node_cost(node, partners) for node in touched), -equal

    def _may_be_one(self, node: int, other: int) -> bool:
        """Return whether two nodes have equal loose labels, or are operations at the same address."""
        if other < 0:
            return False
        before, after = self._before, self._after
        if before.loose[node] == after.loose[other]:
            return True
        return (
            bool(before.nodes[node].op and after.nodes[other].op)
            and before.address_labels[node] == after.address_labels[other]
            and len(before.inputs[node]) == len(after.inputs[other])
        )

    def _users(self, node: int) -> list[int]:
        return [*self._before.consumers[node], *self._before.savers[node]]


def join_matchings(
    one: Sequence[int], two: Sequence[int], costs: tuple[Sequence[int], Sequence[int]], order: Sequence[int],
    position: Sequence[int],
) -> list[int]:  # fmt: skip
    """Join two matchings: between any two cuts, take the cheaper one."""
    # Neither matching pairs a node before a cut with one after it, so the result is one to one. `costs` has the cost of
    # each node of the first graph in either matching. `order` has its nodes in sequence, and `position` the place of
    # each node of the second graph in the other sequence.
    found = list(one)
    last = len(position)
    ends = [(position[one[node]], position[two[node]]) for node in order]
    lowest = accumulate((min(x if x >= 0 else last, y if y >= 0 else last) for x, y in reversed(ends)), min)
    reach = list(accumulate((max(pair) for pair in ends), max))
    floor = [*lowest][::-1]
    start, balance = 0, 0
    for x, node in enumerate(order):
        balance += costs[1][node] - costs[0][node]
        if x + 1 == len(order) or reach[x] < floor[x + 1]:
            if balance < 0:
                for inside in order[start : x + 1]:
                    found[inside] = two[inside]
            start, balance = x + 1, 0
    return found
