"""What the operations of a graph keep for the backward, as saved slots."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

from gradir.frontends.jax.reading.flatten import Flattener
from gradir.frontends.jax.reading.jaxprs import bytes_of, meta_of, type_of
from gradir.frontends.jax.reading.probe import Kept, hands_out_copies
from gradir.frontends.jax.reading.regions import find_held
from gradir.frontends.jax.reading.values import Branch, Loop, Record, Region, Value, outermost, varying
from gradir.ir import Saved
from gradir.ir.model import bounded

__all__ = ["Slot", "Slots"]


class Slot(NamedTuple):
    """What an operation keeps: of which type, the loops in which there is one a round, and what stands for its storage.

    ``value`` is the one of the program's that it is, where it is one.
    """

    name: str
    aval: Any
    loops: tuple[Loop, ...]
    storage: Hashable
    value: Value | None = None
    is_held: bool = True

    @property
    def saved(self) -> Saved:
        """The slot as it stands in the graph."""
        rounds = [loop.length for loop in self.loops]
        tensor, size = meta_of(self.aval, rounds), bytes_of(self.aval)
        kept = bounded(size * math.prod(rounds)) if self.is_held and size is not None else None
        return Saved(self.name, tensor.dtype, tensor.shape, kept, state="held" if self.is_held else "recomputed")


class Slots:
    """The slots of records, once it is known what lies on a path."""

    def __init__(self, flat: Flattener) -> None:
        self._added: dict[int, list[Value]] = {}
        self._places: dict[Hashable, int] = {}
        self._counts: Counter[Hashable] = Counter()
        # A storage is known by its value, which has to live as long as that is.
        outer = (region for region in flat.regions if region.outer is None)
        find_held(region for region in outer if any(value.is_live for value in region.outputs))
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
        if not record.branches:
            return
        index = record.inputs[0]
        if index.kind != "literal":
            yield Slot("index", index.aval, index.loops, (id(record), "index"))
        for output, joined in zip(record.outputs, record.joins or (), strict=False):
            for branch, slot in zip(record.branches, joined, strict=False):
                if output.is_live and not record.inputs[slot].is_active:
                    zeros = Slot(f"zero{slot}", output.aval, index.loops, (id(record), slot))
                    yield self._in_branch(zeros, branch)

    def _own(self, record: Record, region: Region | None) -> Iterator[Slot]:
        used: set[int] = set()
        made = 0
        for kept in record.probe.kept if record.probe is not None else ():
            value = _value_of(record, kept)
            if value is None:
                loops = varying(*(record.inputs[slot].loops for slot in kept.inputs))
                is_held = region is None or _takes_made(region, record, kept.aval)
                yield Slot(f"new{made}", kept.aval, loops, (id(record), made), is_held=is_held)
                made += 1
            elif value.kind != "literal":
                used.add(id(value))
                slot = _slot_of(f"{kept.kind}{kept.number}", value)
                yield slot._replace(is_held=region is None or id(value) in region.held)
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
        value = slot.value
        if not slot.is_held or (value is not None and _is_outside(value, branch) and not hands_out_copies()):
            return slot
        slot = slot._replace(loops=varying(slot.loops, branch.loops))
        kind = str(slot.aval.dtype), slot.saved.shape
        key = branch, slot.storage
        if key not in self._places:
            self._counts[branch, kind] += 1
            self._places[key] = self._counts[branch, kind]
        shared = "branches", branch.conditional, kind, self._places[key]
        is_copied = value is not None and value.kind == "argument"
        return slot._replace(value=None if is_copied else value, storage=shared)

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


def _takes_made(region: Region, record: Record, aval: Any) -> bool:
    """Whether a region holds one more value of a type that a record made to be kept; it is counted off."""
    key = id(record), type_of(aval)
    if not region.made[key]:
        return False
    region.made[key] -= 1
    return True


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
    """The slot of a value; of the parts that rounds take, it is the whole that is kept."""
    whole = value
    while whole.kind == "slice" and whole.start is not None:
        whole = whole.start
    return Slot(name, value.aval, value.loops, id(whole), whole)
