"""Find the values on a path of gradient from an output to the differentiated leaves, and the ends of other paths.

Equations are read once from the last to the first: each value learns the first equation at which its gradient ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, zip_longest
from typing import Any, NamedTuple

from gradir.frontends.jax.reading.flatten import Flattener, Record, Value
from gradir.frontends.jax.reading.jaxprs import CUSTOM, is_inexact
from gradir.frontends.jax.reading.probe import Probe, probe
from gradir.frontends.walks import grouped, reached


def find_paths(flat: Flattener, outputs: Sequence[Value]) -> None:
    """Mark every value that is active, tainted or live, and leave in each record on the way what JAX says of it."""
    forward = _Forward(flat)
    forward.spread()
    active = [value for value in outputs if value.is_active]
    for value in reached(active, lambda value: (each for each in sources_of(value) if each.is_active)):
        value.is_live = True
    forward.narrow()


def sources_of(value: Value) -> list[Value]:
    """Return the values by which gradient goes on from one that it has come to."""
    record = value.record
    if record is None:
        return value.ends
    if record.joins is not None:
        return [record.inputs[slot] for slot in record.joins[value.number]]
    reaches = record.probe.reaches[value.number] if record.probe is not None else ()
    return [each for each, is_reached in zip(record.inputs, reaches, strict=False) if is_reached]


def takes(record: Record, slot: int) -> bool:
    """Return whether gradient goes on by an input slot of a record that is on a path."""
    if not record.inputs[slot].is_live:
        return False
    if record.joins is not None:
        return any(
            slot in joined and (output.is_live or (carry is not None and carry.is_live))
            for joined, output, carry in zip_longest(record.joins, record.outputs, record.carries)
        )
    reaches = record.probe.reaches if record.probe is not None else ()
    return any(output.is_live and row[slot] for output, row in zip(record.outputs, reaches, strict=False))


class _Forward:
    """Spreads from what is differentiated. What a record makes is looked at again when an input of it changed."""

    def __init__(self, flat: Flattener) -> None:
        self._flat = flat
        self._probes: dict[Any, Probe] = {}
        reads = ((key, record) for record in flat.records for key in dict.fromkeys(map(id, record.inputs)))
        ends = ((id(end), varying) for varying in flat.varying for end in varying.ends)
        self._readers: dict[int, list[Record | Value]] = grouped(chain[tuple[int, Record | Value]](reads, ends))

    def spread(self) -> None:
        waiting: deque[Record | Value] = deque([*self._flat.varying, *self._flat.records])
        queued = {id(each) for each in waiting}
        while waiting:
            each = waiting.popleft()
            queued.discard(id(each))
            for value in self._changed(each) if isinstance(each, Value) else self._made(each):
                for reader in self._readers.get(id(value), ()):
                    if id(reader) not in queued:
                        queued.add(id(reader))
                        waiting.append(reader)

    def narrow(self) -> None:
        """Take from the records what they keep for gradients alone that come from no output."""
        for record in self._flat.records:
            live = [value.is_live for value in record.outputs]
            found = record.probe
            if found is None or found.error or not any(live):
                continue
            if any(not is_on and is_inexact(value.aval) for is_on, value in zip(live, record.outputs, strict=True)):
                narrow = self._probe(record, [value.is_active for value in record.inputs], live)
                record.probe = replace(found, kept=narrow.kept, backward=narrow.backward)

    def _changed(self, value: Value) -> list[Value]:
        is_active = is_inexact(value.aval) and any(end.is_active for end in value.ends)
        return [value] * _mark(value, is_active, any(end.is_tainted for end in value.ends))

    def _made(self, record: Record) -> Iterator[Value]:
        active = [value.is_active for value in record.inputs]
        tainted = [value.is_tainted for value in record.inputs]
        joins = record.joins
        if joins is None and any(active):
            record.probe = self._probe(record, active, [True] * len(record.outputs))
        for number, output in enumerate(record.outputs):
            is_active = any(value.is_active for value in sources_of(output))
            # The first input of a conditional chooses its branch.
            slots = range(len(tainted)) if joins is None else (*joins[number], *[0] * (record.op == "cond"))
            is_tainted = any(tainted[slot] for slot in slots)
            if _mark(output, is_active and is_inexact(output.aval), is_tainted):
                yield output

    def _probe(self, record: Record, active: list[bool], wanted: list[bool]) -> Probe:
        key = _key(record, active, wanted)
        if key is None:
            return probe(record, active, wanted)
        if key not in self._probes:
            self._probes[key] = probe(record, active, wanted)
        return self._probes[key]


def _mark(value: Value, is_active: bool, is_tainted: bool) -> bool:
    changed = (is_active and not value.is_active) or (is_tainted and not value.is_tainted)
    value.is_active |= is_active
    value.is_tainted |= is_tainted
    return changed


def _key(record: Record, active: list[bool], wanted: list[bool]) -> Any:
    """Return a key that equal equations share, ``None`` if a parameter cannot be compared."""
    # Which slots take the same variable tells what is kept, each value once.
    places: dict[int, int] = {}
    inputs = tuple(
        (value.aval, repr(value.literal) if value.kind == "literal" else places.setdefault(id(atom), len(places)))
        for value, atom in zip(record.inputs, record.eqn.invars, strict=True)
    )
    key = (record.eqn.primitive, tuple(sorted(record.eqn.params.items())), tuple(active), tuple(wanted), inputs)
    try:
        hash(key)
    except TypeError:
        return None
    return key


class End(NamedTuple):
    """The operation at which gradient ends, and the leaves behind it; without one, leaves that nothing reads."""

    record: Record | None
    leaves: tuple[Value, ...]


def kind_of(record: Record) -> str:
    """Return the kind of cut that an operation makes."""
    if record.native in CUSTOM:
        return "custom_rule"
    return "stop_gradient" if record.native == "stop_gradient" else "nondifferentiable"


class Ends:
    """The ends of gradient in a function."""

    def __init__(self, flat: Flattener, outputs: Sequence[Value]) -> None:
        self._records = flat.records
        self._numbers = {id(record): number for number, record in enumerate(flat.records)}
        self._varying = grouped((id(end), value) for value in flat.varying for end in value.ends)
        self._matter = set(reached(outputs, _behind))
        self._ends: dict[int, int] = {}
        self._find()

    def of(self, leaves: Sequence[Value]) -> Iterator[End]:
        """Yield the ends of gradient before some leaves, in the order of the program."""
        behind = grouped((self._ends.get(id(leaf), -1) if leaf in self._matter else -1, leaf) for leaf in leaves)
        for number, these in sorted(behind.items()):
            yield End(None if number < 0 else self._records[number], tuple(these))

    def taking(self, record: Record) -> tuple[Record, int] | None:
        """The first operation on a path, and the slot, that takes what a cutting operation made, without gradient."""
        made = {id(value) for value in record.outputs}
        for later in self._records[self._numbers[id(record)] + 1 :]:
            hits = [slot for slot, value in enumerate(later.inputs) if id(value) in made]
            if not hits:
                continue
            if any(value.is_live for value in later.outputs) and later.joins is None:
                return later, hits[0]
            made.update(id(value) for value in later.outputs)
        return None

    def _find(self) -> None:
        # What a round hands to the next is known only after a look at the whole loop.
        changed = True
        while changed:
            changed = False
            for number in range(len(self._records) - 1, -1, -1):
                for slot, value in enumerate(self._records[number].inputs):
                    changed |= self._note(value, self._end_behind(number, slot))
                    for varying in self._varying.get(id(value), ()):
                        changed |= self._note(value, self._ends.get(id(varying)))
            for values in self._varying.values():
                for varying in values:
                    for end in varying.ends:
                        changed |= self._note(end, self._ends.get(id(varying)))
            changed &= bool(self._varying)

    def _note(self, value: Value, end: int | None) -> bool:
        if end is None or not value.is_active or self._ends.get(id(value), len(self._records)) <= end:
            return False
        self._ends[id(value)] = end
        return True

    def _end_behind(self, number: int, slot: int) -> int | None:
        """The number of the first record at which the gradient of an input ends, of those that the way by it meets."""
        record = self._records[number]
        value = record.inputs[slot]
        if not value.is_active:
            return None
        joins, reaches = record.joins, record.probe.reaches if record.probe is not None else None
        reads = [
            (output, is_inexact(output.aval) and (joins is not None or (reaches is not None and reaches[place][slot])))
            for place, output in enumerate(record.outputs)
            if output in self._matter and (joins is None or slot in joins[place])
        ]
        if not reads:
            return None
        passing = [output for output, passes in reads if passes]
        if not passing:
            return number
        return min((self._ends[id(output)] for output in passing if id(output) in self._ends), default=None)


def _behind(value: Value) -> list[Value]:
    record = value.record
    if record is None or record.joins is None:
        return [*value.ends, *(() if record is None else record.inputs)]
    return [*value.ends, *sources_of(value), *(record.inputs[:1] if record.op == "cond" else ())]
