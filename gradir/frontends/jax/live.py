"""A graph beside the function it was traced of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import jax
from jax import tree_util

from gradir.errors import CaptureError
from gradir.frontends.jax.arguments import Arguments, arranged, numbers_of, path_text, told
from gradir.frontends.jax.modules import prepared
from gradir.frontends.jax.reading.assemble import Assembly, Output
from gradir.frontends.jax.reading.flatten import Flattener
from gradir.frontends.jax.reading.flow import find_paths
from gradir.frontends.jax.reading.jaxprs import is_inexact
from gradir.frontends.jax.reading.scopes import Modules, Scopes
from gradir.frontends.jax.reading.values import Context, Value
from gradir.ir import Graph, Producer
from gradir.version import __version__

__all__ = ["LiveGraph", "capture"]


@dataclass(frozen=True)
class LiveGraph:
    """A graph, and what it was traced of: ``arguments.fn(differentiated, others)`` and the leaves that were given.

    ``reached`` tells of each differentiated leaf whether gradient comes to it.
    """

    graph: Graph
    arguments: Arguments
    reached: tuple[bool, ...]

    @property
    def fn(self) -> Callable[[Sequence[Any], Sequence[Any]], Any]:
        """The function of lists of leaves, without what it returns beside its output."""
        return self.arguments.fn

    @property
    def names(self) -> list[str]:
        """The names of the differentiated leaves."""
        return [leaf.name for leaf in self.arguments.differentiated]

    @property
    def differentiated(self) -> list[Any]:
        """The differentiated leaves, as they were given."""
        return [leaf.value for leaf in self.arguments.differentiated]

    @property
    def others(self) -> list[Any]:
        """The other leaves, as they were given."""
        return [leaf.value for leaf in self.arguments.others]


def capture(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
) -> LiveGraph:
    """The graph behind ``jax.grad(fn, argnums, has_aux)(*args, **kwargs)``, traced and never run.

    Raises:
        CaptureError: nothing that is returned has a gradient, none comes to what is differentiated, or JAX has no
            derivative of an operation on the way.
    """
    if not args:
        raise CaptureError(f"{told(fn)} is called without an argument: name what is to be differentiated")
    numbers = numbers_of(argnums, len(args))
    ready = prepared(fn, args, numbers)
    arguments = arranged(
        ready.fn,
        ready.args,
        kwargs,
        numbers,
        names=ready.argument_names,
        arrays_only=ready.watch.arrays_only,
        has_aux=has_aux,
    )
    return _captured(arguments, ready.watch, told(fn), {"argnums": numbers})


def _captured(arguments: Arguments, watch: Any, name: str, options: Mapping[str, Any]) -> LiveGraph:
    leaves = [*arguments.differentiated, *arguments.others]
    closed, shapes = _traced(arguments, watch)
    values = [
        Value(var.aval, "argument", name=leaf.name) for var, leaf in zip(closed.jaxpr.invars, leaves, strict=True)
    ]
    differentiated = values[: len(arguments.differentiated)]
    for value in differentiated:
        value.is_active = value.is_tainted = True
    flat = Flattener()
    made = flat.run(closed.jaxpr, closed.consts, values, Context())
    paths = [path_text(path) for path, _ in tree_util.tree_flatten_with_path(shapes)[0]]
    outputs = [Output(path, value) for path, value in zip(paths, made, strict=True) if is_inexact(value.aval)]
    if not outputs:
        raise CaptureError(f"{name} returns nothing that has a gradient: {_returned(made)}")
    find_paths(flat, [value for _, value in outputs])
    if not any(value.is_live for _, value in outputs):
        raise CaptureError(f"no gradient of what {name} returns comes to any of the differentiated arguments")
    live = [record.context for record in flat.records if any(value.is_live for value in record.outputs)]
    modules: Modules = watch
    integers = {leaf.name for leaf in arguments.integers}
    beside = [Output(value.name, value) for value in values if value.name in integers and not is_inexact(value.aval)]
    assembly = Assembly(flat, Scopes(modules, differentiated, live), differentiated)
    graph = assembly.graph(outputs, beside, Producer(__version__, "jax", jax.__version__, options))
    return LiveGraph(graph, arguments, tuple(value.is_live for value in differentiated))


def _traced(arguments: Arguments, watch: AbstractContextManager[object]) -> tuple[Any, Any]:
    """The jaxpr of a function, and the shapes of what it returns."""
    given = [leaf.value for leaf in arguments.differentiated]
    others = [leaf.value for leaf in arguments.others]
    with watch:
        traced: tuple[Any, Any] = jax.make_jaxpr(arguments.fn, return_shape=True)(given, others)
    return traced


def _returned(values: Sequence[Value]) -> str:
    dtypes = sorted({str(value.aval.dtype) for value in values})
    return f"its outputs are of {' and '.join(dtypes)}" if dtypes else "it has no output"
