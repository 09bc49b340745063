"""Trace functions that branch on values, such as ``if x.sum() > 0``."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from traceback import walk_tb
from types import FrameType
from typing import Any, Final, NamedTuple

import jax
import numpy as np
from jax import tree_util
from jax.core import Tracer
from jax.extend.core import jaxpr_as_fun

from gradir.errors import CaptureError
from gradir.frontends.jax.arguments import are_known
from gradir.frontends.texts import plain_text
from gradir.frontends.walks import frames_from, replace_function
from gradir.ir import Source

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


FindLine = Callable[[Iterable[FrameType]], "Source | None"]


class Read(NamedTuple):
    """A value that a program reads as numbers."""

    tracer: Tracer
    op: str
    source: Source | None


class Traced(NamedTuple):
    """A jaxpr that also returns ``reads``."""

    closed: Any
    shapes: Any
    fn: Callable[..., Any]
    reads: Sequence[Read] = ()


def trace_function(fn: Callable[..., Any], given: Sequence[Any], name: str, find_line: FindLine) -> Traced:
    """Trace a function, even one with branches."""
    try:
        closed, shapes = jax.make_jaxpr(fn, return_shape=True)(*given)
        return Traced(closed, shapes, fn)
    except _UNKNOWN as error:
        if not are_known(tree_util.tree_leaves(given)):
            raise CaptureError(
                f"{name} branches on values or reads them, but the arguments have none; pass arrays"
            ) from error
    try:
        # jax.grad gives a program some values and not others, such as `float()` of a differentiated argument.
        jax.vjp(lambda leaves: fn(leaves, *given[1:]), given[0])
        return _trace_with_values(fn, given, name, find_line)
    except _UNKNOWN as error:
        reason = plain_text(str(error).partition("\n")[0])
        source = find_line(reversed([frame for frame, _ in walk_tb(error.__traceback__)]))
        place = "" if source is None else f" at {source.file}:{source.line}"
        raise CaptureError(f"{name} reads a value{place} that JAX does not know: {reason}") from error


def _trace_with_values(fn: Callable[..., Any], given: Sequence[Any], name: str, find_line: FindLine) -> Traced:
    # Each trace ends at the first unknown value, and the next trace knows this value.
    answers: list[Any] = []
    while len(answers) <= _MOST:
        traced, is_asked = _trace_until_asked(fn, given, answers, find_line)
        if not is_asked:
            return traced
        answers += traced.fn(*given)
    raise CaptureError(f"{name} asks for more than {_MOST} values as it runs; use jax.lax.cond or jax.lax.while_loop")


def _trace_until_asked(
    fn: Callable[..., Any], given: Sequence[Any], answers: Sequence[Any], find_line: FindLine
) -> tuple[Traced, bool]:
    # If the program asks for an unknown value, the output is a list of the tracer of this value.
    is_asked, reads = False, list[Read]()

    def run_until_asked(*args: Any) -> Any:
        nonlocal is_asked
        reads.clear()
        first = next(leaf for leaf in tree_util.tree_leaves(args) if isinstance(leaf, Tracer))
        with _answer_tracers(_trace_of(first), iter(answers), reads, find_line):
            try:
                return fn(*args), [read.tracer for read in reads]
            except _AskedError as asked:
                is_asked = True
                reads.clear()
                return [asked.args[0]], []

    closed, (shapes, _) = jax.make_jaxpr(run_until_asked, return_shape=True)(*given)
    structure = tree_util.tree_structure(shapes)

    def run_jaxpr(*args: Any) -> Any:
        outputs = jaxpr_as_fun(closed)(*tree_util.tree_leaves(args))
        return tree_util.tree_unflatten(structure, outputs[: structure.num_leaves])

    return Traced(closed, shapes, run_jaxpr, reads), is_asked


def _trace_of(tracer: Tracer) -> object:
    return tracer._trace  # noqa: SLF001 (JAX has no public name for it)


@contextmanager
def _answer_tracers(trace: object, answers: Iterator[Any], reads: list[Read], find_line: FindLine) -> Iterator[None]:
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

    def wrap(name: str, convert: Callable[..., Any]) -> Callable[..., Any]:
        original = getattr(Tracer, name)

        def method(tracer: Tracer, *args: Any, **kwargs: Any) -> Any:
            value = value_of(tracer)
            if value is None:
                return original(tracer, *args, **kwargs)
            reads.append(Read(tracer, name.strip("_"), find_line(frames_from(inspect.currentframe()))))
            return convert(value, *args, **kwargs)

        return method

    with ExitStack() as patches:
        replace_function(patches, Tracer, "to_concrete_value", value_of)
        for name, convert in _CONVERSIONS.items():
            replace_function(patches, Tracer, name, wrap(name, convert))
        yield


_CONVERSIONS: Final[dict[str, Callable[..., Any]]] = {
    "__array__": lambda value, *args, **kwargs: np.asarray(value).__array__(*args, **kwargs),
    "__complex__": complex,
    "__float__": float,
    "__index__": operator.index,
    "__int__": int,
    "item": lambda value, *args: value.item(*args),
    "tolist": lambda value: value.tolist(),
}
