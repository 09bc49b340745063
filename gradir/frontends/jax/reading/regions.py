"""What a checkpointed region holds: inputs, and what its policy lets be saved.

The region is evaluated under its policy with a scope around each equation, and the pullback is traced. The scopes tell
which record made what is held.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple

import jax

from gradir.frontends.jax.reading.jaxprs import (
    CALLS,
    REMATS,
    alone,
    inner,
    is_literal,
    name_of,
    opened,
    params_of,
    stack_of,
    type_of,
)
from gradir.frontends.jax.reading.probe import traced_pullback
from gradir.frontends.jax.reading.values import Record, Region

__all__ = ["find_held"]

_TAG: Final = "gradir "
_MARKS: Final = frozenset({"device_put", "reduce_precision"})
"""What a policy puts around a value that is saved: the second marks it, the first takes it to another memory."""


class _Held(NamedTuple):
    """One thing that a region holds: an input, an output, or what the record at a place in it made.

    ``number`` is the output of that record, and -1 where it made the value to be kept alone.
    """

    kind: Literal["in", "out", "made"]
    number: int
    aval: Any
    place: tuple[int, ...] = ()


def find_held(regions: Iterable[Region]) -> None:
    """Note in regions that are in no others what they hold for their backward.

    What has the same jaxpr, policy, active inputs and live outputs holds the same, and is evaluated once: the layers of
    a model that are one checkpointed function.
    """
    known: dict[Hashable, list[_Held]] = {}
    for region in regions:
        key = _key(region)
        if key not in known:
            known[key] = [*_held_by(region)]
        for held in known[key]:
            _note(held, region)


def _key(region: Region) -> Hashable:
    """What regions have in common that hold the same; the regions keep alive what is known by identity here."""
    params = params_of(region.eqn)
    return (
        id(region.jaxpr),
        id(params.get("policy")),
        params.get("prevent_cse", True),
        tuple(value.is_active for value in region.inputs),
        tuple(value.is_live for value in region.outputs),
    )


def _held_by(region: Region) -> Iterator[_Held]:
    params = params_of(region.eqn)
    jaxpr, consts = opened(region.jaxpr)

    def run(values: list[Any]) -> Any:
        checkpointed = jax.checkpoint(
            lambda *values: _tagged(jaxpr, consts, values),
            prevent_cse=params.get("prevent_cse", True),
            policy=params.get("policy"),
        )
        return checkpointed(*values)

    live = [number for number, value in enumerate(region.outputs) if value.is_live]
    found = traced_pullback(
        run,
        [value.aval for value in region.inputs],
        [value.is_active for value in region.inputs],
        [value.aval for value in region.outputs],
        live,
    )
    for kept in found.kept:
        if kept.kind != "new":
            yield _Held(kept.kind, kept.number, kept.aval)
        else:
            made = _made(found.forward, kept.var, region, ())
            if made is not None:
                yield made


def _note(held: _Held, region: Region) -> None:
    if held.kind == "made":
        record = region.records[held.place]
        if held.number < 0:
            region.made[id(record), type_of(held.aval)] += 1
            return
        value = record.outputs[held.number]
    else:
        value = (region.inputs if held.kind == "in" else region.outputs)[held.number]
    region.held[id(value)] = value


def _tagged(jaxpr: Any, consts: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """Evaluate a jaxpr, each equation in a scope that tells its number."""
    known = {id(var): value for var, value in zip(jaxpr.constvars, consts, strict=True)}
    known.update((id(var), value) for var, value in zip(jaxpr.invars, values, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if is_literal(atom) else known[id(atom)]

    for number, eqn in enumerate(jaxpr.eqns):
        given = [read(atom) for atom in eqn.invars]
        with jax.named_scope(f"{_TAG}{number}"):
            if name_of(eqn) in CALLS:
                made: Sequence[Any] = _tagged(*opened(inner(eqn)), given)
            else:
                single = alone(eqn)
                made = single.run(*(given[slot] for slot in single.firsts))
        known.update((id(var), value) for var, value in zip(eqn.outvars, made, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _made(jaxpr: Any, var: Any, region: Region, above: tuple[int, ...]) -> _Held | None:
    """What a variable of the traced forward is of the region's: an output of a record, or made by one."""
    while True:
        eqn = next((eqn for eqn in jaxpr.eqns if any(made is var for made in eqn.outvars)), None)
        if eqn is None:
            return None
        number = next(number for number, made in enumerate(eqn.outvars) if made is var)
        place = (*above, *_tags(eqn))
        record = region.records.get(place)
        if name_of(eqn) in _MARKS and (record is None or record.native != name_of(eqn)):
            var = eqn.invars[0]
            continue
        called = inner(eqn)
        if called is not None and name_of(eqn) in CALLS | REMATS:
            jaxpr = opened(called)[0]
            var, above = jaxpr.outvars[number], place
            continue
        return None if record is None else _Held("made", _number(record, eqn, var), var.aval, place)


def _number(record: Record, eqn: Any, var: Any) -> int:
    """Which output of a record a value is that its equation made; -1 where it is none."""
    if record.native != name_of(eqn):
        return -1
    return next((number for number, value in enumerate(record.outputs) if type_of(value.aval) == type_of(var.aval)), -1)


def _tags(eqn: Any) -> tuple[int, ...]:
    parts = (name.removeprefix(_TAG) for is_scope, name in stack_of(eqn) if is_scope and name.startswith(_TAG))
    return tuple(int(part) for part in parts if part.isdigit())
