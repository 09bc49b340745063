"""What a matching costs as an edit script."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import chain
from operator import ne
from typing import TYPE_CHECKING, Final

from gradir.diffs.matching.places import Places
from gradir.diffs.matching.renames import Naming, Rename
from gradir.ir import Node, Ref, Saved
from gradir.ir.fields import fields_of, records_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradir.diffs.matching.sides import Side

__all__ = ["Costs"]


_FEW: Final = 8
"""Of two matchings that differ in more than one part in this many nodes, each is priced by itself."""


class Costs:
    """Counts edits between two graphs; it remembers what comparing two labels gave.

    A matching is a list: by position in the first graph the position in the second, `FREE` where there is none,
    and `NOTHING` at its end, where a reference to nothing leads.
    """

    def __init__(self, before: Side, after: Side) -> None:
        self._before, self._after = before, after
        self.places = Places(before, after)
        self._known: dict[tuple[int, int], tuple[int, bool]] = {}

    def least(self) -> int:
        """What no matching can go below: what one side says more often than the other was added, removed or changed."""
        before, after = self._before, self._after
        full = _only(before.full, after.full)
        if full != (0, 0):
            # A pair in which both differ costs 2, as it does to remove the one node and to add the other.
            return max(*full, _only(before.outlined, after.outlined)[0] + _only(before.described, after.described)[1])
        return int(Counter(before.naming) != Counter(after.naming))

    def total(self, matching: Sequence[int]) -> int:
        """The number of edits, see `gradir.diffs.matching.match`."""
        return self.of_shares(matching, self.shares(matching))

    def of_shares(self, matching: Sequence[int], shares: Sequence[int]) -> int:
        """The number of edits, with what `shares` gave."""
        return self.floor(shares) + self._naming(matching) + self.places.torn(matching)

    def floor(self, shares: Sequence[int]) -> int:
        """The number of edits, renames and torn modules apart."""
        return sum(shares) + len(self._after)

    def shares(self, matching: Sequence[int]) -> list[int]:
        """What each node of the first graph adds to the cost; a matched one spares the addition of the other."""
        after = self._after
        full, inputs, saved, spots = after.full, after.inputs, after.kept, after.spots
        before, astray = self._before, self.places.astray
        rows = zip(matching, before.full, before.inputs, before.kept, before.spots, strict=False)
        return [
            1
            if other < 0
            else -1
            if (
                label == full[other]
                and (spot == spots[other] or not astray(place, other))
                and tuple([matching[ref] for ref in refs]) == inputs[other]
                and (not held or tuple([matching[ref] for ref in held]) == saved[other])
            )
            else self.pair(place, other, matching) - 1
            for place, (other, label, refs, held, spot) in enumerate(rows)
        ]

    def shares_of(self, matching: Sequence[int], like: Sequence[int], shares: Sequence[int]) -> list[int]:
        """What `shares` gives for a matching, made from what it gave for one that is ``like`` it."""
        changed = [place for place, (one, two) in enumerate(zip(matching, like, strict=True)) if one != two]
        if len(changed) > len(matching) // _FEW:
            return self.shares(matching)
        found = [*shares]
        above, keepers = self._before.above, self._before.keepers
        for place in {*changed, *chain.from_iterable((*above[place], *keepers[place]) for place in changed)}:
            other = matching[place]
            found[place] = 1 if other < 0 else self.pair(place, other, matching) - 1
        return found

    def pair(self, place: int, other: int, matching: Sequence[int]) -> int:
        """The edits of one matched node, names apart."""
        before, after = self._before, self._after
        labels = before.full[place], after.full[other]
        known = self._known.get(labels)
        if known is None:
            known = self._known[labels] = self._said(place, other)
        total, holds_the_same = known
        total += self.rewired(place, other, matching) + self.places.astray(place, other)
        kept = before.kept[place]
        return total + (holds_the_same and tuple([matching[ref] for ref in kept]) != after.kept[other])

    def renames(self, matching: Sequence[int]) -> set[Rename]:
        """The renames that explain the ids and scopes of matched nodes."""
        return set().union(*(before.renames(after) for before, after in self._renamed(matching)))

    def _naming(self, matching: Sequence[int]) -> int:
        pairs = self._renamed(matching)
        renames = set().union(*(before.renames(after) for before, after in pairs))
        return len(renames) + sum(
            count for (before, after), count in pairs.items() if not before.explained(after, renames)
        )

    def _renamed(self, matching: Sequence[int]) -> Counter[tuple[Naming, Naming]]:
        """How many matched nodes have the one naming before and the other after."""
        called, other_called = self._before.called, self._after.called
        pairs = [
            (place, other)
            for place, other in enumerate(matching)
            if other >= 0 and called[place] != other_called[other]
        ]
        if not pairs:
            return Counter()
        before, after = self._before.naming, self._after.naming
        labels = [(before[place], after[other]) for place, other in pairs]
        shown = dict(zip(labels, pairs, strict=True))
        found: Counter[tuple[Naming, Naming]] = Counter()
        for pair, count in Counter(labels).items():
            if pair[0] != pair[1]:
                place, other = shown[pair]
                found[Naming.of(self._before.nodes[place]), Naming.of(self._after.nodes[other])] += count
        return found

    def _said(self, place: int, other: int) -> tuple[int, bool]:
        """How many fields differ without what they refer to, and whether what saved slots refer to counts."""
        old, new = self._before.nodes[place], self._after.nodes[other]
        fields, of_operation = _priced()
        changed = sum(bool(getattr(old, field) != getattr(new, field)) for field in fields)
        if old.op != new.op:
            return changed + 1, False
        changed += sum(bool(getattr(old, field) != getattr(new, field)) for field in of_operation)
        holds_the_same = self._before.held.get(place) == self._after.held.get(other)
        return changed + (not holds_the_same), holds_the_same

    def rewired(self, place: int, other: int, matching: Sequence[int]) -> int:
        """How many input slots of a matched node were rewired, its base among them."""
        refs, other_refs = self._before.inputs[place], self._after.inputs[other]
        if len(refs) == len(other_refs) and place not in self._before.odd and other not in self._after.odd:
            return sum(map(ne, map(matching.__getitem__, refs), other_refs))
        odd, other_odd = self._before.odd.get(place, {}), self._after.odd.get(other, {})
        if len(refs) == len(other_refs):
            return sum(
                matching[ref] != other_ref or odd.get(slot) != other_odd.get(slot)
                for slot, (ref, other_ref) in enumerate(zip(refs, other_refs, strict=True))
            )
        slots, other_slots = len(refs) - 1, len(other_refs) - 1
        both = min(slots, other_slots)
        rewired = sum(
            matching[refs[slot]] != other_refs[slot] or odd.get(slot) != other_odd.get(slot) for slot in range(both)
        )
        rebased = matching[refs[-1]] != other_refs[-1] or odd.get(slots) != other_odd.get(other_slots)
        return rewired + rebased + abs(slots - other_slots)


@cache
def _priced() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fields of a node that cost an edit each where they differ: in any case, and where the operation is the same.

    The operation itself, what refers to other nodes and names are priced by themselves.
    """
    alone = {field.name for field in fields_of(Node) if records_in(field) in {Ref, Saved} or field.about.refers} | {
        "op"
    }
    priced = [field for field in fields_of(Node) if field.name not in alone and field.about.compared != "place"]
    return (
        tuple(field.name for field in priced if field.about.compared != "detail"),
        tuple(field.name for field in priced if field.about.compared == "detail"),
    )


def _only(before: Sequence[int], after: Sequence[int]) -> tuple[int, int]:
    """How many labels one side has beyond those of the other, and the other beyond those of the one."""
    here, there = Counter(before), Counter(after)
    return (here - there).total(), (there - here).total()
