"""The layer table as data: parameters, saved bytes and output shapes of each module."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from gradir.ir import Graph, Node
from gradir.ir.cuts import counts_text
from gradir.ir.ids import is_root, whole_name
from gradir.ir.marks import FLOPS, failure, flops, is_backward, milliseconds, savings, times
from gradir.ir.model import Shape, clamp_size
from gradir.ir.module_tree import OUTSIDE, ModuleTree, class_text, remove_steps, scope_depth
from gradir.ir.saved import SavedBytes, bytes_beyond_slots, bytes_of_omitted, is_unsized, read_merged
from gradir.ir.totals import parameter_elements
from gradir_exporters._box_words import failure_lines

_Number = TypeVar("_Number", int, float)

_OPERATIONS: Final = frozenset({"function", "module"})
_NUMBER: Final = re.compile(r"_\d+\Z")
# No tensor of a model has more dimensions. A longer shape in a file would be repeated for each module around it.
_MOST_SIZES: Final = 64
# If more distinct shapes leave a module, they count as unknown, for the same reason.
_MOST_SHAPES: Final = 16
_USUAL: Final = ("held", "freed", "hooked")
_SCOPE: Final = "scope"
# In ``ext``, this value of ``scope`` marks a node that the model's caller made.
_CALLER: Final = "caller"
# The producer's option that says that the front-end marks every such node.
_CALLERS: Final = "callers"


class Layer(msgspec.Struct, frozen=True, gc=False, rename={"class_name": "class"}):
    """One module; ``own`` fields leave out the modules below, and ``unsized`` counts saved slots of unknown size."""

    path: str
    class_name: str
    calls: int
    output_shapes: tuple[Shape | None, ...] | None
    own_parameters: int
    parameters: int
    trainable: int
    own_saved_bytes: int
    saved_bytes: int
    own_unsized: int
    unsized: int


class CostedLayer(Layer, frozen=True, gc=False):
    """A module with the cost of its operations: FLOPs, and milliseconds if measured."""

    own_flops: int = 0
    flops: int = 0
    own_milliseconds: float = 0.0
    forward_milliseconds: float = 0.0
    backward_milliseconds: float = 0.0


class ComparedLayer(Layer, frozen=True, gc=False):
    """A module with the bytes that each of several ways to train keeps for its backward, by the name of the way."""

    kept: dict[str, int]


class Totals(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The whole graph: ``saved_bytes`` includes ``outside_bytes`` and ``folded_bytes``.

    ``owned_bytes`` are parameters, buffers and leaves that slots keep. ``cuts`` counts each kind in a recorded
    forward. ``raised`` is the operation that ended it. ``kept`` has the bytes that each of several ways to train
    keeps for its backward.
    """

    parameters: int
    trainable: int
    nodes: int
    saved_bytes: int
    states: dict[str, State]
    outside_bytes: int
    folded_bytes: int
    owned_bytes: int
    cuts: str = ""
    raised: str = ""
    nodes_with_equal_ones: int = 0
    flops: int = 0
    forward_milliseconds: float = 0.0
    backward_milliseconds: float = 0.0
    kept: dict[str, int] = {}


class Row(NamedTuple):
    """A module as a row: its name below the module above it, and its depth."""

    name: str
    level: int
    layer: Layer


def layers(graph: Graph, depth: int | None) -> tuple[list[Row], Totals]:
    """Return the modules of at most ``depth`` path components, and the totals."""
    table = _Table(graph)
    return table.rows(depth), table.totals()


