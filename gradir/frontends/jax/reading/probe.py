"""Find which gradients one equation passes on and which values it saves, by tracing `jax.vjp` of it.

So gradir needs no list of primitives, and handles custom rules like JAX's own.
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
from gradir.frontends.walks import find_reachable

_LONGEST = 200


class Residual(NamedTuple):
    """One value that an equation saves: an input, an output, or a new one, computed from some ``inputs``."""

    kind: Literal["in", "out", "new"]
    number: int
    inputs: tuple[int, ...] = ()
    aval: Any = None
    var: Any = None


@dataclass
class Probe:
    """The inputs that the gradient of each output reaches, and the saved values, or the error of JAX."""

    reaches: list[list[bool]]
    residuals: list[Residual]
    error: str = ""
    # JAX refuses the equation even if it gets no gradient.
    is_refused: bool = False
    # The jaxpr of the pullback of an opaque equation.
    backward: Any = None


class Traced(NamedTuple):
    """A `Probe` of a function by its inputs and outputs, and the jaxprs of its forward and its pullback."""

    reaches: list[list[bool]]
    residuals: list[Residual]
    forward: Any
    backward: Any


def probe(record: Record, active: Sequence[bool], wanted: Sequence[bool]) -> Probe:
    """Ask JAX for the derivative of a record's equation, from the wanted outputs to the active inputs."""
    run, places = single = jaxprs.isolate(record.eqn)
    firsts = single.firsts
    inputs = [record.inputs[slot].aval for slot in firsts]
    outputs = [value.aval for value in record.outputs]
    gradients = [number for number, aval in enumerate(outputs) if wanted[number] and jaxprs.is_inexact(aval)]
    is_moving = [active[slot] for slot in firsts]
    try:
        found = trace_pullback(lambda values: list(run(*values)), inputs, is_moving, outputs, gradients)
    except (ValueError, TypeError, NotImplementedError) as error:
        message = " ".join(str(error).split())[:_LONGEST] or type(error).__name__
        moved = [place for place, moves in enumerate(is_moving) if moves]
        return Probe([[True] * len(places) for _ in outputs], [], message, not _has_tangents(run, inputs, moved))
    reaches = [[place >= 0 and row[place] for place in places] for row in found.reaches]
    residuals = [
        each._replace(
            number=firsts[each.number] if each.kind == "in" else each.number,
            inputs=tuple(firsts[place] for place in each.inputs),
            var=None,
        )
        for each in found.residuals
    ]
    backward = found.backward if jaxprs.name_of(record.eqn) in jaxprs.OPAQUE else None
    return Probe(reaches, sorted(residuals, key=_sort_key), backward=backward)


def _has_tangents(run: Callable[..., Sequence[Any]], inputs: Sequence[Any], moved: Sequence[int]) -> bool:
    """Return whether JAX has tangents for some inputs. It computes them for every value that depends on a leaf."""

    def forward(given: list[Any], tangents: list[Any]) -> Any:
        moving = [given[place] for place in moved]
        return jax.jvp(lambda *moving: list(run(*jaxprs.replace_at(given, moved, moving))), moving, tangents)

    given = [jaxprs.make_abstract(aval) for aval in inputs]
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
    slots = moved + rest
    trees: list[Any] = []

    def forward(given: list[Any], others: list[Any]) -> tuple[list[Any], list[Any]]:
        def primal(*given: Any) -> tuple[list[Any], list[Any]]:
            results = run(jaxprs.replace_at([None] * len(inputs), slots, [*given, *others]))
            return [results[number] for number in gradients], results

        _, pull, results = jax.vjp(primal, *given, has_aux=True)
        leaves, tree = tree_util.tree_flatten(pull)
        trees.append(tree)
        return results, leaves

    def backward(leaves: list[Any], cotangents: list[Any]) -> Any:
        return tree_util.tree_unflatten(trees[-1], leaves)(cotangents)

    given, others = ([jaxprs.make_abstract(inputs[slot]) for slot in group] for group in (moved, rest))
    ahead = jax.make_jaxpr(forward)(given, others).jaxpr
    residuals = ahead.outvars[len(outputs) :]
    cotangents = [jaxprs.make_abstract(outputs[number]) for number in gradients]
    back = jax.make_jaxpr(backward)([jaxprs.make_abstract(var.aval) for var in residuals], cotangents).jaxpr
    reaches = [[False] * len(inputs) for _ in outputs]
    for place, number in enumerate(gradients):
        reaches[number] = jaxprs.replace_at(reaches[number], moved, _find_dependent(back, {len(residuals) + place}))
    return Traced(reaches, _list_residuals(ahead, residuals, slots, len(outputs)), ahead, back)


