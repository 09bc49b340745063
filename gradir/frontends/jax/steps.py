"""A step of training takes a gradient itself: the function that it differentiates there, with what it is given.

A call of `jax.grad` and the like shows when the function runs that they made, wherever and whenever they made it. What
JAX, flax and equinox call these functions and their variables stands here alone.
"""

from __future__ import annotations

import inspect
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import takewhile
from types import FrameType
from typing import Any, Final, NamedTuple

import jax
from msgspec.structs import replace

from gradir.errors import GradirError
from gradir.explanations.model import Cause, Explanation
from gradir.frontends.jax.arguments import shown_name
from gradir.frontends.jax.explaining import explain, has_numbers
from gradir.frontends.jax.live import Trace, trace
from gradir.frontends.jax.modules.watch import traced_anew
from gradir.frontends.jax.optimizing import beside_optimizer
from gradir.frontends.jax.reading.jaxprs import Sources, type_of
from gradir.frontends.walks import frames_from
from gradir.ir import Source


def explain_function(found: Trace, *, values: bool | None = None) -> Explanation:
    """Explain a function, or the function that a step of training differentiates; see `gradir.explain`."""
    return explain_inner(found, inner_of(found), values=values) if _is_step(found) else explain(found, values=values)


def explain_inner(found: Trace, inner: Inner | None, *, values: bool | None = None) -> Explanation:
    """Explain the function that a step of training differentiates; see `explain_function`."""
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
    causes = whole.causes if inner is None else beside_optimizer(found, about, whole)
    return replace(whole, causes=(cause, *causes))


class Inner(NamedTuple):
    """A function that is differentiated inside another one: its trace, its name, and the line that calls for it."""

    trace: Trace
    name: str
    source: Source | None


class Asked(NamedTuple):
    """A gradient that is asked for."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    argnums: Any
    has_aux: bool

    def traced(self) -> Trace:
        """Trace the function."""
        return trace(self.fn, self.args, self.kwargs, argnums=self.argnums, has_aux=self.has_aux)


class _Found(BaseException):
    """Ends a run in which the gradient that was looked for is asked for; nothing may take it for an error."""


def _is_step(found: Trace) -> bool:
    """Whether a function takes a gradient inside and returns, among others, what has the shapes of its parameters."""
    returned = Counter(type_of(value.aval) for _, value in found.outputs)
    wanted = Counter(type_of(value.aval) for value in found.differentiated)
    is_loss = len(found.outputs) == 1 and not found.outputs[0].value.aval.shape
    return wanted <= returned and not is_loss and any("transpose" in each.context.phase for each in found.flat.records)


def inner_of(found: Trace, *, runs: bool = True) -> Inner | None:
    """Return the first function that a step differentiates by leaves like its own parameters, or else the first at all.

    The step runs if its arguments have numbers and ``runs`` allows it; otherwise it is traced.
    """
    wanted = Counter(type_of(value.aval) for value in found.differentiated)
    seen: list[Inner] = []

    def look(frame: FrameType, event: str, _: Any) -> None:
        read = _reader(frame) if event == "call" else None
        if read is None or _is_inside(frame, own):
            return
        try:
            asked = read(frame.f_locals)
            with jax.disable_jit(False):
                inner = asked.traced()
        except (AttributeError, GradirError, KeyError, TypeError, ValueError):
            # It is not what this release is known to have, or cannot be traced.
            return
        seen.append(Inner(inner, shown_name(asked.fn), Sources().of_frame(frame)))
        if Counter(type_of(value.aval) for value in inner.differentiated) <= wanted:
            raise _Found

    own, given, before = inspect.currentframe(), found.arguments.given, sys.getprofile()
    sys.setprofile(look)
    try:
        if runs and has_numbers(found):
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


def _reader(frame: FrameType) -> Callable[[Mapping[str, Any]], Asked] | None:
    read = _READERS.get(frame.f_code.co_qualname)
    is_library = read is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _LIBRARIES
    return read if is_library else None


def find_asked(frame: FrameType | None) -> Asked | None:
    """Return the request of the outermost running call of a library that asks for a gradient."""
    found = None
    for each in frames_from(frame):
        # It may not have what this release is known to have.
        with suppress(AttributeError, KeyError):
            found = (read(each.f_locals) if (read := _reader(each)) is not None else None) or found
    return found


def _is_inside(frame: FrameType, outermost: FrameType | None) -> bool:
    above = takewhile(lambda each: each is not outermost, frames_from(frame.f_back))
    return any(_reader(each) is not None for each in above)


def read_request(names: Mapping[str, Any]) -> Asked:
    """Return the request of `jax.grad`, `jax.value_and_grad` or `jax.vjp`, by the names of its arguments."""
    return _of_vjp(names) if "primals" in names else _of_argnums(names, "fun")


def _of_argnums(names: Mapping[str, Any], fn: str) -> Asked:
    argnums = names["jax_argnums"] if "jax_argnums" in names else names["argnums"]
    # flax puts the keywords among the arguments, and forgets them.
    return Asked(names[fn], tuple(names["args"]), names.get("kwargs", {}), argnums, names["has_aux"])


def _of_vjp(names: Mapping[str, Any]) -> Asked:
    primals = tuple(names["primals"])
    argnums = tuple(range(len(primals))) if len(primals) > 1 else 0
    return Asked(names["fun"], primals, {}, argnums, names["has_aux"])


def _of_equinox(names: Mapping[str, Any]) -> Asked:
    fields = vars(names["self"])
    # It takes the first argument out of the others as it runs.
    first = (names["x"],) if "x" in names else ()
    return Asked(fields["_fun"], (*first, *names["args"]), names["kwargs"], 0, fields["_has_aux"])


_LIBRARIES: Final = frozenset({"equinox", "flax", "jax"})
# How to read, from the variables of a function that asks for a gradient, which gradient it asks for.
_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Asked]]] = {
    "value_and_grad.<locals>.value_and_grad_f": lambda names: _of_argnums(names, "fun"),
    "vjp": _of_vjp,
    "_grad_general.<locals>.grad_wrapper": lambda names: _of_argnums(names, "f"),
    "_ValueAndGradWrapper.__call__": _of_equinox,
}
