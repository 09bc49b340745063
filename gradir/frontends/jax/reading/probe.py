"""What one equation lets through and keeps: `jax.vjp` of it alone is traced, and nothing is computed.

So no list of primitives is needed, and rules that a program wrote are asked like JAX's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jax import tree_util

from gradir.frontends.jax.reading import jaxprs
from gradir.frontends.jax.reading.flatten import Record
from gradir.frontends.walks import reached

_LONGEST = 200


class Kept(NamedTuple):
    """One value that an equation keeps: an input, an own output, or a new one, made of some ``inputs``."""

    kind: Literal["in", "out", "new"]
    number: int
    inputs: tuple[int, ...] = ()
    aval: Any = None
    var: Any = None


@dataclass
class Probe:
    """By output, which inputs its gradient reaches, and the kept values, or the error of JAX."""

    reaches: list[list[bool]]
    kept: list[Kept]
    error: str = ""
    # JAX refuses it even beside a path.
    is_refused: bool = False
    # The jaxpr of the pullback of an opaque equation.
    backward: Any = None


class Traced(NamedTuple):
    """A `Probe` of a function by its inputs and outputs, and the jaxprs of its forward and its pullback."""

    reaches: list[list[bool]]
    kept: list[Kept]
    forward: Any
    backward: Any


def probe(record: Record, active: Sequence[bool], wanted: Sequence[bool]) -> Probe:
    """Ask JAX of a record's equation, of the inputs that are active and the outputs whose gradient is wanted."""
    run, places = single = jaxprs.isolate(record.eqn)
    firsts = single.firsts
    inputs = [record.inputs[slot].aval for slot in firsts]
    outputs = [value.aval for value in record.outputs]
    gradients = [number for number, aval in enumerate(outputs) if wanted[number] and jaxprs.is_inexact(aval)]
    moving = [active[slot] for slot in firsts]
    try:
        found = trace_pullback(lambda values: list(run(*values)), inputs, moving, outputs, gradients)
    except (ValueError, TypeError, NotImplementedError) as error:
        told = " ".join(str(error).split())[:_LONGEST] or type(error).__name__
        moved = [place for place, is_moving in enumerate(moving) if is_moving]
        return Probe([[True] * len(places) for _ in outputs], [], told, not _has_tangents(run, inputs, moved))
    reaches = [[place >= 0 and row[place] for place in places] for row in found.reaches]
    kept = [
        each._replace(
            number=firsts[each.number] if each.kind == "in" else each.number,
            inputs=tuple(firsts[place] for place in each.inputs),
            var=None,
        )
        for each in found.kept
    ]
    backward = found.backward if jaxprs.name_of(record.eqn) in jaxprs.OPAQUE else None
    return Probe(reaches, sorted(kept, key=_order), backward=backward)


def _has_tangents(run: Callable[..., Sequence[Any]], inputs: Sequence[Any], moved: Sequence[int]) -> bool:
    """Return whether JAX can move some inputs forward, which it does to all that depends on what is differentiated."""

    def forward(given: list[Any], tangents: list[Any]) -> Any:
        moving = [given[place] for place in moved]
        return jax.jvp(lambda *moving: list(run(*jaxprs.fill(given, moved, moving))), moving, tangents)

    given = [jaxprs.abstract(aval) for aval in inputs]
    try:
        jax.make_jaxpr(forward)(given, [given[place] for place in moved])
    except (ValueError, TypeError, NotImplementedError):
        return False
    return True


def trace_pullback(
    run: Callable[[list[Any]], list[Any]],
    inputs: Sequence[Any],
    active: Sequence[bool],
    outputs: Sequence[Any],
    gradients: Sequence[int],
) -> Traced:
    """Trace `jax.vjp` of a function to its active inputs; ``gradients`` numbers the outputs that have one."""
    moved = [slot for slot, is_active in enumerate(active) if is_active]
    rest = [slot for slot, is_active in enumerate(active) if not is_active]
    trees: list[Any] = []

    def forward(given: list[Any], others: list[Any]) -> tuple[list[Any], list[Any]]:
        def primal(*given: Any) -> tuple[list[Any], list[Any]]:
            made = run(jaxprs.fill([None] * len(inputs), moved + rest, [*given, *others]))
            return [made[number] for number in gradients], made

        _, pull, made = jax.vjp(primal, *given, has_aux=True)
        leaves, tree = tree_util.tree_flatten(pull)
        trees.append(tree)
        return made, leaves

    def backward(leaves: list[Any], cotangents: list[Any]) -> Any:
        return tree_util.tree_unflatten(trees[-1], leaves)(cotangents)

    given, others = ([jaxprs.abstract(inputs[slot]) for slot in slots] for slots in (moved, rest))
    ahead = jax.make_jaxpr(forward)(given, others).jaxpr
    kept = ahead.outvars[len(outputs) :]
    cotangents = [jaxprs.abstract(outputs[number]) for number in gradients]
    back = jax.make_jaxpr(backward)([jaxprs.abstract(var.aval) for var in kept], cotangents).jaxpr
    reaches = [[False] * len(inputs) for _ in outputs]
    for place, number in enumerate(gradients):
        for slot, is_reached in zip(moved, _depending(back, {len(kept) + place}), strict=True):
            reaches[number][slot] = is_reached
    return Traced(reaches, _distinct(ahead, kept, moved + rest, len(outputs)), ahead, back)


