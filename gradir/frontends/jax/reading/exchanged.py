"""What devices exchange inside the equations that run on several of them, and which process this one is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import jax
import numpy as np
from msgspec.structs import replace

from gradir.frontends.jax.reading import jaxprs
from gradir.frontends.jax.reading.assemble import Scopes
from gradir.frontends.jax.reading.flatten import Flattener
from gradir.frontends.texts import plain_text
from gradir.ir import Collective, Graph, Rank

_CALLED: Final[Mapping[str, tuple[str, str]]] = {
    **dict.fromkeys(("psum", "psum_invariant", "unreduced_psum"), ("all_reduce", "sum")),
    "pmax": ("all_reduce", "max"),
    "pmin": ("all_reduce", "min"),
    **dict.fromkeys(("all_gather", "all_gather_invariant", "all_gather_reduced"), ("all_gather", "")),
    **dict.fromkeys(("reduce_scatter", "unreduced_reduce_scatter"), ("reduce_scatter", "sum")),
    **dict.fromkeys(("all_to_all", "ragged_all_to_all"), ("all_to_all", "")),
    "ppermute": ("permute", ""),
    "pbroadcast": ("broadcast", ""),
}
"""The primitives that communicate, as operations and reductions in the words of `gradir.ir.Collective`."""

_BEGINS: Final = "_start"
_CARRIER: Final = "xla"


def with_collectives(graph: Graph, flat: Flattener, scopes: Scopes) -> Graph:
    """Return a graph of these records with what each device exchanges in order, and with this process's rank."""
    found: list[Collective] = []
    groups: dict[str, tuple[int, ...]] = {}
    records = [record for record in flat.records if record.native in jaxprs.OPAQUE]
    for record in records:
        scope, source = plain_text(scopes.path_of(record.context)), record.context.source
        issued = _issued([record.eqn], groups)
        found += (replace(each, phase="forward", scope=scope, source=each.source or source) for each in issued)
    for record in reversed(records):
        backward = None if record.probe is None else record.probe.backward
        if backward is not None and any(value.is_live for value in record.outputs):
            place = record.native, scopes.of(record.context), record.context.source
            nodes = [node.id for node in graph.nodes.values() if (node.native, node.scope, node.source) == place]
            # Several operations of one line cannot be told from each other.
            node = nodes[0] if len(nodes) == 1 else ""
            issued = _issued(backward.eqns, groups)
            found += (replace(each, phase="backward", node=node, source=None) for each in issued)
    rank = Rank(jax.process_index(), jax.process_count(), _CARRIER, groups=groups)
    return replace(graph, rank=rank, collectives=tuple(found))


def _issued(eqns: Sequence[Any], groups: dict[str, tuple[int, ...]]) -> Iterator[Collective]:
    """Yield the collectives of equations and of all that they call; ``groups`` gets the processes of each group."""
    sources = jaxprs.Sources()
    # By an own stack, since jaxprs may be nested deeply.
    work: list[tuple[Any, Any]] = [(eqn, None) for eqn in reversed(eqns)]
    while work:
        eqn, mesh = work.pop()
        params = jaxprs.params_of(eqn)
        op, reduce = _CALLED.get(jaxprs.name_of(eqn).removesuffix(_BEGINS), ("", ""))
        axes = _axes_of(params) if op else ()
        if axes:
            label = plain_text(",".join(axes))
            groups.setdefault(label, _processes(mesh, axes))
            tensors = tuple(jaxprs.meta_of(atom.aval) for atom in eqn.invars)
            yield Collective("", op, label, reduce=reduce, tensors=tensors, source=sources.of(eqn))
        inside = params.get("mesh", mesh)
        for jaxpr in _jaxprs_in(params):
            work += [(each, inside) for each in reversed(jaxpr.eqns)]


def _axes_of(params: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the axes of a mesh among which an equation communicates; `vmap` has numbers for its own."""
    axes = params.get("axes", params.get("axis_name", ()))
    several = axes if isinstance(axes, (tuple, list)) else (axes,)
    return tuple(str(axis) for axis in several if not isinstance(axis, int))


def _processes(mesh: Any, axes: Sequence[str]) -> tuple[int, ...]:
    """Return the processes that have a device on a line along some axes on which this process has one too."""
    own, names = jax.process_index(), list(getattr(mesh, "axis_names", ()))
    devices = getattr(mesh, "devices", None)
    if devices is None or not {*axes} <= {*names}:
        return tuple(range(jax.process_count()))
    numbers = np.vectorize(lambda device: device.process_index, otypes=[int])(devices)
    last = np.moveaxis(numbers, [names.index(axis) for axis in axes], range(-len(axes), 0))
    lines = last.reshape(-1, int(np.prod([numbers.shape[names.index(axis)] for axis in axes])))
    return tuple(sorted({own, *map(int, lines[(lines == own).any(axis=1)].ravel())}))


def _jaxprs_in(params: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the jaxprs among the parameters of an equation, without the constants that they are closed over."""
    for value in params.values():
        for each in value if isinstance(value, (tuple, list)) else (value,):
            opened = jaxprs.open_jaxpr(each)[0]
            if hasattr(opened, "eqns"):
                yield opened
