"""A graph beside the function it was traced of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
from jax import tree_util

from gradir.errors import CaptureError
from gradir.frontends.jax.arguments import Arguments, arrange_arguments, numbers_of, path_text, shown_name
from gradir.frontends.jax.branching import trace_function
from gradir.frontends.jax.modules import prepare
from gradir.frontends.jax.modules.watch import ModuleWatch
from gradir.frontends.jax.reading.assemble import Assembly, Output, Scopes
from gradir.frontends.jax.reading.exchanged import with_collectives
from gradir.frontends.jax.reading.flatten import Context, Flattener, Value
from gradir.frontends.jax.reading.flow import End, Ends, find_paths
from gradir.frontends.jax.reading.jaxprs import is_inexact, place_text
from gradir.ir import Graph, Producer
from gradir.version import __version__


@dataclass(frozen=True)
class LiveGraph:
    """A graph, and what it was traced of."""

    graph: Graph
    trace: Trace


class Trace:
    """A function that was traced, and what lies on a path in it."""

    def __init__(
        self, arguments: Arguments, watch: ModuleWatch, name: str, argnums: Sequence[int], target: object = None
    ) -> None:
        """Trace a function of leaves, made from ``target`` and called ``name`` in errors."""
        self._watch = watch
        self.name, self.target = name, target
        self._argnums = tuple(argnums)
        with watch:
            closed, shapes, taken = trace_function(arguments.fn, arguments.given, name)
        self.arguments = replace(arguments, fn=taken)
        leaves = [*arguments.differentiated, *arguments.others]
        pairs = zip(closed.jaxpr.invars, leaves, strict=True)
        values = [Value(var.aval, "argument", name=leaf.name) for var, leaf in pairs]
        count, integers = len(arguments.differentiated), {id(leaf) for leaf in arguments.integers}
        self.differentiated, self.others = values[:count], values[count:]
        self.integers = [value for value, leaf in zip(values, leaves, strict=True) if id(leaf) in integers]
        for value in self.differentiated:
            value.is_active = value.is_tainted = True
        self.flat = Flattener()
        made = self.flat.run(closed.jaxpr, closed.consts, values, Context())
        paths = [path_text(path) for path, _ in tree_util.tree_flatten_with_path(shapes)[0]]
        self.places = [place for place, value in enumerate(made) if is_inexact(value.aval)]
        self.outputs = [Output(paths[place], made[place]) for place in self.places]
        if not self.outputs:
            dtypes = " and ".join(sorted({str(value.aval.dtype) for value in made}))
            returned = f"its outputs are of {dtypes}" if dtypes else "it has no output"
            raise CaptureError(f"{name} returns nothing that has a gradient: {returned}")
        find_paths(self.flat, [value for _, value in self.outputs])

    @property
    def is_connected(self) -> bool:
        """Whether gradient comes to any leaf."""
        return any(value.is_live for value in self.differentiated)

    def ends(self) -> list[End]:
        """Return the ends of gradient before the leaves that get none, in the order of the program."""
        missing = [value for value in self.differentiated if not value.is_live]
        return [*Ends(self.flat, [value for _, value in self.outputs]).of(missing)] if missing else []

    def graph(self, *, collectives: bool = False) -> Graph:
        """Return the graph of all operations that lie on a path, with ``collectives`` also what devices exchange."""
        if not self.is_connected:
            records = [record for record, _ in self.ends() if record is not None]
            why = f": it ends in {records[0].op} {place_text(records[0].context.source)}" if records else ""
            raise CaptureError(
                f"no gradient of what {self.name} returns comes to any of the differentiated arguments{why}; "
                "'gradir explain' finds the line"
            )
        live = [record.context for record in self.flat.records if any(value.is_live for value in record.outputs)]
        scopes = Scopes(self._watch, self.differentiated, live)
        producer = Producer(__version__, "jax", jax.__version__, {"argnums": self._argnums})
        found = Assembly(self.flat, scopes, self.differentiated).graph(self.outputs, self.integers, producer)
        return with_collectives(found, self.flat, scopes) if collectives else found


def trace(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
) -> Trace:
    """Trace ``jax.grad(fn, argnums, has_aux)(*args, **kwargs)``."""
    if not args:
        raise CaptureError(f"{shown_name(fn)} is called without an argument: name what is to be differentiated")
    numbers = numbers_of(argnums, len(args))
    ready = prepare(fn, args, numbers)
    names, arrays_only = ready.argument_names, ready.watch.arrays_only
    arguments = arrange_arguments(
        ready.fn, ready.args, kwargs, numbers, names=names, arrays_only=arrays_only, has_aux=has_aux
    )
    return Trace(arguments, ready.watch, shown_name(fn), numbers, fn)
