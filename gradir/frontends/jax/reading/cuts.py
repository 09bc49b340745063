"""Why gradient does not come to what is differentiated: nothing reads it, or each way ends in an operation.

A value matters if an output is computed of it. The equations are looked at once from the last to the first, and each
value learns of the first equation at which gradient ends on the ways from it to the outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gradir.frontends.jax.reading.flatten import Flattener
from gradir.frontends.jax.reading.jaxprs import CUSTOM, is_inexact
from gradir.frontends.jax.reading.values import Record, Value

__all__ = ["End", "Ends", "kind_of"]


class End(NamedTuple):
    """Where gradient ends: the operation, and the leaves behind it; without one, leaves that nothing reads."""

    record: Record | None
    leaves: tuple[Value, ...]


def kind_of(record: Record) -> str:
    """The kind of cut that an operation makes."""
    if record.native in CUSTOM:
        return "custom_rule"
    return "stop_gradient" if record.native == "stop_gradient" else "nondifferentiable"


class Ends:
    """The ends of gradient in a function."""

    def __init__(self, flat: Flattener, outputs: Sequence[Value]) -> None:
        self._records = flat.records
        self._numbers = {id(record): number for number, record in enumerate(flat.records)}
        self._varying: dict[int, list[Value]] = {}
        for value in flat.varying:
            for end in value.ends:
                self._varying.setdefault(id(end), []).append(value)
        self._matter = _mattering(outputs)
        self._ends: dict[int, int] = {}
        self._find()

    def of(self, leaves: Sequence[Value]) -> Iterator[End]:
        """Where gradient ends before it comes to some leaves, in the order of the program."""
        behind: dict[int, list[Value]] = {}
        for leaf in leaves:
            number = self._ends.get(id(leaf)) if id(leaf) in self._matter else None
            behind.setdefault(-1 if number is None else number, []).append(leaf)
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
        if end is None or not value.is_active:
            return False
        known = self._ends.get(id(value))
        if known is not None and known <= end:
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
            if id(output) in self._matter and (joins is None or slot in joins[place])
        ]
        if not reads:
            return None
        passing = [output for output, passes in reads if passes]
        if not passing:
            return number
        return min((self._ends[id(output)] for output in passing if id(output) in self._ends), default=None)


def _mattering(outputs: Sequence[Value]) -> set[int]:
    """The identities of all values that the outputs are computed of."""
    found: set[int] = set()
    left = list(outputs)
    while left:
        value = left.pop()
        if id(value) in found:
            continue
        found.add(id(value))
        left += value.ends
        if value.record is None:
            continue
        joins = value.record.joins
        left += value.record.inputs if joins is None else [value.record.inputs[slot] for slot in joins[value.number]]
        if value.record.op == "cond" and joins is not None:
            left.append(value.record.inputs[0])
    return found
