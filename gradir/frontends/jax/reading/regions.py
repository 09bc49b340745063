"""What a checkpointed region holds: inputs, and what its policy lets be saved.

The region is evaluated under its policy with a scope around each equation, and the pullback is traced. The scopes tell
which record made what is held.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

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
)
from gradir.frontends.jax.reading.probe import traced_pullback
from gradir.frontends.jax.reading.values import Record, Region

__all__ = ["find_held"]

_TAG: Final = "gradir "


def find_held(region: Region) -> None:
    """Note in a region that is in no other what it holds for its backward."""
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
        if kept.kind == "new":
            _note_made(found.forward, kept.var, region, ())
        else:
            value = (region.inputs if kept.kind == "in" else region.outputs)[kept.number]
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


def _note_made(jaxpr: Any, var: Any, region: Region, above: tuple[int, ...]) -> None:
    """Note in the region what a variable of the traced forward is: an output of a record, or made by one."""
    while True:
        eqn = next((eqn for eqn in jaxpr.eqns if any(made is var for made in eqn.outvars)), None)
        if eqn is None:
            return
        number = next(number for number, made in enumerate(eqn.outvars) if made is var)
        place = (*above, *_tags(eqn))
        record = region.records.get(place)
        if name_of(eqn) == "reduce_precision" and (record is None or record.native != "reduce_precision"):
            # A policy marks what is saved with it.
            var = eqn.invars[0]
            continue
        called = inner(eqn)
        if called is not None and name_of(eqn) in CALLS | REMATS:
            jaxpr = opened(called)[0]
            var, above = jaxpr.outvars[number], place
            continue
        if record is not None:
            _note_of(record, eqn, var, region)
        return


def _note_of(record: Record, eqn: Any, var: Any, region: Region) -> None:
    same = [value for value in record.outputs if _is_alike(value.aval, var.aval)]
    if same and record.native == name_of(eqn):
        region.held[id(same[0])] = same[0]
    else:
        region.made[id(record), str(var.aval.dtype), tuple(var.aval.shape)] += 1


def _tags(eqn: Any) -> tuple[int, ...]:
    parts = (name.removeprefix(_TAG) for is_scope, name in stack_of(eqn) if is_scope and name.startswith(_TAG))
    return tuple(int(part) for part in parts if part.isdigit())


def _is_alike(a: Any, b: Any) -> bool:
    return bool(a.shape == b.shape and a.dtype == b.dtype)