class _Table:
    def __init__(self, graph: Graph) -> None:
        # The frames of `gradir.passes.once` are no modules of the program.
        modules, self._path_of = remove_steps(graph.scopes.values())
        self._graph, self._tree = graph, ModuleTree(modules)
        self._places = {node.id: self._place_of_node(node) for node in graph.nodes.values()}
        self._saved = Savings(graph, self._places, self._place_of)

    def rows(self, depth: int | None) -> list[Row]:
        tree, saved = self._tree, self._saved
        saved_total, unsized_total = self._add_children(saved.bytes), self._add_children(saved.unsized)
        shapes = _output_shapes(self._graph, tree, self._places, self._place_of)
        costs: Sequence[tuple[Any, ...]] = self._costs()
        further = costs or self._compare_ways()
        kind = CostedLayer if costs else ComparedLayer if further else Layer
        return [
            Row(
                tree.names[place],
                tree.levels[place],
                kind(
                    scope.path,
                    class_text(scope),
                    scope.calls,
                    shapes[place],
                    scope.own,
                    scope.total,
                    scope.trainable,
                    clamp_size(saved.bytes.get(place, 0)),
                    saved_total[place],
                    saved.unsized.get(place, 0),
                    unsized_total[place],
                    *(further[place] if further else ()),
                ),
            )
            for place, scope in enumerate(tree.scopes)
            if depth is None or scope_depth(scope.path) <= depth
        ]

    def _place_of(self, path: str) -> int:
        return self._tree.place(self._path_of(path))

    def _place_of_node(self, node: Node) -> int:
        """Return the module of a node; a folded module belongs to itself, an output to none."""
        if node.role == "output" or (node.ext and node.ext.get(_SCOPE) == _CALLER):
            return OUTSIDE
        if node.role != "module":
            return self._place_of(node.scope)
        if is_root(node.id):
            return self._place_of("")
        name = node.names[0] if node.names else node.id
        place = self._place_of(name)
        is_exact = place != OUTSIDE and self._tree.scopes[place].path == name
        # The names of the second and further parts of a folded module end in a number.
        return place if is_exact else self._place_of(whole_name(name))

    def _add_children(self, own: Mapping[int, int]) -> list[int]:
        return [*map(clamp_size, self._sum_below(own))]

    def _sum_below(self, own: Mapping[int, _Number]) -> list[_Number]:
        return self._tree.with_below([own.get(place, 0) for place in range(len(self._tree.scopes))])

    def _costs(self) -> list[tuple[int, int, float, float, float]]:
        if not says_costs(self._graph):
            return []
        own, forward, backward = Counter[int](), defaultdict[int, float](float), defaultdict[int, float](float)
        for node in self._graph.nodes.values():
            place, taken = self._places[node.id], milliseconds(node)
            own[place] += flops(node)
            forward[place] += taken[0]
            backward[place] += taken[1]
        for path, count in _flops_apart(self._graph):
            own[self._place_of(path)] += count
        rows = zip(self._add_children(own), self._sum_below(forward), self._sum_below(backward), strict=True)
        return [
            (clamp_size(own[place]), total, forward.get(place, 0.0) + backward.get(place, 0.0), before, after)
            for place, (total, before, after) in enumerate(rows)
        ]

    def _compare_ways(self) -> list[tuple[dict[str, int]]]:
        """Return, by module number, the last field of a `ComparedLayer`; empty if there is one way to train."""
        own: defaultdict[str, Counter[int]] = defaultdict(Counter)
        for name, path, size in savings(self._graph):
            own[name][self._place_of(path)] += size
        sums = {name: self._add_children(sizes) for name, sizes in own.items()}
        places = range(len(self._tree.scopes)) if sums else ()
        return [({name: each[place] for name, each in sums.items()},) for place in places]

    def totals(self) -> Totals:
        graph, tree, saved = self._graph, self._tree, self._saved
        parameters = sum(tree.scopes[top].total for top in tree.tops)
        trainable = sum(tree.scopes[top].trainable for top in tree.tops)
        if not any(scope.calls or scope.total for scope in tree.scopes):
            # Without a scope table only the parameters in the graph are known, and all of them are trained.
            parameters = trainable = sum(map(parameter_elements, graph.nodes.values()))
        nodes = graph.nodes.values()
        with_equal_ones = 0 if any(node.role == "module" for node in nodes) else sum(map(times, nodes))
        failed = next(filter(failure, nodes), None)
        kept: dict[str, int] = {}
        for name, _, size in savings(graph):
            kept[name] = clamp_size(kept.get(name, 0) + size)
        # Without costs, the fields have their defaults, which msgspec omits.
        costs: dict[str, Any] = {}
        if says_costs(graph):
            taken = [*map(milliseconds, nodes)]
            costs = {
                "flops": clamp_size(sum(map(flops, nodes)) + sum(count for _, count in _flops_apart(graph))),
                "forward_milliseconds": sum(forward for forward, _ in taken),
                "backward_milliseconds": sum(backward for _, backward in taken),
            }
        return Totals(
            clamp_size(parameters),
            clamp_size(trainable),
            len(nodes),
            clamp_size(sum(saved.bytes.values())),
            saved.states,
            clamp_size(saved.bytes.get(OUTSIDE, 0)),
            clamp_size(saved.folded),
            clamp_size(saved.owned),
            counts_text(graph),
            "" if failed is None else f"{failed.id} {' at '.join(failure_lines(failed))}",
            0 if with_equal_ones == len(nodes) else clamp_size(with_equal_ones),
            kept=kept,
            **costs,
        )


