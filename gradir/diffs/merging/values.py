"""What two sides made of one value, together, and what follows from shapes: computed anew, or a conflict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from gradir.diffs.field_changes import numbered
from gradir.diffs.hunks import are_identical
from gradir.ir import Node, Ref, Saved, Source, TensorMeta
from gradir.ir.model import MOST, NonFinite, Record, bounded
from gradir.ir.totals import tensor_elements

K = TypeVar("K", bound=Hashable)

# Records that are one value.
_WHOLE: Final = (Ref, NonFinite)


class Combiner:
    """Combines values of three graphs, and counts where both sides made another thing of one."""

    def __init__(self) -> None:
        self.clashes = 0

    def of(self, base: Any, ours: Any, theirs: Any) -> Any:
        """Return the value of both edits; if they clash, one of the two."""
        if is_same_value(ours, theirs) or is_same_value(theirs, base):
            return ours
        if is_same_value(ours, base):
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
        order, _ = merge_orders([key for key in side if found.get(key, UNSET) is not UNSET] for side in sides)
        return tuple(found[key] for key in order)


def _bare(slot: Any) -> Any:
    return replace(slot, origin=None, storage="")


def _place(base: Any, ours: Source, theirs: Source) -> Source:
    """Return a line moved by both sides; a line says where and not what, so it never clashes."""
    if type(base) is not Source or not base.file == ours.file == theirs.file:
        return max(ours, theirs, key=msgspec.structs.astuple)
    function = pick(base.function, ours.function, theirs.function)
    return replace(ours, line=max(0, ours.line + theirs.line - base.line), function=function)


def is_same_value(one: Any, other: Any) -> bool:
    """Return whether two values are equal in type too, as `are_identical` says of records and mappings."""
    return one is other or (are_identical(one, other) and (not isinstance(one, tuple) or repr(one) == repr(other)))


def pick(base: Any, ours: Any, theirs: Any) -> Any:
    """Return the value that one side changed; if both did, the larger, whoever made it."""
    if ours == base:
        return theirs
    return ours if theirs == base else max(ours, theirs)


def merge_orders(orders: Iterable[Sequence[K]], by: Callable[[list[K]], Any] = list) -> tuple[list[K], bool]:
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


# Of which dtype and shape each input of a node is.
Types = tuple["TensorMeta | None", ...]
_MET: Final = "both edits change its sizes, and only a capture tells what they come to together"
_STALE: Final = "one side changed the shape or dtype of what the other side's operation takes"


def input_types(node: Node, nodes: Mapping[str, Node]) -> Types:
    """Return the dtype and shape of each input of a node; ``nodes`` are those that it refers to."""
    found: list[TensorMeta | None] = []
    for ref in node.inputs:
        outputs = () if ref is None or ref.id not in nodes else nodes[ref.id].outputs
        found.append(outputs[ref.output_nr] if ref is not None and ref.output_nr < len(outputs) else None)
    return tuple(found)


class Figures:
    """The figures of one node of three graphs that follow from shapes.

    ``records`` are the nodes to merge, in which bytes and numbers of elements stand by element if both sides changed
    the node. So a size that one side changed and a dtype that the other changed are both in the product.
    """

    def __init__(self, records: Sequence[Node | None], types: Sequence[Types]) -> None:
        self.records = list(records)
        self._types = types
        self._are_by_element = False
        self._counts: set[str] = set()
        base, ours, theirs = records
        self._are_inputs_kept = self._is_open = False
        if base and ours and theirs:
            self._are_inputs_kept = base.inputs == ours.inputs == theirs.inputs
            before, *after = zip(records, types, strict=True)
            if before not in after and after[0] != after[1]:
                self._divide([base, ours, theirs])
                self._is_open = self._meet()

    def settle(self, node: Node, nodes: Mapping[str, Node]) -> tuple[Node, str]:
        """Return the merged node with its figures, and why they cannot be known."""
        now = input_types(node, nodes)
        if self._is_open:
            return node, _MET
        if not self._are_inputs_kept and all(ref is None or ref.id in nodes for ref in node.inputs):
            base, *both = (types if record else UNSET for record, types in zip(self.records, self._types, strict=True))
            sides = [types for types in both if types is not UNSET]
            combiner = Combiner()
            # Where only one side has the node, its inputs have to be as they are there.
            merged = combiner.of(base, *sides) if len(sides) > 1 else sides[0]
            if merged != now or combiner.clashes:
                return node, _STALE
        if self._are_by_element:
            saved = tuple(
                slot if slot.bytes is None else replace(slot, bytes=bounded(slot.bytes * tensor_elements(slot.tensor)))
                for slot in node.saved
            )
            node = replace(node, saved=saved)
        counts = {name: _elements(now) for name in self._counts & node.attrs.keys()}
        return replace(node, attrs={**node.attrs, **counts}) if counts else node, ""

    def _divide(self, records: Sequence[Node]) -> None:
        slots = [slot for record in records for slot in record.saved if slot.bytes is not None]
        self._are_by_element = all(_bytes_per_element(slot) is not None for slot in slots)
        counts = (
            {name for name, value in record.attrs.items() if type(value) is int and value == _elements(types) > 1}
            for record, types in zip(records, self._types, strict=True)
        )
        self._counts = set.intersection(*counts)
        self.records = [
            replace(
                record,
                saved=tuple(replace(slot, bytes=_bytes_per_element(slot)) for slot in record.saved)
                if self._are_by_element
                else record.saved,
                attrs={**record.attrs, **dict.fromkeys(self._counts, 1)},
            )
            for record in records
        ]

    def _meet(self) -> bool:
        # If the edits differ and made a size the same, both may be factors of it, such as a batch and a length in a
        # flat size. A size that only one side has does not include the other's edit.
        base, ours, theirs = (
            dict(_sizes(record, types)) if record else {}
            for record, types in zip(self.records, self._types, strict=True)
        )
        if ours == theirs or base in (ours, theirs):
            return False
        if self._is_reshaped(1, 2) or self._is_reshaped(2, 1):
            return True
        alike = (place for place in base if base[place] != ours.get(place) == theirs.get(place))
        return next(alike, None) is not None or not (ours.keys() ^ theirs.keys()) <= base.keys()

    def _is_reshaped(self, side: int, other: int) -> bool:
        """Return whether one side changed the operation and its output, and the other side changed its inputs."""
        before, after = self.records[0], self.records[side]
        types = self._types[0]
        return (
            types == self._types[side] != self._types[other]
            # An input that the graph does not have may be what changed the output.
            and None not in types
            and (before and before.outputs) != (after and after.outputs)
            and (before and (before.op, before.attrs)) != (after and (after.op, after.attrs))
        )


def _bytes_per_element(slot: Saved) -> int | None:
    """Return the bytes of a slot by element; nothing if that is no integer."""
    count = tensor_elements(slot.tensor)
    if slot.bytes is None or not 0 < count < MOST or slot.bytes % count:
        return None
    return slot.bytes // count


def _elements(types: Types) -> int:
    first = types[0] if types else None
    return 0 if first is None else tensor_elements(first)


def _sizes(node: Node, types: Types) -> Iterator[tuple[Hashable, Any]]:
    for kind, tensors in (("in", types), ("out", node.outputs)):
        for number, tensor in enumerate(tensors):
            for at, size in enumerate((tensor and tensor.shape) or ()):
                yield (kind, number, at), size
    for name, slot in slots_of(node):
        yield ("bytes", name), (slot.dtype, slot.bytes)
        for at, size in enumerate(slot.shape or ()):
            yield ("saved", name, at), size
    for name, value in node.attrs.items():
        numbers = value if isinstance(value, tuple) else (value,)
        yield from ((("attr", name, at), number) for at, number in enumerate(numbers) if type(number) is int)
