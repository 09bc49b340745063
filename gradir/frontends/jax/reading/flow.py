"""Find the paths of gradient from an output to the differentiated leaves, and the ends of other paths.

gradir reads the equations backwards and records for each value the first equation that ends its gradient.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, zip_longest
from typing import Any, Final, NamedTuple

from gradir.frontends.jax.reading.flatten import Flattener, Record, Value
from gradir.frontends.jax.reading.jaxprs import CUSTOM, is_inexact
from gradir.frontends.jax.reading.probe import Probe, probe
from gradir.frontends.walks import find_reachable
from gradir.ir.memo import group_by_key


def find_paths(flat: Flattener, outputs: Sequence[Value]) -> None:
    """Mark every value as active, tainted or live, and add to each record on a path its probe."""
    forward = _Forward(flat)
    forward.mark()
    active = [value for value in outputs if value.is_active]
    for value in find_reachable(active, lambda value: (each for each in sources_of(value) if each.is_active)):
        value.is_live = True
    forward.narrow()


def sources_of(value: Value) -> list[Value]:
    """Return the values to which the gradient of a value flows next."""
    record = value.record
    if record is None:
        return value.ends
    if record.joins is not None:
        return [record.inputs[slot] for slot in record.joins[value.number]]
    reaches = record.probe.reaches[value.number] if record.probe is not None else ()
    return [each for each, is_reached in zip(record.inputs, reaches, strict=False) if is_reached]


def is_on_path(record: Record, slot: int) -> bool:
    """Return whether gradient flows through an input slot of a record on a path."""
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
    """Marks the values that depend on differentiated leaves. It visits a record again after an input has changed."""

    def __init__(self, flat: Flattener) -> None:
        self._flat = flat
        self._probes: dict[Any, Probe] = {}
        reads = ((key, record) for record in flat.records for key in dict.fromkeys(map(id, record.inputs)))
        ends = ((id(end), varying) for varying in flat.varying for end in varying.ends)
        self._readers: dict[int, list[Record | Value]] = group_by_key(chain[tuple[int, Record | Value]](reads, ends))

    def mark(self) -> None:
        waiting: deque[Record | Value] = deque([*self._flat.varying, *self._flat.records])
        queued = {id(each) for each in waiting}
        while waiting:
            each = waiting.popleft()
            queued.discard(id(each))
            for value in self._mark_varying(each) if isinstance(each, Value) else self._mark_outputs(each):
                for reader in self._readers.get(id(value), ()):
                    if id(reader) not in queued:
                        queued.add(id(reader))
                        waiting.append(reader)

    def narrow(self) -> None:
        """Remove from the probes the saved values that only outputs without gradient need."""
        for record in self._flat.records:
            live = [value.is_live for value in record.outputs]
            found = record.probe
            if found is None or found.error or not any(live):
                continue
            if any(is_inexact(value.aval) and not value.is_live for value in record.outputs):
                narrow = self._probe(record, [value.is_active for value in record.inputs], live)
                record.probe = replace(found, residuals=narrow.residuals, backward=narrow.backward)

    def _mark_varying(self, value: Value) -> list[Value]:
        is_active = is_inexact(value.aval) and any(end.is_active for end in value.ends)
        return [value] * _mark(value, is_active, any(end.is_tainted for end in value.ends))

    def _mark_outputs(self, record: Record) -> Iterator[Value]:
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
        key = _probe_key(record, active, wanted)
        found = self._probes.get(key) or probe(record, active, wanted)
        if key is not None:
            self._probes[key] = found
        return found


def _mark(value: Value, is_active: bool, is_tainted: bool) -> bool:
    before = value.is_active, value.is_tainted
    value.is_active |= is_active
    value.is_tainted |= is_tainted
    return before != (value.is_active, value.is_tainted)


def _probe_key(record: Record, active: list[bool], wanted: list[bool]) -> Any:
    """Return a key that equal equations share, ``None`` if a parameter has no hash."""
    # Equations that pass one variable to several inputs save it once, so the key contains the pattern of variables.
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


# The name of a record at which a program reads a value as plain numbers.
EXIT: Final = "exit"


class End(NamedTuple):
    """The operation that ends a gradient, and the leaves before it; without an operation, unused leaves."""

    record: Record | None
    leaves: tuple[Value, ...]


def cut_kind(record: Record) -> str:
    """Return the kind of the cut at an operation."""
    if record.native in CUSTOM:
        return "custom_rule"
    if record.native == EXIT:
        return EXIT
    return "stop_gradient" if record.native == "stop_gradient" else "nondifferentiable"


class Ends:
    """The ends of gradient in a function."""

    def __init__(self, flat: Flattener, outputs: Sequence[Value]) -> None:
        self._records = [*flat.records, *flat.reads]
        self._varying = group_by_key((id(end), value) for value in flat.varying for end in value.ends)
        read = (value for record in flat.reads for value in record.inputs)
        self._used = set(find_reachable((*outputs, *read), _find_inputs))
        self._ends: dict[int, int] = {}
        self._find_ends()

    @property
    def lose_any(self) -> bool:
        """Whether the gradient of any value ends."""
        return any(value.is_active and not value.is_live for value in self._used)

    def of(self, leaves: Sequence[Value]) -> Iterator[End]:
        """Yield the ends of the paths to these leaves, in the order of the program."""
        leaves_by_end = group_by_key(
            (self._ends.get(id(leaf), -1) if leaf in self._used else -1, leaf) for leaf in leaves
        )
        for number, group in sorted(leaves_by_end.items()):
            yield End(None if number < 0 else self._records[number], tuple(group))

    def _find_ends(self) -> None:
        # A carry needs another pass, since its later rounds are known only at the end of the loop.
        changed = True
        while changed:
            changed = False
            for number in range(len(self._records) - 1, -1, -1):
                for slot, value in enumerate(self._records[number].inputs):
                    changed |= self._note(value, self._find_end(number, slot))
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

    def _find_end(self, number: int, slot: int) -> int | None:
        """Return the number of the first record that ends the gradient of an input, on the paths through a record."""
        record = self._records[number]
        if not record.inputs[slot].is_active:
            return None
        if record.native == EXIT:
            return number
        joins, reaches = record.joins, record.probe.reaches if record.probe is not None else None
        reads = [
            (output, is_inexact(output.aval) and (joins is not None or (reaches is not None and reaches[place][slot])))
            for place, output in enumerate(record.outputs)
            if output in self._used and (joins is None or slot in joins[place])
        ]
        if not reads:
            return None
        passing = [output for output, passes in reads if passes]
        if not passing:
            return number
        return min((self._ends[id(output)] for output in passing if id(output) in self._ends), default=None)


def _find_inputs(value: Value) -> list[Value]:
    record = value.record
    if record is None or record.joins is None:
        return [*value.ends, *(() if record is None else record.inputs)]
    return [*value.ends, *sources_of(value), *(record.inputs[:1] if record.op == "cond" else ())]


def find_consumer(record: Record, records: Sequence[Record]) -> tuple[Record, int] | None:
    """Return the first of some operations on a path, and its slot, that uses the result of a cutting operation."""
    results = {id(value) for value in record.outputs}
    for each in records:
        hits = [slot for slot, value in enumerate(each.inputs) if id(value) in results]
        if hits and each.is_live and each.joins is None:
            return each, hits[0]
        if hits:
            results.update(id(value) for value in each.outputs)
    return None
