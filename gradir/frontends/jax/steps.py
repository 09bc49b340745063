"""A step of training takes a gradient itself: the function that it differentiates there, with what it is given.

A call of `jax.grad` and the like shows when the function runs that they made, wherever and whenever they made it. What
JAX, flax and equinox call these functions and their variables stands here alone.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, Final, NamedTuple

import jax
import numpy as np
from msgspec.structs import replace

from gradir.errors import GradirError
from gradir.explanations.model import Cause, Explanation
from gradir.frontends.jax.arguments import told
from gradir.frontends.jax.explaining import explain, has_numbers
from gradir.frontends.jax.live import Trace, trace
from gradir.frontends.jax.modules.watch import traced_anew
from gradir.frontends.jax.reading.assemble import Output
from gradir.frontends.jax.reading.jaxprs import type_of
from gradir.frontends.jax.reading.sources import Sources
from gradir.frontends.jax.reading.values import Record, Value
from gradir.ir import Source

__all__ = ["explained"]

_MOST_PASSES: Final = 8
"""A loop hands on what it knows from round to round; so often it is asked."""


def explained(found: Trace, *, values: bool | None = None) -> Explanation:
    """Explain a function, or of a step of training the function that it differentiates; see `gradir.explain`.

    Raises:
        CaptureError: ``values`` are asked for, and a leaf has a shape and a dtype alone, or the backward cannot run.
    """
    if not _is_step(found):
        return explain(found, values=values)
    inner = _inner_of(found)
    if inner is None:
        detail = "which function it differentiates is not known, so what it returns is explained"
        about, source = found, None
    else:
        detail = f"`{inner.name}` is explained, with the arguments that it gets there"
        about, source = inner.trace, inner.source
        if has_numbers(found) and not has_numbers(about):
            detail += ", whose numbers are not known"
    cause = Cause("inner_gradient", "note", found.name, source=source, detail=detail, framework="jax")
    whole = explain(about, values=values)
    frozen = frozenset() if inner is None else _left_out(found, about)
    return replace(whole, causes=(cause, *_beside_optimizer(whole, frozen)))


def _beside_optimizer(whole: Explanation, frozen: frozenset[str]) -> Iterator[Cause]:
    """The causes, of which those are no alarm that concern only what no optimizer moves."""
    for cause in whole.causes:
        yield replace(cause, level="note") if cause.names and frozen.issuperset(cause.names) else cause
    reached = tuple(name for name, status in whole.statuses.items() if name in frozen and status == "reached")
    if reached:
        yield Cause("not_in_optimizer", "note", names=reached, framework="jax")


class _Inner(NamedTuple):
    """A function that is differentiated inside another one: its trace, its name, and the line that calls for it."""

    trace: Trace
    name: str
    source: Source | None


class _Asked(NamedTuple):
    """A gradient that is asked for."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    argnums: Any
    has_aux: bool


class _Found(BaseException):
    """Ends a run in which the gradient that was looked for is asked for; nothing may take it for an error."""


def _is_step(found: Trace) -> bool:
    """Whether a function takes a gradient inside and returns, among others, what has the shapes of its parameters."""
    returned = Counter(type_of(value.aval) for _, value in found.outputs)
    wanted = Counter(type_of(value.aval) for value in found.differentiated)
    is_loss = len(found.outputs) == 1 and not found.outputs[0].value.aval.shape
    return wanted <= returned and not is_loss and any("transpose" in each.context.phase for each in found.flat.records)


def _inner_of(found: Trace) -> _Inner | None:
    """The first function that a step differentiates by what has the shapes of its parameters, or else the first at all.

    The step runs, as far as that, if its arguments have numbers; else it is traced. ``None`` where it asks for no
    gradient in a way that is known.
    """
    wanted = Counter(type_of(value.aval) for value in found.differentiated)
    seen: list[_Inner] = []

    def look(frame: FrameType, event: str, _: Any) -> None:
        read = _reader(frame) if event == "call" else None
        if read is None or _is_inside(frame):
            return
        try:
            asked = read(frame.f_locals)
            with jax.disable_jit(False):
                inner = trace(asked.fn, asked.args, asked.kwargs, argnums=asked.argnums, has_aux=asked.has_aux)
        except (AttributeError, GradirError, KeyError, TypeError, ValueError):
            # It is not what this release is known to have, or cannot be traced.
            return
        seen.append(_Inner(inner, told(asked.fn), Sources().of_frame(frame)))
        if Counter(type_of(value.aval) for value in inner.differentiated) <= wanted:
            raise _Found

    given, before = found.arguments.given, sys.getprofile()
    sys.setprofile(look)
    try:
        if has_numbers(found):
            with jax.disable_jit():
                found.arguments.fn(*given)
        else:
            with traced_anew():
                jax.make_jaxpr(found.arguments.fn)(*given)
    except _Found:
        return seen[-1]
    except Exception:  # noqa: BLE001 (operation by operation a program may raise what it does not as a whole)
        return None
    finally:
        sys.setprofile(before)
    return seen[0] if seen else None


