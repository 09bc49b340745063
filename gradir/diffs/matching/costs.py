"""What a matching costs as an edit script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from operator import ne
from typing import TYPE_CHECKING, Final

from gradir.diffs.matching.numbered import TENSOR
from gradir.diffs.matching.renames import Naming, Rename, pattern
from gradir.ir import Node, Ref, Saved
from gradir.ir.fields import fields_of, records_in
from gradir.ir.module_tree import split_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gradir.diffs.matching.numbered import Side

__all__ = ["Costs", "Places", "anchors"]


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


_ASTRAY: Final = 3
"""What leaving a name that stays costs a tensor, or a function of a module with tensors: more than to remove it, add it
and rewire a consumer."""

_MOVED: Final = 1
"""The same for other functions, and where the one module contains the other, as when a module is wrapped."""


class Places:
    """What two graphs call the same.

    The place of a node is its module, and a tensor's own name, as a pattern (``layers.*.attn``). What stands in
    a place or module that is on both sides is not taken for what stands elsewhere.
    """

    def __init__(self, before: Side, after: Side) -> None:
        self._before, self._after = before, after
        self._modules = frozenset((*before.classes, *before.modules)).intersection((*after.classes, *after.modules))
        self._places = frozenset(before.places).intersection(after.places)
        self._owners = [_owners(side) for side in (before, after)]
        self._known: dict[tuple[int, int, int, int], int] = {}
        self._chains: dict[tuple[int, int], tuple[tuple[str, str], ...]] = {}

    def astray(self, place: int, other: int) -> int:
        """What it costs that a node stands in one place before and in another after although one of them is kept."""
        before, after = self._before, self._after
        spot, other_spot = before.spots[place], after.spots[other]
        if spot == other_spot:
            return 0
        key = before.homes[place], spot, after.homes[other], other_spot
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._leaving(
                (before.modules[place], before.places[place]), (after.modules[other], after.places[other])
            )
        return known

    def torn(self, matching: Sequence[int]) -> int:
        """How many partners modules have beyond one each, seen from both sides."""
        homes, other_homes = self._before.homes, self._after.homes
        pairs = {(homes[place], other_homes[other]): place for place, other in enumerate(matching) if other >= 0}
        for pair in pairs.keys() - self._chains.keys():
            place = pairs[pair]
            found = self._before.modules[place], self._after.modules[matching[place]]
            self._chains[pair] = tuple(_upwards(*found)) if self._stays(*found) else ()
        seen = set(chain.from_iterable(map(self._chains.__getitem__, pairs)))
        return 2 * len(seen) - len({old for old, _ in seen}) - len({new for _, new in seen})

    def _stays(self, old: str, new: str) -> bool:
        """Whether one module may be the other: an index shifted, or neither name is on both sides."""
        return pattern(old) == pattern(new) or self._modules.isdisjoint((old, new))

    def _leaving(self, old: tuple[str, str], new: tuple[str, str]) -> int:
        (module, place), (other_module, other_place) = old, new
        tensor, other_tensor = (path.partition(TENSOR)[2] for path in (place, other_place))
        if pattern(module) == pattern(other_module):
            return 0 if self._places.isdisjoint((place, other_place)) else _ASTRAY
        if self._stays(module, other_module):
            return 0
        if module not in self._owners[0] and other_module not in self._owners[1]:
            return _MOVED
        nested = _contains(module, other_module) or _contains(other_module, module)
        return _MOVED if nested and tensor == other_tensor else _ASTRAY


def anchors(before: Side, after: Side, modules: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """By position the place in the words of the second graph where both have it, otherwise nothing.

    ``modules`` are paths of modules in the first graph to those in the second.
    """
    renamed = {path: pattern(found) for path, found in modules.items() if pattern(path) != pattern(found)}
    places = before.places
    if renamed:
        places = [
            renamed[module] + place[len(pattern(module)) :] if module in renamed else place
            for place, module in zip(places, before.modules, strict=True)
        ]
    both = frozenset(places).intersection(after.places)
    here, there = ([place if place in both else "" for place in side] for side in (places, after.places))
    return here, there


def _owners(side: Side) -> frozenset[str]:
    """The modules with tensors of their own."""
    return frozenset(module for module, (_, tensor) in zip(side.modules, side.standing, strict=True) if tensor)


def _contains(outer: str, inner: str) -> bool:
    return not outer or inner.startswith(f"{outer}.")


def _upwards(old: str, new: str) -> Iterator[tuple[str, str]]:
    """Two modules, and those around them as long as they are called the same."""
    while old and new:
        yield old, new
        old, name = split_path(old)
        new, other_name = split_path(new)
        if pattern(name) != pattern(other_name):
            return
