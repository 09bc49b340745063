"""Make a large graph small enough to read, by as few passes as do it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gradir.ir.module_tree import scope_depth
from gradir.passes.drop import drop
from gradir.passes.fold import destinations, fold
from gradir.passes.rollup import rollup
from gradir.passes.rounds import once

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradir.ir import Graph

__all__ = ["MOST_BOXES", "Readable", "readable"]

_LARGE: Final = 150
"""More boxes than these are a large picture."""

MOST_BOXES: Final = 60
"""As many boxes are left of a large one, where some depth makes them so few."""

_DEEPEST: Final = 16


class Readable(NamedTuple):
    """A graph that is small enough to read, and what was done to make it so; nothing where it was small."""

    graph: Graph
    note: str = ""


def readable(graph: Graph, boxes: int = MOST_BOXES, large: int = _LARGE) -> Readable | None:
    """The graph itself where it is not larger than either limit, else one of at most ``boxes`` nodes, or of ``large``.

    Each step is taken only where those before it leave too many: accumulators go, one of equal layers stands for all,
    so does one of the equal steps of a loop or a chain, and modules are folded, as little as is enough. ``None`` is
    for a graph that no depth makes so small.

    >>> from gradir.ir import Graph, Node
    >>> layers = Graph.of([Node(f"f:{number}", scope=f"h.{number // 10}") for number in range(1000)])
    >>> small = readable(layers, 120)
    >>> len(small.graph.nodes), small.note
    (100, '1,000 nodes as 100 boxes: folded to depth 2')
    """
    if len(graph.nodes) <= max(boxes, large):
        return Readable(graph)
    done: list[str] = []
    small = graph
    for words, smaller in (
        ("without accumulators", _unaccumulated),
        ("equal layers once", rollup),
        ("repeated steps once", once),
    ):
        before, small = small, smaller(small)
        if small is not before:
            done.append(words)
        if len(small.nodes) <= boxes:
            return Readable(small, _note(graph, small, done))
    for most in (boxes, large):
        if len(small.nodes) <= most:
            return Readable(small, _note(graph, small, done))
        for depth in _depths(small, most):
            folded = fold(small, depth)
            if len(folded.nodes) <= most:
                return Readable(folded, _note(graph, folded, [*done, f"folded to depth {depth}"]))
    return None


def _unaccumulated(graph: Graph) -> Graph:
    return drop(graph, ["accumulate_grad"])


def _depths(graph: Graph, most: int) -> Iterator[int]:
    """The depths at which there may be so few boxes, deep ones first."""
    deepest = min(max(scope_depth(node.scope) for node in graph.nodes.values()), _DEEPEST)
    for depth in range(deepest, -1, -1):
        module = destinations(graph, depth)
        if len({module(node) or node.id for node in graph.nodes.values()}) <= most:
            yield depth


def _note(graph: Graph, small: Graph, done: list[str]) -> str:
    return f"{len(graph.nodes):,} nodes as {len(small.nodes):,} boxes: {', '.join(done)}"
