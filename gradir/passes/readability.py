"""Make a large graph readable with as few passes as possible."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
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
# If there are more layers and operations than this, equal ones are shown once.
MOST_LAYERS: Final = 40
# Each depth folds the graph again, so the time for a deeply nested graph is bounded.
_DEEPEST: Final = 16


class Readable(NamedTuple):
    """A graph that is small enough to read, and the passes that made it so."""

    graph: Graph
    note: str = ""


def readable(graph: Graph, boxes: int = MOST_BOXES) -> Readable | None:
    """Return the graph if it is within both limits, else one of at most ``boxes`` nodes, or of `LARGE`.

    Steps run only while there are too many nodes. They drop accumulators, roll up equal layers, then equal steps,
    fold modules, and join steps that differ only in attributes. Return ``None`` if that does not suffice.

    >>> from gradir.ir import Graph, Node
    >>> layers = Graph.of([Node(f"f:{number}", scope=f"h.{number // 10}") for number in range(1000)])
    >>> small = readable(layers, 120)
    >>> len(small.graph.nodes), small.note
    (100, '1,000 nodes as 100 boxes: folded to depth 2')
    """
    if len(graph.nodes) <= max(boxes, LARGE):
        equal = [*_shrink_without_folding(graph)] if _has_layers(graph, MOST_LAYERS) else []
        return _describe(graph, *equal[-1]) if equal else Readable(graph)
    # If no step reaches the wanted number, the most that a picture draws by default will do.
    for most, why in ((boxes, ()), (LARGE, (f"no step makes them {boxes}",))):
        for small, steps in _shrink(graph, most):
            if len(small.nodes) <= most:
                return _describe(graph, small, [*steps, *why])
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
    results = _shrink(graph, len(graph.nodes) - 1)
    least, steps = min(results, default=(graph, []), key=lambda result: len(result[0].nodes))
    if len(least.nodes) >= len(graph.nodes):
        return Readable(graph, f"{_describe_size(graph)}, all drawn: no step makes them fewer")
    return _describe(graph, least, steps)


def _describe(graph: Graph, small: Graph, steps: Iterable[str]) -> Readable:
    return Readable(small, f"{_describe_size(graph)} as {len(small.nodes):,} boxes: {', '.join(steps)}")


def _describe_size(graph: Graph) -> str:
    return f"{len(graph.nodes):,} {'layers and operations' if _has_layers(graph, 0) else 'nodes'}"


def _has_layers(graph: Graph, more_than: int) -> bool:
    return len(graph.nodes) > more_than and any(map(is_layer, graph.nodes.values()))


def _shrink_without_folding(graph: Graph) -> Iterator[tuple[Graph, list[str]]]:
    steps: list[str] = []
    for name, shrink in _STEPS.items():
        before, graph = graph, shrink(graph)
        if graph is not before:
            steps = [*steps, name]
            yield graph, steps


def _shrink(graph: Graph, most: int) -> Iterator[tuple[Graph, list[str]]]:
    steps: list[str] = []
    for smaller, steps in _shrink_without_folding(graph):
        yield smaller, steps
        graph = smaller
    nearly = _nearly_once(graph)
    for start, taken in ((graph, steps), (nearly, [*steps, _NEARLY])):
        if start is nearly:
            yield nearly, taken
        for depth in _find_depths(start, most):
            folded, all_steps = fold(start, depth), [*taken, f"folded to depth {depth}"]
            yield folded, all_steps
            yield _nearly_once(folded), [*all_steps, _NEARLY]


_nearly_once: Final = partial(once, nearly=True)
_NEARLY: Final = "nearly equal steps once"
_STEPS: Final[Mapping[str, Callable[[Graph], Graph]]] = {
    "without accumulators": lambda graph: drop(graph, ["accumulate_grad"]),
    "equal layers once": rollup,
    "repeated steps once": once,
}


def _find_depths(graph: Graph, most: int) -> Iterator[int]:
    deepest = min(max(scope_depth(node.scope) for node in graph.nodes.values()), _DEEPEST)
    for depth in range(deepest, -1, -1):
        module = destinations(graph, depth)
        if len({module(node) or node.id for node in graph.nodes.values()}) <= most:
            yield depth
