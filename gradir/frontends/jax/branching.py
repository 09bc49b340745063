"""Trace functions that branch on values, such as ``if x.sum() > 0``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import jax
import numpy as np
from jax import tree_util
from jax.core import Tracer
from jax.extend.core import jaxpr_as_fun

from gradir.errors import CaptureError
from gradir.frontends.jax.arguments import are_known
from gradir.frontends.texts import plain_text
from gradir.frontends.walks import replace_function

# JAX raises these errors when a program asks a tracer for its value.
_UNKNOWN: Final = (
    jax.errors.ConcretizationTypeError,
    jax.errors.NonConcreteBooleanIndexError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)
# Each value costs one more trace of the operations before it.
_MOST: Final = 100


class _AskedError(BaseException):
    """Ends a trace at a tracer whose value the program asks for."""


def trace_function(fn: Callable[..., Any], given: Sequence[Any], name: str) -> tuple[Any, Any, Callable[..., Any]]:
    """Return a jaxpr, the shapes of its output, and the function restricted to the branches that it takes."""
    try:
        return (*jax.make_jaxpr(fn, return_shape=True)(*given), fn)
    except _UNKNOWN as error:
        if not are_known(tree_util.tree_leaves(given)):
            raise CaptureError(
                f"{name} branches on values or reads them, but the arguments have none; pass arrays"
            ) from error
    try:
        # jax.grad gives a program some values and not others, such as `float()` of a differentiated argument.
        jax.vjp(lambda leaves: fn(leaves, *given[1:]), given[0])
        closed, shapes = _trace_with_values(fn, given, name)
    except _UNKNOWN as error:
        reason = plain_text(str(error).partition("\n")[0])
        raise CaptureError(f"{name} asks for a value that JAX does not give it: {reason}") from error
    structure = tree_util.tree_structure(shapes)

    def run_jaxpr(*args: Any) -> Any:
        return tree_util.tree_unflatten(structure, jaxpr_as_fun(closed)(*tree_util.tree_leaves(args)))

    return closed, shapes, run_jaxpr


def _trace_with_values(fn: Callable[..., Any], given: Sequence[Any], name: str) -> tuple[Any, Any]:
    # Each trace ends at the first unknown value, and the next trace knows this value.
    answers: list[Any] = []
    while len(answers) <= _MOST:
        closed, shapes, is_asked = _trace_until_asked(fn, given, answers)
        if not is_asked:
            return closed, shapes
        answers += jaxpr_as_fun(closed)(*tree_util.tree_leaves(given))
    raise CaptureError(f"{name} asks for more than {_MOST} values as it runs; use jax.lax.cond or jax.lax.while_loop")


def _trace_until_asked(fn: Callable[..., Any], given: Sequence[Any], answers: Sequence[Any]) -> tuple[Any, Any, bool]:
    # If the program asks for an unknown value, the output is the tracer of this value.
    is_asked = False

    def run_until_asked(*args: Any) -> Any:
        nonlocal is_asked
        first = next(leaf for leaf in tree_util.tree_leaves(args) if isinstance(leaf, Tracer))
        with _answer_tracers(_trace_of(first), iter(answers)):
            try:
                return fn(*args)
            except _AskedError as asked:
                is_asked = True
                return asked.args[0]

    closed, shapes = jax.make_jaxpr(run_until_asked, return_shape=True)(*given)
    return closed, shapes, is_asked


def _trace_of(tracer: Tracer) -> object:
    return tracer._trace  # noqa: SLF001 (JAX has no public name for it)


@contextmanager
def _answer_tracers(trace: object, answers: Iterator[Any]) -> Iterator[None]:
    # Give each tracer the next answer when the program first asks for its value.
    answered: dict[int, tuple[Tracer, Any]] = {}

    def value_of(tracer: Tracer) -> Any:
        # A compiled function has no values when the program itself runs either.
        if _trace_of(tracer) is not trace:
            return None
        if id(tracer) not in answered:
            answered[id(tracer)] = tracer, next(answers, None)
        if answered[id(tracer)][1] is None:
            raise _AskedError(tracer)
        return answered[id(tracer)][1]

    def wrap(original: Callable[..., Any], convert: Callable[..., Any]) -> Callable[..., Any]:
        def method(tracer: Tracer, *args: Any, **kwargs: Any) -> Any:
            value = tracer.to_concrete_value()
            return original(tracer, *args, **kwargs) if value is None else convert(value, *args, **kwargs)

        return method

    with ExitStack() as patches:
        replace_function(patches, Tracer, "to_concrete_value", value_of)
        for method, convert in _CONVERSIONS.items():
            replace_function(patches, Tracer, method, wrap(getattr(Tracer, method), convert))
        yield


_CONVERSIONS: Final[dict[str, Callable[..., Any]]] = {
    "__array__": lambda value, *args, **kwargs: np.asarray(value).__array__(*args, **kwargs),
    "__complex__": complex,
    "__float__": float,
    "tolist": lambda value: value.tolist(),
}
