"""A graph beside what JAX itself does: a real backward, and what `jax.vjp` of the whole function keeps."""

from __future__ import annotations

from typing import Any, Final

import jax
import numpy as np
from jax import tree_util

from gradir.errors import warn
from gradir.frontends.jax.arguments import are_known, draw_leaves, gradients
from gradir.frontends.jax.live import LiveGraph
from gradir.frontends.jax.reading.jaxprs import abstract, bytes_of, elements_of, is_inexact
from gradir.frontends.jax.reading.probe import Traced, trace_pullback
from gradir.ir import Graph
from gradir.ir.saved import Storages
from gradir.protocols import Verification

# With more numbers to draw than this, the backward is traced and not run.
_MOST: Final = 2**28


def verify(live: LiveGraph) -> Verification:
    """Compare a graph with JAX: the leaves that get a gradient, and the bytes that are kept for it."""
    functions = sum(node.role == "function" for node in live.graph.nodes.values())
    whole, wrong = _whole(live), list[str]()
    for place, (leaf, is_moved) in enumerate(zip(live.trace.differentiated, _moved(live), strict=True)):
        if is_moved and not leaf.is_live:
            wrong.append(f"{leaf.name} is not in the graph, and the backward gives it a gradient")
        if leaf.is_live and not any(row[place] for row in whole.reaches):
            wrong.append(f"{leaf.name} is in the graph, and the backward of JAX has no gradient for it")
    held, sizes = _held(live.graph), [bytes_of(kept.aval) for kept in whole.kept]
    kept = sum(size or 0 for size in sizes)
    if held is not None and None not in sizes and held != kept:
        wrong.append(f"the graph holds {held:,} bytes for the backward, and JAX keeps {kept:,}")
    return Verification(functions, sum(1 for _ in live.graph.edges), functions, tuple(wrong))


def _whole(live: LiveGraph) -> Traced:
    trace = live.trace
    values, count = [*trace.differentiated, *trace.others], len(trace.differentiated)

    def run(leaves: list[Any]) -> list[Any]:
        made: list[Any] = tree_util.tree_leaves(trace.arguments.fn(leaves[:count], leaves[count:]))
        return made

    given = [abstract(value.aval) for value in values]
    outputs = [abstract(output) for output in jax.eval_shape(run, given)]
    wanted = [number for number, output in enumerate(outputs) if is_inexact(output)]
    active = [place < count for place in range(len(values))]
    return trace_pullback(run, given, active, outputs, wanted)


def _moved(live: LiveGraph) -> list[bool]:
    """Return whether a real backward gives each leaf a gradient that is not zero."""
    given, others = live.trace.arguments.given
    sizes = [elements_of(leaf) for leaf in (*given, *others) if not are_known([leaf])]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes) or sum(known) > _MOST:
        why = f"they are more than {_MOST:,}" if len(known) == len(sizes) else "the size of some is not known"
        warn(f"verified by tracing alone: no numbers are drawn for leaves that have none, since {why}")
        return [False] * len(given)
    found = gradients(live.trace.arguments.fn, draw_leaves(given), draw_leaves(others))
    return [bool(np.any(np.asarray(gradient) != 0)) for gradient in found]


def _held(graph: Graph) -> int | None:
    """Return the bytes that slots of the graph hold, each storage once; ``None`` where a size is not known."""
    storages, total = Storages(), 0
    for node in graph.nodes.values():
        if any(slot.bytes is None and slot.state == "held" for slot in node.saved):
            return None
        total += sum(size for _, size, _ in storages.add(node))
    return total
