"""Trace a function, and make the graph of its gradient."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import jax
import numpy as np
from jax import tree_util
from msgspec.structs import replace

from gradir.errors import CaptureError
from gradir.frontends.jax.arguments import Arguments, arrange_arguments, callable_name, normalize_argnums, path_text
from gradir.frontends.jax.branching import trace_function
from gradir.frontends.jax.modules import prepare
from gradir.frontends.jax.modules.watch import ModuleWatch
from gradir.frontends.jax.reading import jaxprs
from gradir.frontends.jax.reading.assemble import Assembly, Output, Scopes
from gradir.frontends.jax.reading.flatten import Context, Flattener, Record, Value
from gradir.frontends.jax.reading.flow import EXIT, End, Ends, find_paths
from gradir.frontends.jax.reading.jaxprs import is_inexact, place_text
from gradir.frontends.texts import plain_text
from gradir.ir import Collective, Graph, Producer, Rank
from gradir.version import __version__


@dataclasses.dataclass(frozen=True)
class LiveGraph:
    """A graph, and the trace that it was made of."""

    graph: Graph
    trace: Trace


class Trace:
    """A traced function, with the paths of gradient in it."""

    def __init__(
        self, arguments: Arguments, watch: ModuleWatch, name: str, argnums: Collection[int], target: object = None
    ) -> None:
        """Trace a function of leaves, made from ``target`` and called ``name`` in errors."""
        self._watch = watch
        self.name, self.target = name, target
        self._argnums = tuple(argnums)
        with watch:
            closed, shapes, resolved, reads = trace_function(
                arguments.fn, arguments.values, name, jaxprs.Sources().find_user_line
            )
        self.arguments = dataclasses.replace(arguments, fn=resolved)
        leaves = [*arguments.differentiated, *arguments.others]
        pairs = zip(closed.jaxpr.invars, leaves, strict=True)
        values = [Value(var.aval, "argument", name=leaf.name) for var, leaf in pairs]
        count, integers = len(arguments.differentiated), {id(leaf) for leaf in arguments.integers}
        self.differentiated, self.others = values[:count], values[count:]
        self.integers = [value for value, leaf in zip(values, leaves, strict=True) if id(leaf) in integers]
        for value in self.differentiated:
            value.is_active = value.is_tainted = True
        self.flat = Flattener()
        returned = self.flat.run(closed.jaxpr, closed.consts, values, Context())
        paths = [path_text(path) for path, _ in tree_util.tree_flatten_with_path(shapes)[0]]
        returned, read = returned[: len(paths)], returned[len(paths) :]
        self.flat.reads = [
            Record(op, EXIT, None, [value], Context(source=source), {})
            for (_, op, source), value in zip(reads, read, strict=True)
        ]
        self.places = [place for place, value in enumerate(returned) if is_inexact(value.aval)]
        self.outputs = [Output(paths[place], returned[place]) for place in self.places]
        if not self.outputs:
            dtypes = " and ".join(sorted({str(value.aval.dtype) for value in returned}))
            reason = f"its outputs are of {dtypes}" if dtypes else "it has no output"
            raise CaptureError(f"{name} returns nothing that has a gradient: {reason}")
        find_paths(self.flat, [value for _, value in self.outputs])

    @property
    def is_connected(self) -> bool:
        """Whether any leaf gets a gradient."""
        return any(value.is_live for value in self.differentiated)

    @cached_property
    def all_ends(self) -> Ends:
        """The ends of all paths to differentiated leaves."""
        return Ends(self.flat, [value for _, value in self.outputs])

    def ends(self) -> list[End]:
        """Return the ends of the paths to leaves that get no gradient, in the order of the program."""
        missing = [value for value in self.differentiated if not value.is_live]
        return [*self.all_ends.of(missing)] if missing else []

    def graph(self, *, collectives: bool = False) -> Graph:
        """Return the graph of all operations on a path, with ``collectives`` also the communication of devices."""
        if not self.is_connected:
            records = [record for record, _ in self.ends() if record is not None]
            why = f": it ends in {records[0].op} {place_text(records[0].context.source)}" if records else ""
            raise CaptureError(
                f"no gradient flows from the result of {self.name} to a differentiated argument{why}; "
                "'gradir explain' finds the line"
            )
        live = [record.context for record in self.flat.records if record.is_live]
        scopes = Scopes(self._watch, self.differentiated, live)
        producer = Producer(__version__, "jax", jax.__version__, {"argnums": self._argnums})
        found = Assembly(self.flat, scopes).graph(self.outputs, self.ends(), self.integers, producer)
        return add_collectives(found, self.flat, scopes) if collectives else found


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
        raise CaptureError(f"{callable_name(fn)} is called without an argument to differentiate; pass one")
    numbers = normalize_argnums(argnums, len(args))
    call, watch = prepare(fn, args, numbers)
    arguments = arrange_arguments(call, kwargs, numbers, arrays_only=watch.arrays_only, has_aux=has_aux)
    return Trace(arguments, watch, callable_name(fn), numbers, fn)


_COLLECTIVES: Final[Mapping[str, tuple[str, str]]] = {
    **dict.fromkeys(("psum", "psum_invariant", "unreduced_psum"), ("all_reduce", "sum")),
    "pmax": ("all_reduce", "max"),
    "pmin": ("all_reduce", "min"),
    **dict.fromkeys(("all_gather", "all_gather_invariant", "all_gather_reduced"), ("all_gather", "")),
    **dict.fromkeys(("reduce_scatter", "unreduced_reduce_scatter"), ("reduce_scatter", "sum")),
    **dict.fromkeys(("all_to_all", "ragged_all_to_all"), ("all_to_all", "")),
    "ppermute": ("permute", ""),
    "pbroadcast": ("broadcast", ""),
}
"""The primitives that communicate, as operations and reductions of `gradir.ir.Collective`."""


def add_collectives(graph: Graph, flat: Flattener, scopes: Scopes) -> Graph:
    """Return a graph of these records with the collectives of each device in order, and this process's rank."""
    found: list[Collective] = []
    groups: dict[str, tuple[int, ...]] = {}
    records = [record for record in flat.records if record.native in jaxprs.OPAQUE]
    for record in records:
        scope, source = plain_text(scopes.path_of(record.context)), record.context.source
        issued = _find_collectives([record.eqn], groups)
        found += (replace(each, phase="forward", scope=scope, source=each.source or source) for each in issued)
    for record in reversed(records):
        if record.is_live and record.probe is not None and record.probe.backward is not None:
            place = record.native, scopes.of(record.context), record.context.source
            nodes = [node.id for node in graph.nodes.values() if (node.native, node.scope, node.source) == place]
            # Several operations of one line look the same, so which one communicates is unknown.
            node = nodes[0] if len(nodes) == 1 else ""
            issued = _find_collectives(record.probe.backward.eqns, groups)
            found += (replace(each, phase="backward", node=node, source=None) for each in issued)
    rank = Rank(jax.process_index(), jax.process_count(), "xla", groups=groups)
    return replace(graph, rank=rank, collectives=tuple(found))


