"""List the values that operations and checkpointed regions save for the backward pass, as saved slots."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import reduce
from typing import Any, Final, Literal, NamedTuple

import jax

from gradir.frontends.jax.reading import flatten, jaxprs
from gradir.frontends.jax.reading.flatten import Branch, Loop, Record, Region, Value, merge_loops, outermost_region
from gradir.frontends.jax.reading.probe import Residual, copies_branch_inputs, trace_pullback
from gradir.frontends.walks import follow
from gradir.ir import Saved
from gradir.ir.memo import group_by_key
from gradir.ir.model import clamp_size

_TAG: Final = "gradir "
# A policy wraps a saved value in these: the first moves it to another device memory, the second marks it.
_MARKS: Final = frozenset({"device_put", "reduce_precision"})


class _Held(NamedTuple):
    """A value that a region saves: an input, an output, or output ``number`` of a record, -1 for another value."""

    kind: Literal["in", "out", "made"]
    number: int
    aval: Any
    place: tuple[int, ...] = ()


def find_held(regions: Iterable[Region]) -> None:
    """Record the values that each outermost region saves for its backward pass."""
    known: dict[Hashable, list[_Held]] = {}
    for region in regions:
        params = jaxprs.params_of(region.eqn)
        active, live = (value.is_active for value in region.inputs), (value.is_live for value in region.outputs)
        own = id(region.jaxpr), id(params.get("policy")), params.get("prevent_cse", True)
        # Regions with equal keys, such as the layers of a model, save the same values. They keep these ids alive.
        key = *own, tuple(active), tuple(live)
        if key not in known:
            known[key] = [*_find_held_values(region)]
        for held in known[key]:
            _add_held(held, region)


def _find_held_values(region: Region) -> Iterator[_Held]:
    """Yield the values that a region saves: inputs, and those that its policy selects.

    gradir traces the pullback of the region under its policy. Scopes show which record made a saved value.
    """
    params = jaxprs.params_of(region.eqn)
    jaxpr, consts = jaxprs.open_jaxpr(region.jaxpr)

    def run(values: list[Any]) -> Any:
        policy, prevent_cse = params.get("policy"), params.get("prevent_cse", True)
        tagged = jax.checkpoint(lambda *each: _run_tagged(jaxpr, consts, each), prevent_cse=prevent_cse, policy=policy)
        return tagged(*values)

    live = [number for number, value in enumerate(region.outputs) if value.is_live]
    inputs, outputs = ([value.aval for value in values] for values in (region.inputs, region.outputs))
    found = trace_pullback(run, inputs, [value.is_active for value in region.inputs], outputs, live)
    for residual in found.residuals:
        if residual.kind != "new":
            yield _Held(residual.kind, residual.number, residual.aval)
        elif (held := _find_maker(found.forward, residual.var, region, ())) is not None:
            yield held


def _add_held(held: _Held, region: Region) -> None:
    if held.kind == "made":
        record = region.records[held.place]
        if held.number < 0:
            region.unnamed[id(record), jaxprs.type_of(held.aval)] += 1
            return
        value = record.outputs[held.number]
    else:
        value = (region.inputs if held.kind == "in" else region.outputs)[held.number]
    region.saved[id(value)] = value


def _run_tagged(jaxpr: Any, consts: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """Evaluate a jaxpr, with each equation in a scope named for its number."""
    known = {id(var): value for var, value in zip(jaxpr.constvars, consts, strict=True)}
    known.update((id(var), value) for var, value in zip(jaxpr.invars, values, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if jaxprs.is_literal(atom) else known[id(atom)]

    for number, eqn in enumerate(jaxpr.eqns):
        given = [read(atom) for atom in eqn.invars]
        with jax.named_scope(f"{_TAG}{number}"):
            if jaxprs.name_of(eqn) in jaxprs.CALLS:
                made: Sequence[Any] = _run_tagged(*jaxprs.open_jaxpr(jaxprs.inner_jaxpr(eqn)), given)
            else:
                single = jaxprs.isolate(eqn)
                made = single.run(*(given[slot] for slot in single.firsts))
        known.update((id(var), value) for var, value in zip(eqn.outvars, made, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _find_maker(jaxpr: Any, var: Any, region: Region, above: tuple[int, ...]) -> _Held | None:
    """Return the record, and its output if known, that made a variable of the traced forward."""
    while True:
        eqn, number = jaxprs.find_maker(jaxpr, var) or (None, 0)
        if eqn is None:
            return None
        scopes = (name for is_scope, name in jaxprs.stack_of(eqn) if is_scope and name.startswith(_TAG))
        tags = (name.removeprefix(_TAG) for name in scopes)
        place = (*above, *(int(tag) for tag in tags if tag.isdigit()))
        record = region.records.get(place)
        if jaxprs.name_of(eqn) in _MARKS and (record is None or record.native != jaxprs.name_of(eqn)):
            var = eqn.invars[0]
            continue
        called = jaxprs.inner_jaxpr(eqn)
        if called is not None and jaxprs.name_of(eqn) in jaxprs.CALLS | jaxprs.REMATS:
            jaxpr = jaxprs.open_jaxpr(called)[0]
            var, above = jaxpr.outvars[number], place
            continue
        if record is None:
            return None
        types = [jaxprs.type_of(value.aval) for value in record.outputs]
        wanted, is_own = jaxprs.type_of(var.aval), record.native == jaxprs.name_of(eqn)
        return _Held("made", types.index(wanted) if is_own and wanted in types else -1, var.aval, place)


class Slot(NamedTuple):
    """A value that an operation saves, with the loops that save one per round, and a key for its storage."""

    name: str
    aval: Any
    loops: tuple[Loop, ...]
    storage: Hashable
    value: Value | None = None
    is_held: bool = True

    @property
    def saved(self) -> Saved:
        """The slot in the graph."""
        rounds = [loop.length for loop in self.loops]
        tensor, size = jaxprs.meta_of(self.aval, rounds), jaxprs.bytes_of(self.aval)
        saved_bytes = clamp_size(size * math.prod(rounds)) if self.is_held and size is not None else None
        return Saved(self.name, tensor.dtype, tensor.shape, saved_bytes, state="held" if self.is_held else "recomputed")


class Slots:
    """The slots of records that `find_paths` has marked."""

    def __init__(self, flat: flatten.Flattener) -> None:
        self._added: dict[int, list[Value]] = {}
        self._places: dict[Hashable, int] = {}
        self._counts: Counter[Hashable] = Counter()
        outer = (region for region in flat.regions if region.outer is None)
        find_held(region for region in outer if any(value.is_live for value in region.outputs))
        records = ((id(outermost_region(each.context.region)), each) for each in flat.records if each.is_live)
        records_of = group_by_key(records)
        for region in flat.regions:
            if region.saved:
                self._assign_held(region, records_of.get(id(region), []))

    def of(self, record: Record) -> Iterator[Slot]:
        """Yield the slots of a record, in order."""
        region = outermost_region(record.context.region)
        around = record.context.branch if region is None else region.branch
        for slot in (*(self._conditional_slots(record) if region is None else ()), *self._own_slots(record, region)):
            # Each enclosing conditional returns the value, inner ones first.
            yield reduce(self._leave_branch, follow(around, lambda each: each.outer), slot)

    def _conditional_slots(self, record: Record) -> Iterator[Slot]:
        """Yield the index of the branch, and zeros for outputs that not all branches differentiate."""
        if not record.branches:
            return
        index = record.inputs[0]
        if index.kind != "literal":
            yield Slot("index", index.aval, index.loops, (id(record), "index"))
        for output, joined in zip(record.outputs, record.joins or (), strict=False):
            for branch, slot in zip(record.branches, joined, strict=False):
                if output.is_live and not record.inputs[slot].is_active:
                    zeros = Slot(f"zero{slot}", output.aval, index.loops, (id(record), slot))
                    yield self._leave_branch(zeros, branch)

    def _own_slots(self, record: Record, region: Region | None) -> Iterator[Slot]:
        used: set[int] = set()
        count = 0
        for residual in record.probe.residuals if record.probe is not None else ():
            value = _value_of(record, residual)
            if value is None:
                loops = merge_loops(*(record.inputs[slot].loops for slot in residual.inputs))
                is_held = region is None or _take_made(region, record, residual.aval)
                yield Slot(f"new{count}", residual.aval, loops, (id(record), count), is_held=is_held)
                count += 1
            elif value.kind != "literal":
                used.add(id(value))
                slot = _slot_of(f"{residual.kind}{residual.number}", value)
                yield slot._replace(is_held=region is None or id(value) in region.saved)
        for value in self._added.get(id(record), ()):
            if id(value) not in used:
                yield _slot_of("kept", value)

    def _leave_branch(self, slot: Slot, branch: Branch) -> Slot:
        """Return the slot of a value that JAX returns from a branch, with one copy per round."""
        value = slot.value
        # Before 0.12 JAX also copies values from outside, even a weight.
        if not slot.is_held or (value is not None and _is_outside(value, branch) and not copies_branch_inputs()):
            return slot
        slot = slot._replace(loops=merge_loops(slot.loops, branch.loops))
        kind = str(slot.aval.dtype), slot.saved.shape
        key = branch, slot.storage
        if key not in self._places:
            self._counts[branch, kind] += 1
            self._places[key] = self._counts[branch, kind]
        # JAX pads the results of branches to equal types, so results of one type share a storage across branches.
        shared = "branches", branch.conditional, kind, self._places[key]
        is_copied = value is not None and value.kind == "argument"
        return slot._replace(value=None if is_copied else value, storage=shared)

    def _assign_held(self, region: Region, records: Sequence[Record]) -> None:
        """Assign values of a region that no operation saves to their maker, or to their first reader."""
        saved: set[int] = set()
        readers: dict[int, Record] = {}
        for record in records:
            saved.update(id(_value_of(record, each)) for each in (record.probe.residuals if record.probe else ()))
            for value in record.inputs:
                readers.setdefault(id(value), record)
        for value in region.saved.values():
            if id(value) in saved or value.kind == "literal":
                continue
            maker = value.record
            if maker is None or outermost_region(maker.context.region) is not region:
                maker = readers.get(id(value), records[0] if records else None)
            if maker is not None:
                self._added.setdefault(id(maker), []).append(value)


def _value_of(record: Record, residual: Residual) -> Value | None:
    if residual.kind == "new":
        return None
    return (record.inputs if residual.kind == "in" else record.outputs)[residual.number]


def _take_made(region: Region, record: Record, aval: Any) -> bool:
    """Return whether a region saves one more value of this type that a record made, and count it off."""
    key = id(record), jaxprs.type_of(aval)
    if not region.unnamed[key]:
        return False
    region.unnamed[key] -= 1
    return True


def _is_outside(value: Value, branch: Branch) -> bool:
    if value.record is None:
        return value.kind != "carry" or len(value.loops) <= len(branch.loops)
    around = follow(value.record.context.branch, lambda each: each.outer)
    return all(inside.conditional != branch.conditional for inside in around)


def _slot_of(name: str, value: Value) -> Slot:
    """Return the slot of a value. JAX saves the array of a slice, not the slices."""
    whole = value
    while whole.kind == "slice" and whole.start is not None:
        whole = whole.start
    # The graph's records keep this value alive, so no other storage gets its id().
    return Slot(name, value.aval, value.loops, id(whole), whole)