def says_costs(graph: Graph) -> bool:
    """Return whether the graph has the cost of its operations."""
    return FLOPS in graph.producer.options


def _flops_apart(graph: Graph) -> Iterator[tuple[str, int]]:
    found = graph.producer.options[FLOPS]
    for pair in found if isinstance(found, tuple) else ():
        if isinstance(pair, tuple) and [*map(type, pair)] == [str, int]:
            yield pair  # type: ignore[misc]


def _output_shapes(
    graph: Graph, tree: ModuleTree, places: Mapping[str, int], place_of: Callable[[str], int]
) -> list[tuple[Shape | None, ...] | None]:
    """Return, by module, the distinct shapes of the tensors that nodes outside take, or that were captured.

    A tensor made only of parameters, such as a transposed weight, is no output. The shapes are ``None`` if nothing
    leaves, the module was never called, or too many shapes leave. They are also ``None`` if a folded node made the
    tensor, or if the captured tensor may be the caller's.
    """
    equal_modules: defaultdict[int, dict[int, None]] = defaultdict(dict)
    for node in graph.nodes.values():
        equal_modules[places[node.id]].update((place_of(part.path), None) for part in read_merged(node) if part.path)
    leaving = _Leaving(tree, marks_callers=graph.producer.options.get(_CALLERS) is True)
    nodes = graph.nodes
    prepared: set[str] = set()
    for node in nodes.values():
        if node.role == "function" and not node.saved and node.inputs:
            sources = [nodes.get(ref.id) if ref is not None else None for ref in node.inputs]
            if all(each is not None and (each.role == "parameter" or each.id in prepared) for each in sources):
                prepared.add(node.id)
        if node.role == "view_base" or is_backward(node):
            continue
        taker = places[node.id]
        for ref in node.inputs:
            if ref is None or ref.id in prepared or places.get(ref.id, taker) == taker:
                continue
            source = nodes[ref.id]
            if source.role not in _OPERATIONS or is_backward(source):
                continue
            shape = source.outputs[ref.output_nr].shape if ref.output_nr < len(source.outputs) else None
            if shape is not None and len(shape) > _MOST_SIZES:
                shape = None
            maker = places[source.id]
            others = tuple(equal_modules[maker]) if times(source) > 1 else ()
            leaving.add(maker, taker, shape, is_folded=source.role == "module", others=others)
    return leaving.shapes()