def _find_collectives(eqns: Sequence[Any], groups: dict[str, tuple[int, ...]]) -> Iterator[Collective]:
    """Yield the collectives of equations and their callees; ``groups`` gets the processes of each group."""
    sources = jaxprs.Sources()
    # An explicit stack, since jaxprs may be nested deeply.
    waiting: list[tuple[Any, Any]] = [(eqn, None) for eqn in reversed(eqns)]
    while waiting:
        eqn, mesh = waiting.pop()
        params = jaxprs.params_of(eqn)
        op, reduce = _COLLECTIVES.get(jaxprs.name_of(eqn).removesuffix("_start"), ("", ""))
        found = params.get("axes", params.get("axis_name", ()))
        # The axes of `vmap` are numbers, and no devices communicate along them.
        several = found if isinstance(found, (tuple, list)) else (found,)
        axes = [str(each) for each in several if not isinstance(each, int)]
        if op and axes:
            label = plain_text(",".join(axes))
            groups.setdefault(label, _processes(mesh, axes))
            tensors = tuple(jaxprs.meta_of(atom.aval) for atom in eqn.invars)
            yield Collective("", op, label, reduce=reduce, tensors=tensors, source=sources.of(eqn))
        inside = params.get("mesh", mesh)
        for value in params.values():
            for each in value if isinstance(value, (tuple, list)) else (value,):
                waiting += [(inner, inside) for inner in reversed(getattr(jaxprs.open_jaxpr(each)[0], "eqns", ()))]


def _processes(mesh: Any, axes: Sequence[str]) -> tuple[int, ...]:
    """Return the processes that share a line of devices along some axes with this process."""
    own, names = jax.process_index(), list(getattr(mesh, "axis_names", ()))
    devices = getattr(mesh, "devices", None)
    if devices is None or not {*axes} <= {*names}:
        return tuple(range(jax.process_count()))
    numbers = np.vectorize(lambda device: device.process_index, otypes=[int])(devices)
    last = np.moveaxis(numbers, [names.index(axis) for axis in axes], range(-len(axes), 0))
    lines = last.reshape(-1, int(np.prod(last.shape[-len(axes) :])))
    return tuple(sorted({own, *map(int, lines[(lines == own).any(axis=1)].ravel())}))
