"""What two sides made of one value, together: field by field, entry by entry, key by key."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from gradir.diffs.field_changes import numbered
from gradir.ir import Node, Ref, Saved, Source
from gradir.ir.model import NonFinite, Record

K = TypeVar("K", bound=Hashable)

_WHOLE: Final = (Ref, NonFinite)
"""Records that are one value."""


class Combiner:
    """Combines values of three graphs, and counts where both sides made another thing of one."""

    def __init__(self) -> None:
        self.clashes = 0

    def of(self, base: Any, ours: Any, theirs: Any) -> Any:
        """Return the value of both edits; if they clash, one of the two."""
        if same(ours, theirs) or same(theirs, base):
            return ours
        if same(ours, base):
            return theirs
        return self._parts(base, ours, theirs) if type(ours) is type(theirs) else self._clash(ours)

    def _parts(self, base: Any, ours: Any, theirs: Any) -> Any:
        if isinstance(ours, Source):
            return _place(base, ours, theirs)
        if isinstance(ours, Record) and not isinstance(ours, _WHOLE):
            return self._record(base, ours, theirs)
        if isinstance(ours, Mapping):
            return self._mapping(base if isinstance(base, Mapping) else {}, ours, theirs)
        if isinstance(ours, tuple) and any(type(entry) is Saved for entry in (*ours, *theirs)):
            return self._slots(base or (), ours, theirs)
        if not isinstance(ours, tuple) or len(ours) != len(theirs):
            return self._clash(ours)
        bases = base if isinstance(base, tuple) and len(base) == len(ours) else repeat(UNSET)
        return tuple(map(self.of, bases, ours, theirs))

    def _clash(self, value: Any) -> Any:
        self.clashes += 1
        return value

    def _record(self, base: Any, ours: Any, theirs: Any) -> Any:
        fields = ours.__struct_fields__
        values = (
            self.of(getattr(base, field, UNSET), getattr(ours, field), getattr(theirs, field)) for field in fields
        )
        return replace(ours, **dict(zip(fields, values, strict=True)))

    def _mapping(self, base: Mapping[str, Any], ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
        keys = dict.fromkeys((*base, *ours, *theirs))
        found = {key: self.of(*(side.get(key, UNSET) for side in (base, ours, theirs))) for key in sorted(keys)}
        return {key: value for key, value in found.items() if value is not UNSET}

    def _slots(self, base: Sequence[Saved], ours: Sequence[Saved], theirs: Sequence[Saved]) -> tuple[Saved, ...]:
        """Return saved slots by name; one that a side dropped is dropped if the other only changed its source."""
        sides = [dict(zip(numbered(slot.slot for slot in slots), slots, strict=True)) for slots in (base, ours, theirs)]
        found = {}
        for key in dict.fromkeys(key for side in sides for key in side):
            was, *both = (side.get(key, UNSET) for side in sides)
            is_dropped = was is not UNSET and UNSET in both
            if is_dropped and all(slot is UNSET or _bare(slot) == _bare(was) for slot in both):
                continue
            found[key] = self.of(was, *both)
        order, _ = woven([key for key in side if found.get(key, UNSET) is not UNSET] for side in sides)
        return tuple(found[key] for key in order)


def _bare(slot: Any) -> Any:
    return replace(slot, origin=None, storage="")


def _place(base: Any, ours: Source, theirs: Source) -> Source:
    """Return a line moved by both sides; a line says where and not what, so it never clashes."""
    if type(base) is not Source or not base.file == ours.file == theirs.file:
        return max(ours, theirs, key=msgspec.structs.astuple)
    function = pick(base.function, ours.function, theirs.function)
    return replace(ours, line=max(0, ours.line + theirs.line - base.line), function=function)


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal in type too: ``1``, ``1.0`` and ``true`` are not."""
    if one is other:
        return True
    if type(one) is not type(other) or one != other:
        return False
    if isinstance(one, Node):
        return same(one.attrs, other.attrs) and same(one.ext, other.ext)
    if isinstance(one, Mapping):
        return repr(sorted(one.items())) == repr(sorted(other.items()))
    return not isinstance(one, tuple) or repr(one) == repr(other)


def pick(base: Any, ours: Any, theirs: Any) -> Any:
    """Return the value that one side changed; if both did, the larger, whoever made it."""
    if ours == base:
        return theirs
    return ours if theirs == base else max(ours, theirs)


def woven(orders: Iterable[Sequence[K]], by: Callable[[list[K]], Any] = list) -> tuple[list[K], bool]:
    """Return the orders of the base and both sides as one, and whether both sides put something into one place.

    What only one side has stands behind what it stands behind there. If both have something, the smaller comes first,
    or what gives less ``by`` a function. Common entries have the order of the side that changed it.

    >>> woven(["abc", "axbc", "abcy"])
    (['a', 'x', 'b', 'c', 'y'], False)
    """
    base, ours, theirs = orders
    held = dict.fromkeys(theirs), dict.fromkeys(ours)
    common = [[key for key in side if key in other] for side, other in zip((ours, theirs), held, strict=True)]
    kept = dict.fromkeys(common[0])
    first = pick([key for key in base if key in kept], *common)
    behind: list[defaultdict[K | None, list[K]]] = []
    for side in (ours, theirs):
        last: K | None = None
        groups: defaultdict[K | None, list[K]] = defaultdict(list)
        for key in side:
            if key in kept:
                last = key
            else:
                groups[last].append(key)
        behind.append(groups)
    found: list[K] = []
    tied = False
    for anchor in (None, *first):
        if anchor is not None:
            found.append(anchor)
        groups_here = sorted(filter(None, (groups.get(anchor) for groups in behind)), key=by)
        tied = tied or len(groups_here) > 1
        for group in groups_here:
            found += group
    return found, tied


def slots_of(node: Node) -> Iterator[tuple[str, Saved]]:
    """Yield the saved slots of a node by unique names, with a number from the second of a name on."""
    names = numbered(slot.slot for slot in node.saved)
    return (("#".join(map(str, name)), slot) for name, slot in zip(names, node.saved, strict=True))
