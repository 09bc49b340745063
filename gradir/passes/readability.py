"""Make a large graph readable with as few passes as possible."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Annotated, ClassVar, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from gradir.gcpause import paused_gc
from gradir.ir import Graph
from gradir.ir.frames import frames
from gradir.ir.marks import WEIGHTS, is_layer
from gradir.ir.model import Shape
from gradir.ir.module_tree import scope_depth, split_path
from gradir.options import Options
from gradir.passes.contraction import contracted
from gradir.passes.drop import drop, shape_operations
from gradir.passes.fold import destinations, fold
from gradir.passes.rollup import rollup
from gradir.passes.rounds import once
from gradir.passes.wiring import has_one_input, without
from gradir.pictures import LARGE
from gradir.vocabulary import vocabulary_of

_OUTSIDE: Final = frozenset({"output", "view_base"})


class LayersOptions(Options, frozen=True, kw_only=True):
    """Whether to show layers."""

    layers: Annotated[bool, msgspec.Meta(description="show each layer as one box, without operations on shapes")]


class LayersPass:
    """One node for each module without modules in it, no shape operations."""

    order: ClassVar[int] = 65
    options: ClassVar[type[Options]] = LayersOptions
    chooses: ClassVar[bool] = False

    def run(self, graph: Graph, options: LayersOptions) -> Graph:  # noqa: ARG002 (it runs where it is asked for)
        """See `layers`."""
        return layers(graph)


def layers(graph: Graph) -> Graph:
    """Make one node of each layer, and leave out accumulators and operations that only rearrange elements.

    A layer is a module below the model that has no module in it, such as a ``Linear``. Its node is one of
    `gradir.passes.fold`, with the names and shapes of its parameters in the attribute ``weights``. Each call of a
    layer is a node, of which the first has the parameters. Operations at a cut stay.

    >>> from gradir.ir import Builder, Scope, TensorMeta
    >>> b = Builder()
    >>> w = b.tensor("fc.w", TensorMeta("float32", (3, 2)), role="parameter", scope="fc")
    >>> t = b.function("t", [w], [TensorMeta("float32", (2, 3))], scope="fc")
    >>> h = b.function("mm", [None, t], [TensorMeta("float32", (4, 3))], scope="fc")
    >>> b.output(b.function("sum", [b.function("view", [h], [TensorMeta()])], [TensorMeta("float32", ())]))
    >>> shown = layers(b.build(scopes=[Scope("", "Net"), Scope("fc", "Linear", calls=1)]))
    >>> list(shown.nodes), shown.nodes["fc"].attrs["weights"]
    (['fc', 'sum:1', 'output'], (('w', (3, 2)),))
    """
    with paused_gc():
        found = _leaves(graph)
        accumulators = vocabulary_of(graph).accumulators
        apart = frames(graph, accumulators)
        places = [
            node.scope if node.scope in found and node.role not in _OUTSIDE else None for node in graph.nodes.values()
        ]
        if any(place is not None for place in places):
            weights: dict[str, list[tuple[str, Shape | None]]] = {}
            # Calls of a module that are not connected are layers of their own.
            calls = [apart.get(node.id, "") for node in graph.nodes.values()]
            graph, called, before = *contracted(graph, places, calls), graph
            for node, place in zip(before.nodes.values(), places, strict=True):
                if place is not None:
                    own = weights.setdefault(called(node.id), [])
                    if node.role == "parameter":
                        own.append((node.label.removeprefix(f"{node.scope}."), node.shape))
            boxes = {}
            for key, these in weights.items():
                # Matrices come before biases.
                these.sort(key=lambda weight: -len(weight[1] or ()))
                boxes[key] = replace(graph.nodes[key], attrs={**graph.nodes[key].attrs, WEIGHTS: tuple(these)})
            graph = replace(graph, nodes={**graph.nodes, **boxes})
        cut = {end for each in graph.cuts for end in (each.at, each.into)}
        nodes = graph.nodes.values()
        hidden = {node.id for node in nodes if node.op in accumulators and has_one_input(node)}
        return without(graph, (hidden | shape_operations(graph)) - cut, has_one_input)


def _leaves(graph: Graph) -> set[str]:
    holding = {""}
    for path in {*graph.scopes, *(node.scope for node in graph.nodes.values())}:
        above = split_path(path)[0]
        # A file may lack a module between.
        while above not in holding:
            holding.add(above)
            above = split_path(above)[0]
    return {path for path, scope in graph.scopes.items() if path and scope.class_name and path not in holding}


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
