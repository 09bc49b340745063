"""Combine two edits of one value, and recompute values that follow from shapes, or find a conflict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from gradir.diffs.hunks import are_identical
from gradir.diffs.sequences import number_repeats
from gradir.ir import Node, Ref, Saved, Source, TensorMeta
from gradir.ir.model import INT64_MAX, NonFinite, Record, clamp_size
from gradir.ir.totals import tensor_elements

K = TypeVar("K", bound=Hashable)

# Records that are one value.
_WHOLE: Final = (Ref, NonFinite)


class Combiner:
    """Combines values of three graphs, and counts the values that both sides changed differently."""

    def __init__(self) -> None:
        self.clashes = 0

    def combine(self, base: Any, ours: Any, theirs: Any) -> Any:
        """Return the value with both edits, or one of the two if they clash."""
        if is_same_value(ours, theirs) or is_same_value(theirs, base):
            return ours
        return theirs if is_same_value(ours, base) else self._combine_parts(base, ours, theirs)

    def _combine_parts(self, base: Any, ours: Any, theirs: Any) -> Any:
        is_same_type = type(ours) is type(theirs)
        if is_same_type and isinstance(ours, Source):
            return _combine_lines(base, ours, theirs)
        if is_same_type and isinstance(ours, Record) and not isinstance(ours, _WHOLE):
            fields = ours.__struct_fields__
            sides = [[getattr(side, field, UNSET) for field in fields] for side in (base, ours, theirs)]
            return replace(ours, **dict(zip(fields, map(self.combine, *sides), strict=True)))
        if is_same_type and isinstance(ours, Mapping):
            return self._combine_mappings(base if isinstance(base, Mapping) else {}, ours, theirs)
        if is_same_type and isinstance(ours, tuple):
            if any(type(entry) is Saved for entry in (*ours, *theirs)):
                return self._combine_slots(base or (), ours, theirs)
            if len(ours) == len(theirs):
                bases = base if isinstance(base, tuple) and len(base) == len(ours) else repeat(UNSET)
                return tuple(map(self.combine, bases, ours, theirs))
        self.clashes += 1
        return ours

    def _combine_mappings(self, *sides: Mapping[str, Any]) -> dict[str, Any]:
        keys = sorted({key for side in sides for key in side})
        found = {key: self.combine(*(side.get(key, UNSET) for side in sides)) for key in keys}
        return {key: value for key, value in found.items() if value is not UNSET}

    def _combine_slots(self, *slots: Sequence[Saved]) -> tuple[Saved, ...]:
        """Return saved slots by name, without a slot that a side dropped if the other only changed its source."""
        sides = [dict(zip(number_repeats(slot.slot for slot in side), side, strict=True)) for side in slots]
        found = {}
        for key in dict.fromkeys(key for side in sides for key in side):
            base, *both = (side.get(key, UNSET) for side in sides)
            is_dropped = base is not UNSET and UNSET in both
            if is_dropped and all(slot is UNSET or _without_source(slot) == _without_source(base) for slot in both):
                continue
            found[key] = self.combine(base, *both)
        order, _ = merge_orders([key for key in side if found.get(key, UNSET) is not UNSET] for side in sides)
        return tuple(found[key] for key in order)


def _without_source(slot: Any) -> Any:
    return replace(slot, origin=None, storage="")


def _combine_lines(base: Any, ours: Source, theirs: Source) -> Source:
    """Return a line moved by both sides, which never clashes, since a place is no content."""
    if type(base) is not Source or not base.file == ours.file == theirs.file:
        return max(ours, theirs, key=msgspec.structs.astuple)
    function = pick(base.function, ours.function, theirs.function)
    return replace(ours, line=max(0, ours.line + theirs.line - base.line), function=function)


def is_same_value(one: Any, other: Any) -> bool:
    """Return whether two values are equal in value and type, see `are_identical`."""
    return one is other or (are_identical(one, other) and (not isinstance(one, tuple) or repr(one) == repr(other)))


def pick(base: Any, ours: Any, theirs: Any) -> Any:
    """Return the value that one side changed, or the larger value if both did."""
    if ours == base:
        return theirs
    return ours if theirs == base else max(ours, theirs)


def merge_orders(orders: Iterable[Sequence[K]], by: Callable[[list[K]], Any] = list) -> tuple[list[K], bool]:
    """Return the orders of the base and both sides as one, and whether both sides inserted in the same place.

    An entry of one side follows its predecessor there. If both sides inserted entries, the smaller ones come first, by
    the key function ``by``. Common entries have the order of the side that changed it.
    """
    base, ours, theirs = orders
    common = {*ours} & {*theirs}
    anchors = pick(*([key for key in side if key in common] for side in (base, ours, theirs)))
    inserted: list[defaultdict[K | None, list[K]]] = []
    for side in (ours, theirs):
        last: K | None = None
        groups: defaultdict[K | None, list[K]] = defaultdict(list)
        for key in side:
            if key in common:
                last = key
            else:
                groups[last].append(key)
        inserted.append(groups)
    found: list[K] = []
    tied = False
    for anchor in (None, *anchors):
        if anchor is not None:
            found.append(anchor)
        both = sorted(filter(None, (groups.get(anchor) for groups in inserted)), key=by)
        tied = tied or len(both) > 1
        found += chain.from_iterable(both)
    return found, tied


def slots_of(node: Node) -> Iterator[tuple[str, Saved]]:
    """Yield the saved slots of a node by unique names, with a number if a name repeats."""
    names = number_repeats(slot.slot for slot in node.saved)
    return (("#".join(map(str, name)), slot) for name, slot in zip(names, node.saved, strict=True))


# The dtype and shape of each input of a node.
Types = tuple["TensorMeta | None", ...]
_MET: Final = "both edits change its sizes; capture the merged program"
_STALE: Final = "one side changed the shape or dtype of an input of the other side's operation"


def input_types(node: Node, nodes: Mapping[str, Node]) -> Types:
    """Return the dtype and shape of each input of a node."""
    return tuple(
        nodes[ref.id].outputs[ref.output_nr]
        if ref is not None and ref.id in nodes and ref.output_nr < len(nodes[ref.id].outputs)
        else None
        for ref in node.inputs
    )


class Figures:
    """The numbers of one node in three graphs that follow from shapes.

    ``records`` are the nodes to merge. If both sides changed the node, they have bytes per element instead of bytes. So
    the product includes a size that one side changed and a dtype that the other changed.
    """

    def __init__(self, records: Sequence[Node | None], types: Sequence[Types]) -> None:
        self.records = list(records)
        self._types = types
        self._are_by_element = False
        self._counts: set[str] = set()
        base, ours, theirs = records
        self._has_same_inputs = self._is_open = False
        if base and ours and theirs:
            self._has_same_inputs = base.inputs == ours.inputs == theirs.inputs
            before, *after = zip(records, types, strict=True)
            if before not in after and after[0] != after[1]:
                self._divide([base, ours, theirs])
                self._is_open = self._needs_capture()

    def settle(self, node: Node, nodes: Mapping[str, Node]) -> tuple[Node, str]:
        """Return the merged node with its numbers, and the reason if a merge cannot compute them."""
        types = input_types(node, nodes)
        if self._is_open:
            return node, _MET
        if not self._has_same_inputs and all(ref is None or ref.id in nodes for ref in node.inputs):
            base, *both = (types if record else UNSET for record, types in zip(self.records, self._types, strict=True))
            sides = [types for types in both if types is not UNSET]
            combiner = Combiner()
            # If only one side has the node, its inputs must not change.
            expected = combiner.combine(base, *sides) if len(sides) > 1 else sides[0]
            if expected != types or combiner.clashes:
                return node, _STALE
        if self._are_by_element:
            saved = tuple(
                slot
                if slot.bytes is None
                else replace(slot, bytes=clamp_size(slot.bytes * tensor_elements(slot.tensor)))
                for slot in node.saved
            )
            node = replace(node, saved=saved)
        counts = dict.fromkeys(self._counts & node.attrs.keys(), _elements(types))
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

    def _needs_capture(self) -> bool:
        # If different edits made a size the same, both may be factors of it, such as a batch and a length in a flat
        # size. A size of only one side does not include the other's edit.
        base, ours, theirs = (
            dict(_sizes(record, types)) if record else {}
            for record, types in zip(self.records, self._types, strict=True)
        )
        if ours == theirs or base in (ours, theirs):
            return False
        if self._is_reshaped(1, 2) or self._is_reshaped(2, 1):
            return True
        is_same_size = any(base[place] != ours.get(place) == theirs.get(place) for place in base)
        return is_same_size or not (ours.keys() ^ theirs.keys()) <= base.keys()

    def _is_reshaped(self, side: int, other: int) -> bool:
        """Return whether one side changed the operation and its output, and the other side changed its inputs."""
        before, after = self.records[0], self.records[side]
        types = self._types[0]
        return (
            types == self._types[side] != self._types[other]
            # An input outside of the graph may have changed the output.
            and None not in types
            and (before and before.outputs) != (after and after.outputs)
            and (before and (before.op, before.attrs)) != (after and (after.op, after.attrs))
        )


def _bytes_per_element(slot: Saved) -> int | None:
    """Return the bytes of a slot per element, if an integer."""
    count = tensor_elements(slot.tensor)
    if slot.bytes is None or not 0 < count < INT64_MAX or slot.bytes % count:
        return None
    return slot.bytes // count


def _elements(types: Types) -> int:
    return tensor_elements(types[0]) if types and types[0] else 0


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
