"""In which operations gradients become zero.

The operations are run once more with a zero of its own added to each result and to what each operation takes, and what
the backward brings to these tells the gradient on every way. Bodies of loops and branches are not looked into: the loop
or the conditional is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import jax.numpy as jnp

from gradir.frontends.jax.live import Trace
from gradir.frontends.jax.reading.jaxprs import alone
from gradir.frontends.jax.reading.values import Record, Value
from gradir.frontends.jax.values import gradients

__all__ = ["origins"]

_MOST: Final = 4_000
"""So many operations are run once more; of larger programs it is not told where a gradient becomes zero."""


def origins(trace: Trace, names: Iterable[str]) -> dict[Record | None, list[str]]:
    """The operations in which the gradients of some leaves become zero, in the order of the program.

    Without an operation are leaves of which it is not known, such as those whose gradients add up to zero.
    """
    wanted = set(names)
    leaves = [value for value in trace.differentiated if value.name in wanted]
    records = [record for record in trace.flat.records if _is_run(record)]
    found: dict[Record | None, list[str]] = {}
    search = _Search(trace, records) if leaves and len(records) <= _MOST else None
    for leaf in leaves:
        for record in (search.behind(leaf) if search is not None else ()) or (None,):
            found.setdefault(record, []).append(leaf.name)
    numbers = {record: number for number, record in enumerate(records)}
    return dict(sorted(found.items(), key=lambda each: -1 if each[0] is None else numbers[each[0]]))


def _is_run(record: Record) -> bool:
    """Whether an operation stands in no loop and no branch, and gives something."""
    return bool(record.outputs) and not record.context.loops and record.context.branch is None


def _taken(record: Record) -> list[Value]:
    return record.inputs if record.joins is None else record.given


class _Search:
    def __init__(self, trace: Trace, records: Sequence[Record]) -> None:
        self._readers: dict[int, list[tuple[Record, int]]] = {}
        # What a zero is added to: a value, or one that a record takes in a slot.
        places = {(id(value), -1): value for value in trace.differentiated}
        for record in records:
            taken = _taken(record)
            for slot in alone(record.eqn).firsts:
                if taken[slot].is_live:
                    places[id(record), slot] = taken[slot]
                    self._readers.setdefault(id(taken[slot]), []).append((record, slot))
            for value in record.outputs:
                if value.is_live:
                    places[id(value), -1] = value
        self._moves = _moves(trace, records, places)

    def behind(self, leaf: Value) -> list[Record]:
        """The operations that take the gradient from the ways to a leaf; none where ways add up to zero."""
        found: dict[Record, None] = {}
        left, seen = [leaf], {id(leaf)}
        while left:
            value = left.pop()
            for record, slot in self._readers.get(id(value), ()):
                if self._moves[id(record), slot]:
                    return []
                live = [output for output in record.outputs if output.is_live]
                if any(self._moves[id(output), -1] for output in live):
                    found[record] = None
                    continue
                left += [output for output in live if id(output) not in seen]
                seen.update(map(id, live))
        return [*found]


def _moves(
    trace: Trace, records: Sequence[Record], places: Mapping[tuple[int, int], Value]
) -> dict[tuple[int, int], bool]:
    """Of each place whether the backward brings anything but zero to it."""

    def run(zeros: Sequence[Any], leaves: Sequence[Any]) -> list[Any]:
        added = dict(zip(places, zeros, strict=True))
        known: dict[int, Any] = {}

        def moved(key: tuple[int, int], value: Any) -> Any:
            return value + added[key] if key in added else value

        for value, leaf in zip((*trace.differentiated, *trace.others), leaves, strict=True):
            known[id(value)] = moved((id(value), -1), jnp.asarray(leaf))
        for record in records:
            single, taken = alone(record.eqn), _taken(record)
            given = (moved((id(record), slot), _number(taken[slot], known)) for slot in single.firsts)
            made = single.run(*given)
            known.update(
                (id(out), moved((id(out), -1), value)) for out, value in zip(record.outputs, made, strict=True)
            )
        return [_number(value, known) for _, value in trace.outputs]

    zeros = [jnp.zeros(value.aval.shape, value.aval.dtype) for value in places.values()]
    given, others = trace.arguments.given
    found = gradients(run, zeros, [*given, *others])
    return {key: bool(jnp.any(gradient != 0)) for key, gradient in zip(places, found, strict=True)}


def _number(value: Value, known: Mapping[int, Any]) -> Any:
    return known.get(id(value), value.literal)