class _Leaving:
    def __init__(self, tree: ModuleTree, *, marks_callers: bool) -> None:
        self._tree, self._marks_callers = tree, marks_callers
        self._shapes: list[dict[Shape | None, None]] = [{} for _ in tree.scopes]
        self._unknown = [not calls for calls in tree.with_below([scope.calls for scope in tree.scopes])]
        self._seen: set[tuple[object, ...]] = set()

    def add(self, maker: int, taker: int, shape: Shape | None, *, is_folded: bool, others: tuple[int, ...]) -> None:
        key = (maker, taker, shape, is_folded, bool(others))
        if key in self._seen:
            return
        self._seen.add(key)
        count = self._add_to_modules(maker, taker, shape, is_folded=is_folded)
        for other in others:
            for module in islice(self._tree.and_above(other), count):
                self._add_to(module, shape, is_unknown=is_folded)

    def _add_to_modules(self, maker: int, taker: int, shape: Shape | None, *, is_folded: bool) -> int:
        """Add a shape to all modules around ``maker`` but not ``taker``, and return their number."""
        count = 0
        tree, around = self._tree, taker
        below = OUTSIDE
        for module in tree.and_above(maker):
            while around != OUTSIDE and tree.levels[around] > tree.levels[module]:
                around = tree.parents[around]
            if around == module:
                break
            is_root = not tree.scopes[module].path
            is_unknown = is_folded or (is_root and not self._marks_callers and self._may_be_of_caller(below))
            self._add_to(module, shape, is_unknown=is_unknown)
            below, count = module, count + 1
        return count

    def _add_to(self, module: int, shape: Shape | None, *, is_unknown: bool) -> None:
        if len(self._shapes[module]) <= _MOST_SHAPES:
            self._shapes[module][shape] = None
        self._unknown[module] |= is_unknown

    def shapes(self) -> list[tuple[Shape | None, ...] | None]:
        return [
            None if unknown or not shapes or len(shapes) > _MOST_SHAPES else tuple(shapes)
            for shapes, unknown in zip(self._shapes, self._unknown, strict=True)
        ]

    def _may_be_of_caller(self, below: int) -> bool:
        # The path of a module that the caller ran beside the model, such as a criterion, is its class.
        if below == OUTSIDE:
            return True
        scope = self._tree.scopes[below]
        return scope.class_name in (scope.path, _NUMBER.sub("", scope.path))


class State(msgspec.Struct, gc=False):
    """The saved slots of one state; ``unsized`` counts those of unknown size."""

    slots: int = 0
    unsized: int = 0
    bytes: int = 0


class Savings:
    """The saved bytes of each module's own operations; ``owned`` are those of parameters, buffers and leaves."""

    def __init__(self, graph: Graph, places: Mapping[str, int], place_of: Callable[[str], int]) -> None:
        """Take the module of each node by id, and a function that returns the module of a path."""
        self.unsized: defaultdict[int, int] = defaultdict(int)
        self.bytes: defaultdict[int, int] = defaultdict(int)
        self.folded = 0
        states = {word: State() for word in _USUAL}
        sizes: SavedBytes[int] = SavedBytes(graph.nodes)
        for node in graph.nodes.values():
            place = places[node.id]
            if node.saved:
                sizes.add(node, place)
            for saved in node.saved:
                state = states.get(saved.state) or states.setdefault(saved.state, State())
                state.slots += 1
                if is_unsized(saved):
                    state.unsized += 1
                    self.unsized[place] += 1
            if node.role == "module":
                self.folded += bytes_beyond_slots(node)
                # The bytes in its marks are added below.
                self.bytes[place] += bytes_beyond_slots(node) - bytes_of_omitted(node)
        self.owned = sum(sizes.owned.values())
        for (place, word), size in sizes.bytes.items():
            self.bytes[place] += size
            states[word].bytes = clamp_size(states[word].bytes + size)
        for place, part in ((places[node.id], part) for node in graph.nodes.values() for part in read_merged(node)):
            if not part.state:
                self.owned += part.bytes
                continue
            state = states.setdefault(part.state, State())
            state.slots = clamp_size(state.slots + part.slots)
            state.unsized = clamp_size(state.unsized + part.unsized)
            state.bytes = clamp_size(state.bytes + part.bytes)
            module = place if part.path is None else place_of(part.path)
            self.unsized[module] += part.unsized
            self.bytes[module] += part.bytes
        self.states = dict(sorted(states.items(), key=lambda item: item[0] not in _USUAL))