def _reader(frame: FrameType) -> Callable[[Mapping[str, Any]], _Asked] | None:
    read = _READERS.get(frame.f_code.co_qualname)
    is_library = read is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _LIBRARIES
    return read if is_library else None


def _is_inside(frame: FrameType) -> bool:
    """Whether one of these functions calls another one."""
    above = frame.f_back
    while above is not None:
        if _reader(above) is not None:
            return True
        above = above.f_back
    return False


def _of_argnums(names: Mapping[str, Any], fn: str) -> _Asked:
    argnums = names["jax_argnums"] if "jax_argnums" in names else names["argnums"]
    return _Asked(names[fn], tuple(names["args"]), names["kwargs"], argnums, names["has_aux"])


def _of_vjp(names: Mapping[str, Any]) -> _Asked:
    primals = tuple(names["primals"])
    argnums = tuple(range(len(primals))) if len(primals) > 1 else 0
    return _Asked(names["fun"], primals, {}, argnums, names["has_aux"])


def _of_equinox(names: Mapping[str, Any]) -> _Asked:
    fields = vars(names["self"])
    return _Asked(fields["_fun"], tuple(names["args"]), names["kwargs"], 0, fields["_has_aux"])


_LIBRARIES: Final = frozenset({"equinox", "flax", "jax"})
_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], _Asked]]] = {
    "value_and_grad.<locals>.value_and_grad_f": lambda names: _of_argnums(names, "fun"),
    "vjp": _of_vjp,
    "_grad_general.<locals>.grad_wrapper": lambda names: _of_argnums(names, "f"),
    "_ValueAndGradWrapper.__call__": _of_equinox,
}
"""By the name of a function that asks for a gradient, how its variables say of what."""


# What no optimizer moves.


def _left_out(step: Trace, loss: Trace) -> frozenset[str]:
    """The leaves of the loss inside a step whose new value does not depend on any gradient.

    Where the step has numbers, it must give them back as well. The value of a leaf that gets no gradient depends on
    none anyhow: it is left out if the optimizer keeps a state for others and none for it.
    """
    pairs = _new_values(step)
    moved = _moved(step.flat.records)
    kept = {leaf.name: path for leaf, (path, value) in pairs if not _is_moved(value, moved)}
    if kept and has_numbers(step):
        kept = _unchanged(step, kept)
    kept_ends = {end for name in kept for end in _ends(name)}
    states = _states(step, [leaf.name for leaf in loss.differentiated])
    return frozenset(
        leaf.name
        for leaf in loss.differentiated
        if leaf.name in kept_ends and (leaf.is_live or (states and leaf.name not in states))
    )


def _new_values(step: Trace) -> list[tuple[Value, Output]]:
    """Each leaf with the output that has its name behind the same path, the shortest that all leaves have."""
    outputs = {output.path: output for output in step.outputs}
    first = step.differentiated[0]
    starts = [path.removesuffix(first.name) for path in outputs if f".{path}".endswith(f".{first.name}")]
    for start in sorted(starts, key=lambda start: start.count(".")):
        found = [(leaf, outputs.get(start + leaf.name)) for leaf in step.differentiated]
        pairs = [(leaf, each) for leaf, each in found if each and type_of(leaf.aval) == type_of(each.value.aval)]
        if len(pairs) == len(found):
            return pairs
    return []


def _moved(records: Sequence[Record]) -> set[int]:
    """The identities of the values that depend on a gradient."""
    moved: set[int] = set()
    for _ in range(_MOST_PASSES):
        before = len(moved)
        for record in records:
            taken = (*record.inputs, *record.given)
            if "transpose" in record.context.phase or any(_is_moved(value, moved) for value in taken):
                moved.update(map(id, record.outputs))
        if len(moved) == before:
            break
    return moved


def _is_moved(value: Value, moved: set[int]) -> bool:
    left, seen = [value], {id(value)}
    while left:
        current = left.pop()
        if id(current) in moved:
            return True
        left += (end for end in current.ends if id(end) not in seen)
        seen.update(map(id, current.ends))
    return False


def _unchanged(step: Trace, kept: dict[str, str]) -> dict[str, str]:
    given = {leaf.name: leaf.value for leaf in step.arguments.differentiated}
    made = jax.tree_util.tree_leaves(jax.jit(step.arguments.fn)(*step.arguments.given))
    places = {output.path: number for output, number in zip(step.outputs, step.places, strict=True)}
    return {name: path for name, path in kept.items() if np.array_equal(made[places[path]], given[name])}


def _states(step: Trace, names: Sequence[str]) -> set[str]:
    """The leaves for which the step is given something beside their value, such as a momentum."""
    given = [leaf.name for leaf in (*step.arguments.differentiated, *step.arguments.others)]
    ends = Counter(end for name in given for end in _ends(name))
    return {name for name in names if ends[name] > 1}


def _ends(name: str) -> list[str]:
    """A path without its first components, one after the other.

    >>> _ends("state.mu.w")
    ['state.mu.w', 'mu.w', 'w']
    """
    parts = name.split(".")
    return [".".join(parts[start:]) for start in range(len(parts))]
