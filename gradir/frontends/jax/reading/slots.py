"""What the operations of a graph keep for the backward, as saved slots."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from gradir.frontends.jax.reading.flatten import Flattener
from gradir.frontends.jax.reading.jaxprs import bytes_of, meta_of
from gradir.frontends.jax.reading.probe import Kept, hands_out_copies
from gradir.frontends.jax.reading.regions import find_held
from gradir.frontends.jax.reading.values import Branch, Record, Region, Value, outermost
from gradir.ir import Saved
from gradir.ir.model import bounded

__all__ = ["Slot", "Slots"]


class Slot(NamedTuple):
    """A saved slot, the value that is kept where it is one of the program's, and what stands for its storage."""

    saved: Saved
    value: Value | None
    storage: Hashable


class Slots:
    """The slots of records, once it is known what lies on a path."""

    def __init__(self, flat: Flattener) -> None:
        self._added: dict[int, list[Value]] = {}
        self._places: dict[Hashable, int] = {}
        self._counts: Counter[Hashable] = Counter()
        # A storage is known by its value, which has to live as long as that is.
        for region in flat.regions:
            if region.outer is None and any(value.is_live for value in region.outputs):
                find_held(region)
        self._give_out(flat)

    def of(self, record: Record) -> Iterator[Slot]:
        """The slots of a record, in order."""
        region = outermost(record.context.region)
        around = record.context.branch if region is None else region.branch
        if region is None:
            for slot in self._of_conditional(record):
                yield self._in_branches(slot, around)
        for slot in self._own(record, region):
            yield self._in_branches(slot, around)

    def _of_conditional(self, record: Record) -> Iterator[Slot]:
        """Which branch ran, and zeros for the gradient of an output that not all branches differentiate."""
        loops = record.context.loops
        if record.branches:
            yield Slot(_sized(Saved("index"), record.inputs[0].aval, loops), None, (id(record), "index"))
        for output, joined in zip(record.outputs, record.joins or (), strict=False):
            for branch, slot in zip(record.branches, joined, strict=False):
                if output.is_live and not record.inputs[slot].is_active:
                    zeros = Slot(_sized(Saved(f"zero{slot}"), output.aval, loops), None, (id(record), slot))
                    yield self._in_branch(zeros, branch)

    def _own(self, record: Record, region: Region | None) -> Iterator[Slot]:
        used: set[int] = set()
        made = 0
        for kept in record.probe.kept if record.probe is not None else ():
            value = _value_of(record, kept)
            if value is None:
                loops = max((record.inputs[slot].loops for slot in kept.inputs), key=len, default=())
                saved = _sized(Saved(f"new{made}"), kept.aval, loops)
                made += 1
                yield _in_state(Slot(saved, None, (id(record), saved.slot)), region is None)
            elif value.kind != "literal":
                used.add(id(value))
                slot = _slot_of(f"{kept.kind}{kept.number}", value)
                yield _in_state(slot, region is None or id(value) in region.held)
        for value in self._added.get(id(record), ()):
            if id(value) not in used:
                yield _slot_of("kept", value)

    def _in_branches(self, slot: Slot, branch: Branch | None) -> Slot:
        """A slot that the conditionals around it hand out, the innermost first."""
        while branch is not None:
            slot = self._in_branch(slot, branch)
            branch = branch.outer
        return slot

    def _in_branch(self, slot: Slot, branch: Branch) -> Slot:
        """A slot in a branch, whose values JAX hands out of the conditional: a copy for each round.

        Those of one type share a place, whichever branch ran. Before 0.12 what comes from outside is copied too, even a
        weight.
        """
        saved, value, storage = slot
        if saved.state != "held" or (value is not None and _is_outside(value, branch) and not hands_out_copies()):
            return slot
        if value is not None and value.kind != "slice":
            loops = max(value.loops, branch.loops, key=len)
            saved = _sized(saved, value.aval, loops)
        key = branch, storage
        if key not in self._places:
            kind = branch, saved.dtype, saved.shape
            self._counts[kind] += 1
            self._places[key] = self._counts[kind]
        shared = "branches", branch.conditional, saved.dtype, saved.shape, self._places[key]
        is_copied = value is not None and value.kind == "argument"
        return Slot(saved, None if is_copied else value, shared)

    def _give_out(self, flat: Flattener) -> None:
        """What a region holds and no operation of it keeps goes to the one that made it, or that reads it first."""
        live = [record for record in flat.records if any(value.is_live for value in record.outputs)]
        of_region: dict[int, list[Record]] = {}
        for record in live:
            region = outermost(record.context.region)
            if region is not None:
                of_region.setdefault(id(region), []).append(record)
        for region in flat.regions:
            if region.held:
                self._give_out_of(region, of_region.get(id(region), []))

    def _give_out_of(self, region: Region, records: Sequence[Record]) -> None:
        kept: set[int] = set()
        readers: dict[int, Record] = {}
        for record in records:
            for each in record.probe.kept if record.probe is not None else ():
                value = _value_of(record, each)
                if value is not None:
                    kept.add(id(value))
            for value in record.inputs:
                readers.setdefault(id(value), record)
        for value in region.held.values():
            if id(value) in kept or value.kind == "literal":
                continue
            maker = value.record
            if maker is None or outermost(maker.context.region) is not region:
                maker = readers.get(id(value), records[0] if records else None)
            if maker is not None:
                self._added.setdefault(id(maker), []).append(value)


def _value_of(record: Record, kept: Kept) -> Value | None:
    if kept.kind == "new":
        return None
    return (record.inputs if kept.kind == "in" else record.outputs)[kept.number]


def _is_outside(value: Value, branch: Branch) -> bool:
    """Whether a value is made outside the conditional that a branch is of."""
    if value.record is None:
        return value.kind != "carry" or len(value.loops) <= len(branch.loops)
    inside = value.record.context.branch
    while inside is not None:
        if inside.conditional == branch.conditional:
            return False
        inside = inside.outer
    return True


def _slot_of(name: str, value: Value) -> Slot:
    """The slot of a value; of a part that a round takes, it is the whole that is kept."""
    while value.kind == "slice" and value.start is not None:
        value = value.start
    return Slot(_sized(Saved(name), value.aval, value.loops), value, id(value))


def _in_state(slot: Slot, is_held: bool) -> Slot:
    """A slot that is held, or that a checkpoint makes anew."""
    if is_held:
        return slot
    return Slot(replace(slot.saved, state="recomputed", bytes=None), slot.value, None)


def _sized(saved: Saved, aval: Any, loops: tuple[int, ...]) -> Saved:
    """A slot with the type of what it keeps of every round."""
    tensor, size = meta_of(aval, loops), bytes_of(aval)
    kept = None if size is None else bounded(size * math.prod(loops))
    return replace(saved, dtype=tensor.dtype, shape=tensor.shape, bytes=kept)
