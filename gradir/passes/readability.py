"""Make a large graph readable with as few passes as possible."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

from gradir.ir import Graph
from gradir.ir.marks import is_layer
from gradir.ir.module_tree import scope_depth
from gradir.passes.drop import drop
from gradir.passes.fold import destinations, fold
from gradir.passes.rollup import rollup
from gradir.passes.rounds import once
from gradir.pictures import LARGE

# A large graph is reduced to this many boxes, if some depth makes that possible.
MOST_BOXES: Final = 60
# Of more layers and operations than this, equal ones are shown once.
MOST_LAYERS: Final = 40
# Each depth folds the graph again, so the time for a deeply nested graph is bounded.
_DEEPEST: Final = 16


class Readable(NamedTuple):
    """A graph that is small enough to read, and the passes that made it so."""

    graph: Graph
    note: str = ""


def readable(graph: Graph, boxes: int = MOST_BOXES) -> Readable | None:
    """Return the graph if it is within both limits, else one of at most ``boxes`` nodes, or of `LARGE`.

    Steps run only while there are too many nodes: drop accumulators, roll up equal layers, then equal steps, fold
    modules, and join steps that differ only in attributes. Return ``None`` if that does not suffice.

    >>> from gradir.ir import Graph, Node
    >>> layers = Graph.of([Node(f"f:{number}", scope=f"h.{number // 10}") for number in range(1000)])
    >>> small = readable(layers, 120)
    >>> len(small.graph.nodes), small.note
    (100, '1,000 nodes as 100 boxes: folded to depth 2')
    """
    if len(graph.nodes) <= max(boxes, LARGE):
        equal = [*_unfolded(graph)] if _has_layers(graph, MOST_LAYERS) else []
        small, done = equal[-1] if equal else (graph, [])
        return Readable(small, f"{_size(graph)} as {len(small.nodes):,} boxes: {', '.join(done)}" if done else "")
    # If no step reaches the wanted number, the most that a picture draws by default will do.
    for most, why in ((boxes, ()), (LARGE, (f"no step makes them {boxes}",))):
        for small, done in _rungs(graph, most):
            if len(small.nodes) <= most:
                note = f"{_size(graph)} as {len(small.nodes):,} boxes: {', '.join([*done, *why])}"
                return Readable(small, note)
    return None


def smallest(graph: Graph) -> Readable:
    """Return the result of `readable`, or the smallest graph of its steps if there is none.

    >>> from gradir.ir import Graph, Node
    >>> wide = Graph.of([Node(f"x:{number}") for number in range(151)])
    >>> smallest(wide).note
    '151 nodes, all drawn: no step makes them fewer'
    """
    small = readable(graph)
    if small is not None:
        return small
    rungs = ((made, [*how]) for made, how in _rungs(graph, len(graph.nodes) - 1))
    least, done = min(rungs, default=(graph, []), key=lambda rung: len(rung[0].nodes))
    if len(least.nodes) >= len(graph.nodes):
        return Readable(graph, f"{_size(graph)}, all drawn: no step makes them fewer")
    return Readable(least, f"{_size(graph)} as {len(least.nodes):,} boxes: {', '.join(done)}")


def _size(graph: Graph) -> str:
    what = "layers and operations" if _has_layers(graph, 0) else "nodes"
    return f"{len(graph.nodes):,} {what}"


def _has_layers(graph: Graph, more_than: int) -> bool:
    return len(graph.nodes) > more_than and any(map(is_layer, graph.nodes.values()))


def _unfolded(graph: Graph) -> Iterator[tuple[Graph, list[str]]]:
    done: list[str] = []
    for words, smaller in _STEPS.items():
        before, graph = graph, smaller(graph)
        if graph is not before:
            done.append(words)
            yield graph, [*done]


def _rungs(graph: Graph, most: int) -> Iterator[tuple[Graph, list[str]]]:
    done: list[str] = []
    for smaller, done in _unfolded(graph):
        graph = smaller
        yield graph, done
    nearly = _nearly_once(graph)
    for start, steps in ((graph, done), (nearly, [*done, _NEARLY])):
        if start is nearly:
            yield nearly, steps
        for depth in _depths(start, most):
            folded, how = fold(start, depth), [*steps, f"folded to depth {depth}"]
            yield folded, how
            yield _nearly_once(folded), [*how, _NEARLY]


_nearly_once: Final = partial(once, nearly=True)
_NEARLY: Final = "nearly equal steps once"
_STEPS: Final[Mapping[str, Callable[[Graph], Graph]]] = {
    "without accumulators": lambda graph: drop(graph, ["accumulate_grad"]),
    "equal layers once": rollup,
    "repeated steps once": once,
}


def _depths(graph: Graph, most: int) -> Iterator[int]:
    deepest = min(max(scope_depth(node.scope) for node in graph.nodes.values()), _DEEPEST)
    for depth in range(deepest, -1, -1):
        module = destinations(graph, depth)
        if len({module(node) or node.id for node in graph.nodes.values()}) <= most:
            yield depth