@cache
def hands_out_copies() -> bool:
    """Whether a conditional hands out copies of what its branches keep of its own inputs, asked of a small one."""

    def chosen(given: list[Any]) -> list[Any]:
        index, x, y = given
        return [jax.lax.cond(index > 0, lambda x, y: x * y, lambda x, y: x * x * y, x, y)]

    number = jax.ShapeDtypeStruct((), np.dtype("float32"))
    found = trace_pullback(chosen, [number] * 3, [False, True, True], [number], [0])
    return not any(kept.kind == "in" and kept.number for kept in found.kept)


def _order(kept: Kept) -> tuple[int, int]:
    # JAX's own order differs between releases.
    return ("in", "out", "new").index(kept.kind), kept.number if kept.kind != "new" else 0


def _distinct(forward: Any, kept: Sequence[Any], slots: Sequence[int], outputs: int) -> list[Kept]:
    def behind(var: Any) -> tuple[int, ...]:
        needed = _needed(forward, [var])
        return tuple(slot for var, slot in zip(forward.invars, slots, strict=True) if id(var) in needed)

    given = zip(forward.invars, slots, strict=True)
    known = {id(var): Kept("in", slot, aval=var.aval) for var, slot in given}
    for number, var in enumerate(forward.outvars[:outputs]):
        known.setdefault(id(var), Kept("out", number, aval=var.aval))
    found: dict[int, Kept] = {}
    for var in kept:
        if id(var) not in found and not _is_constant(forward, var):
            found[id(var)] = known.get(id(var)) or Kept("new", 0, behind(var), var.aval, var)
    return sorted(found.values(), key=_order)


def _is_constant(jaxpr: Any, var: Any) -> bool:
    """Return whether a value of a jaxpr is a literal, which a call may hand out as if it had made it."""
    while not jaxprs.is_literal(var):
        eqn = next((eqn for eqn in jaxpr.eqns if any(made is var for made in eqn.outvars)), None)
        if eqn is None or jaxprs.name_of(eqn) not in jaxprs.CALLS | jaxprs.OPAQUE:
            return False
        number = next(number for number, made in enumerate(eqn.outvars) if made is var)
        jaxpr = jaxprs.open_jaxpr(jaxprs.inner(eqn))[0]
        var = jaxpr.outvars[number]
        if jaxprs.name_of(eqn) in jaxprs.OPAQUE:
            # Whether a device is handed a number or its copy depends on who traces it.
            return _is_of_literals(jaxpr, var)
    return True


def _is_of_literals(jaxpr: Any, var: Any) -> bool:
    makers = {made: eqn for eqn in jaxpr.eqns for made in eqn.outvars}

    def taken(each: Any) -> list[Any]:
        return [atom for atom in makers[each].invars if not jaxprs.is_literal(atom)] if each in makers else []

    return jaxprs.is_literal(var) or all(each in makers for each in reached([var], taken))


def _needed(jaxpr: Any, wanted: Sequence[Any]) -> set[int]:
    needed = {id(var) for var in wanted}
    for eqn in reversed(jaxpr.eqns):
        made = [number for number, var in enumerate(eqn.outvars) if id(var) in needed]
        if made and jaxprs.name_of(eqn) in jaxprs.OPAQUE:
            # JAX takes out of a loop what of it does not vary there.
            inside = jaxprs.open_jaxpr(jaxprs.inner(eqn))[0]
            of_these = _needed(inside, [inside.outvars[number] for number in made])
            pairs = zip(inside.invars, eqn.invars, strict=True)
            needed.update(id(atom) for var, atom in pairs if id(var) in of_these)
        elif made:
            needed.update(id(atom) for atom in eqn.invars)
    return needed


def _depending(jaxpr: Any, starts: set[int]) -> list[bool]:
    on = {id(jaxpr.invars[number]) for number in starts}
    for eqn in jaxpr.eqns:
        hits = {number for number, atom in enumerate(eqn.invars) if id(atom) in on}
        if not hits:
            continue
        called = jaxprs.inner(eqn) if jaxprs.name_of(eqn) in jaxprs.CALLS else None
        made = [True] * len(eqn.outvars) if called is None else _depending(jaxprs.open_jaxpr(called)[0], hits)
        on.update(id(var) for var, is_on in zip(eqn.outvars, made, strict=True) if is_on)
    return [id(var) in on for var in jaxpr.outvars]