@cache
def copies_branch_inputs() -> bool:
    """Return whether this JAX copies inputs of a conditional that its branches save, by tracing a small one."""

    def choose(given: list[Any]) -> list[Any]:
        index, x, y = given
        return [jax.lax.cond(index > 0, lambda x, y: x * y, lambda x, y: x * x * y, x, y)]

    scalar = jax.ShapeDtypeStruct((), np.dtype("float32"))
    found = trace_pullback(choose, [scalar] * 3, [False, True, True], [scalar], [0])
    return not any(each.kind == "in" and each.number for each in found.residuals)


def _sort_key(residual: Residual) -> tuple[int, int]:
    # JAX's own order differs between releases.
    return ("in", "out", "new").index(residual.kind), residual.number if residual.kind != "new" else 0


def _list_residuals(forward: Any, residuals: Sequence[Any], slots: Sequence[int], outputs: int) -> list[Residual]:
    pairs = [*zip(forward.invars, slots, strict=True)]
    known = {id(var): Residual("in", slot, aval=var.aval) for var, slot in pairs}
    for number, var in enumerate(forward.outvars[:outputs]):
        known.setdefault(id(var), Residual("out", number, aval=var.aval))
    found: dict[int, Residual] = {}
    for var in residuals:
        if id(var) in found or _is_constant(forward, var):
            continue
        if id(var) not in known:
            needed = _find_needed(forward, [var])
            used = tuple(slot for invar, slot in pairs if id(invar) in needed)
            known[id(var)] = Residual("new", 0, used, var.aval, var)
        found[id(var)] = known[id(var)]
    return sorted(found.values(), key=_sort_key)


def _is_constant(jaxpr: Any, var: Any) -> bool:
    """Return whether a value of a jaxpr is a literal, directly or as the result of a call."""
    while not jaxprs.is_literal(var):
        eqn, number = jaxprs.find_maker(jaxpr, var) or (None, 0)
        if eqn is None or jaxprs.name_of(eqn) not in jaxprs.CALLS | jaxprs.OPAQUE:
            return False
        jaxpr = jaxprs.open_jaxpr(jaxprs.inner_jaxpr(eqn))[0]
        var = jaxpr.outvars[number]
        if jaxprs.name_of(eqn) in jaxprs.OPAQUE:
            # Depending on the trace, a device gets a literal or a copy of it.
            return _depends_on_literals(jaxpr, var)
    return True


def _depends_on_literals(jaxpr: Any, var: Any) -> bool:
    makers = {made: eqn for eqn in jaxpr.eqns for made in eqn.outvars}

    def operands(each: Any) -> list[Any]:
        return [atom for atom in makers[each].invars if not jaxprs.is_literal(atom)] if each in makers else []

    return jaxprs.is_literal(var) or all(each in makers for each in find_reachable([var], operands))


def _find_needed(jaxpr: Any, wanted: Sequence[Any]) -> set[int]:
    needed = {id(var) for var in wanted}
    for eqn in reversed(jaxpr.eqns):
        made = [number for number, var in enumerate(eqn.outvars) if id(var) in needed]
        if made and jaxprs.name_of(eqn) in jaxprs.OPAQUE:
            # Only some inputs of the inner jaxpr are needed, since JAX hoists loop invariants.
            inside = jaxprs.open_jaxpr(jaxprs.inner_jaxpr(eqn))[0]
            inner = _find_needed(inside, [inside.outvars[number] for number in made])
            pairs = zip(inside.invars, eqn.invars, strict=True)
            needed.update(id(atom) for var, atom in pairs if id(var) in inner)
        elif made:
            needed.update(id(atom) for atom in eqn.invars)
    return needed


def _find_dependent(jaxpr: Any, starts: set[int]) -> list[bool]:
    """Return by output whether it depends on these inputs."""
    found = {id(jaxpr.invars[number]) for number in starts}
    for eqn in jaxpr.eqns:
        hits = {number for number, atom in enumerate(eqn.invars) if id(atom) in found}
        if not hits:
            continue
        called = jaxprs.inner_jaxpr(eqn) if jaxprs.name_of(eqn) in jaxprs.CALLS else None
        outputs = [True] * len(eqn.outvars) if called is None else _find_dependent(jaxprs.open_jaxpr(called)[0], hits)
        found.update(id(var) for var, depends in zip(eqn.outvars, outputs, strict=True) if depends)
    return [id(var) in found for var in jaxpr.outvars]
