"""What follows from shapes: computed anew in a node that both sides changed, or a conflict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from gradir.diffs.merging.values import Combiner, slots_of
from gradir.ir.model import MOST, Saved, TensorMeta, bounded
from gradir.ir.totals import tensor_elements

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    from gradir.ir import Node

Types = tuple["TensorMeta | None", ...]
"""Of which dtype and shape each input of a node is."""

_MET: Final = "both edits change its sizes, and only a capture tells what they come to together"
_STALE: Final = "one side changed the shape or dtype of what the other side's operation takes"


def types_into(node: Node, nodes: Mapping[str, Node]) -> Types:
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

    def settled(self, node: Node, nodes: Mapping[str, Node]) -> tuple[Node, str]:
        """Return the merged node with its figures, and why they cannot be known."""
        now = types_into(node, nodes)
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
        self._are_by_element = all(_by_element(slot) is not None for slot in slots)
        counts = (
            {name for name, value in record.attrs.items() if type(value) is int and value == _elements(types) > 1}
            for record, types in zip(records, self._types, strict=True)
        )
        self._counts = set.intersection(*counts)
        self.records = [
            replace(
                record,
                saved=tuple(replace(slot, bytes=_by_element(slot)) for slot in record.saved)
                if self._are_by_element
                else record.saved,
                attrs={**record.attrs, **dict.fromkeys(self._counts, 1)},
            )
            for record in records
        ]

    def _meet(self) -> bool:
        """Return whether a size may follow from both edits.

        If the edits differ and made a size the same, both may be factors of it, such as a batch and a length in a
        flat size. A size that only one side has does not include the other's edit.
        """
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


def _by_element(slot: Saved) -> int | None:
    """Return the bytes of a slot by element; nothing if that is no integer."""
    count = tensor_elements(slot.tensor)
    if slot.bytes is None or not 0 < count < MOST or slot.bytes % count:
        return None
    return slot.bytes // count


def _elements(types: Types) -> int:
    """Return the number of elements of the first input."""
    first = types[0] if types else None
    return 0 if first is None else tensor_elements(first)


def _sizes(node: Node, types: Types) -> Iterator[tuple[Hashable, Any]]:
    """Yield each size of a node and of its inputs by its place."""
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
