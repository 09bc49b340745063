"""Make a large graph readable with few passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from gradir.ir import Graph
from gradir.ir.marks import is_layer
from gradir.ir.memo import Memo
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
    """A graph small enough to read, and the passes that made it so."""

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
    return _reduce(graph, boxes)


def smallest(graph: Graph) -> Readable:
    """Return the result of `readable`, or else the smallest graph of its steps.

    >>> from gradir.ir import Graph, Node
    >>> wide = Graph.of([Node(f"x:{number}") for number in range(151)])
    >>> smallest(wide).note
    '151 nodes, all drawn: no step makes them fewer'
    """
    small = _reduce(graph, MOST_BOXES, len(graph.nodes) - 1)
    return small or Readable(graph, f"{_describe_size(graph)}, all drawn: no step makes them fewer")


def _reduce(graph: Graph, boxes: int, most: int = LARGE) -> Readable | None:
    """Return the result of `readable`, or of `smallest`."""
    if len(graph.nodes) <= max(boxes, LARGE):
        equal = [*_shrink_without_folding(graph)] if _has_layers(graph, MOST_LAYERS) else []
        return _describe(graph, *equal[-1]) if equal else Readable(graph)
    least, taken = graph, list[str]()
    # If no step reaches the wanted number, the most that a picture draws by default will do.
    for limit, small, steps in _shrink(graph, [*dict.fromkeys((boxes, LARGE, most))]):
        if limit not in {boxes, LARGE}:
            least, taken = min((least, taken), (small, steps), key=lambda result: len(result[0].nodes))
        elif len(small.nodes) <= limit:
            return _describe(graph, small, [*steps, *([] if limit == boxes else [f"no step makes them {boxes}"])])
    return None if least is graph else _describe(graph, least, taken)


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


def _shrink(graph: Graph, limits: Sequence[int]) -> Iterator[tuple[int, Graph, list[str]]]:
    equal = [(graph, list[str]())]
    for result in _shrink_without_folding(graph):
        equal.append(result)
        yield limits[0], *result
    nearly, (graph, steps) = _nearly_once(equal[-1][0]), equal[-1]
    starts = [(graph, steps), *([] if nearly is graph else [(nearly, [*steps, _NEARLY])])]
    folded = Memo[tuple[int, int], Graph](lambda place: fold(starts[place[0]][0], place[1]))
    nearly_folded = Memo[tuple[int, int], Graph](lambda place: _nearly_once(folded[place]))
    for limit in limits:
        yield from ((limit, *result) for result in equal)
        for number, (start, taken) in enumerate(starts):
            yield limit, start, taken
            for depth in _find_depths(start, limit):
                all_steps = [*taken, f"folded to depth {depth}"]
                yield limit, folded[number, depth], all_steps
                yield limit, nearly_folded[number, depth], [*all_steps, _NEARLY]
                if limit == limits[-1]:
                    # Many large graphs would take much memory.
                    del folded[number, depth], nearly_folded[number, depth]


_nearly_once: Final = partial(once, nearly=True)
_NEARLY: Final = "nearly equal steps once"
_STEPS: Final[Mapping[str, Callable[[Graph], Graph]]] = {
    "without accumulators": lambda graph: drop(graph, ["accumulate_grad"]),
    "equal layers once": rollup,
    "repeated steps once": once,
}


def _find_depths(graph: Graph, most: int) -> Iterator[int]:
    deepest = min(max(scope_depth(node.scope) for node in graph.nodes.values()), _DEEPEST)
    before = list[str]()
    for depth in range(deepest, -1, -1):
        module = destinations(graph, depth)
        places = [module(node) or node.id for node in graph.nodes.values()]
        if places != before and len({*places}) <= most:
            yield depth
        before = places
