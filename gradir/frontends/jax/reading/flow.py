"""What lies on a path by which gradient comes from an output to what is differentiated."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from gradir.frontends.jax.reading.flatten import Flattener
from gradir.frontends.jax.reading.jaxprs import is_inexact
from gradir.frontends.jax.reading.probe import Probe, probe
from gradir.frontends.jax.reading.values import Record, Value

__all__ = ["find_paths", "sources_of", "takes"]


def find_paths(flat: Flattener, outputs: Sequence[Value]) -> None:
    """Mark every value that is active, tainted or live, and leave in each record on the way what JAX says of it."""
    forward = _Forward(flat)
    forward.spread()
    _mark_live(outputs)
    forward.narrow()


def sources_of(value: Value) -> list[Value]:
    """The values by which gradient goes on from one that it has come to."""
    record = value.record
    if record is None:
        return value.ends
    if record.joins is not None:
        return [record.inputs[slot] for slot in record.joins[value.number]]
    reaches = record.probe.reaches[value.number] if record.probe is not None else ()
    return [each for each, is_reached in zip(record.inputs, reaches, strict=False) if is_reached]


def takes(record: Record, slot: int) -> bool:
    """Whether gradient goes on by an input slot of a record that is on a path."""
    if not record.inputs[slot].is_live:
        return False
    if record.joins is not None:
        return any(
            slot in joined and (output.is_live or _carry_is_live(record, number))
            for number, (joined, output) in enumerate(zip(record.joins, record.outputs, strict=True))
        )
    reaches = record.probe.reaches if record.probe is not None else ()
    return any(output.is_live and row[slot] for output, row in zip(record.outputs, reaches, strict=False))


def _carry_is_live(record: Record, number: int) -> bool:
    return number < len(record.carries) and record.carries[number].is_live


def _mark_live(outputs: Sequence[Value]) -> None:
    left = [value for value in outputs if value.is_active]
    while left:
        value = left.pop()
        if value.is_live or not value.is_active:
            continue
        value.is_live = True
        left += sources_of(value)


class _Forward:
    """Spreads from what is differentiated. What a record makes is looked at again when an input of it changed."""

    def __init__(self, flat: Flattener) -> None:
        self._flat = flat
        self._probes: dict[Any, Probe] = {}
        self._readers: dict[int, list[Record | Value]] = {}
        for record in flat.records:
            for value in {id(value): value for value in record.inputs}.values():
                self._readers.setdefault(id(value), []).append(record)
        for varying in flat.varying:
            for end in varying.ends:
                self._readers.setdefault(id(end), []).append(varying)

    def spread(self) -> None:
        """Mark what is active or tainted."""
        waiting: deque[Record | Value] = deque([*self._flat.varying, *self._flat.records])
        queued = {id(each) for each in waiting}
        while waiting:
            each = waiting.popleft()
            queued.discard(id(each))
            for value in self._varied(each) if isinstance(each, Value) else self._made(each):
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
                kept = self._probe(record, [value.is_active for value in record.inputs], live).kept
                record.probe = replace(found, kept=kept)

    def _varied(self, value: Value) -> Iterator[Value]:
        ends = value.ends
        is_active = is_inexact(value.aval) and any(end.is_active for end in ends)
        if _mark(value, is_active, any(end.is_tainted for end in ends)):
            yield value

    def _made(self, record: Record) -> Iterator[Value]:
        active = [value.is_active for value in record.inputs]
        tainted = [value.is_tainted for value in record.inputs]
        joins = record.joins
        if joins is None and any(active):
            record.probe = self._probe(record, active, [True] * len(record.outputs))
        for number, output in enumerate(record.outputs):
            is_active = any(value.is_active for value in sources_of(output))
            is_tainted = any(tainted)
            if joins is not None:
                is_tainted = any(tainted[slot] for slot in joins[number]) or (record.op == "cond" and tainted[0])
            if _mark(output, is_active and is_inexact(output.aval), is_tainted):
                yield output

    def _probe(self, record: Record, active: list[bool], wanted: list[bool]) -> Probe:
        key = _key(record, active, wanted)
        found = self._probes.get(key) if key is not None else None
        if found is None:
            found = probe(record, active, wanted)
            if key is not None:
                self._probes[key] = found
        return found


def _mark(value: Value, is_active: bool, is_tainted: bool) -> bool:
    """Whether a value is now what it was not before."""
    changed = (is_active and not value.is_active) or (is_tainted and not value.is_tainted)
    value.is_active |= is_active
    value.is_tainted |= is_tainted
    return changed


def _key(record: Record, active: list[bool], wanted: list[bool]) -> Any:
    """What equal equations have in common; ``None`` where a parameter cannot be compared."""
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
