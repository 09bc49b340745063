"""Compute edges of all kinds from the nodes, one by one or in columns, and the order of nodes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from itertools import accumulate, chain, repeat
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar, cast

from gradir.errors import ExportError
from gradir.ir.memo import Table
from gradir.ir.model import Node, Ref
from gradir.ir.text import excerpt

DATA: Final = "data"
# The fields of a node that are edges into it, in the order of the edges, with their kind. A field has references, or
# the id of a node for its output 0.
KINDS: Final = {
    "inputs": DATA,
    "base": "view",
}
_get_edge_fields: Final = attrgetter(*KINDS)
_INPUTS: Final = next(field for field, kind in KINDS.items() if kind == DATA)
_SLOTLESS: Final = tuple((field, kind) for field, kind in KINDS.items() if kind != DATA)
# Most nodes have no such edges, which a single comparison finds out.
_get_slotless: Final = attrgetter(*(field for field, _ in _SLOTLESS))
_NO_SLOTLESS: Final = _get_slotless(Node(""))
_NO_EDGE: Final = (None,)
# This is twice as fast as the constructor of a named tuple.
_make_tuple: Final = tuple.__new__


class Edge(NamedTuple):
    """One edge, from producer to consumer.

    ``kind`` is that of the input slot, or ``view`` from a view base to its view. ``input_nr`` is -1 without a slot.
    """

    src: str
    output_nr: int
    dst: str
    input_nr: int
    kind: str = DATA

    @property
    def ref(self) -> Ref:
        """Return the producer's output."""
        return Ref(self.src, self.output_nr)


def edges_into(node: Node) -> list[Edge]:
    """Return the edges into a node: by input slot, then other kinds.

    >>> [(edge.src, edge.input_nr, edge.kind) for edge in edges_into(Node("y", inputs=(None, Ref("x", 0)), base="z"))]
    [('x', 1, 'data'), ('z', -1, 'view')]
    """
    return [*_edges_into((node,))]


def _edges_into(nodes: Iterable[Node]) -> Iterator[Edge]:
    for node in nodes:
        # These tests save time, since many nodes have no inputs, and few have kinds.
        if inputs := node.inputs:
            dst, kinds = node.id, node.kinds
            for slot, ref in enumerate(inputs):
                if ref is not None:
                    kind = kinds[slot] if kinds and slot < len(kinds) else DATA
                    yield _make_tuple(Edge, (ref.id, ref.output_nr, dst, slot, kind))
        if _get_slotless(node) != _NO_SLOTLESS:
            yield from slotless_edges(node)


def slotless_edges(node: Node) -> list[Edge]:
    """Return the edges into a node without an input slot."""
    found: list[Edge] = []
    if _get_slotless(node) == _NO_SLOTLESS:
        return found
    for field, kind in _SLOTLESS:
        value = getattr(node, field)
        if type(value) is tuple:
            found += [Edge(ref.id, ref.output_nr, node.id, -1, kind) for ref in value]
        elif value is not None:
            found.append(Edge(value, 0, node.id, -1, kind))
    return found


def references(node: Node) -> list[tuple[Ref | None, ...]]:
    """Return the sources of a node's edges by field, with ``None`` for an input slot without one."""
    values: tuple[Any, ...] = _get_edge_fields(node)
    return [value if type(value) is tuple else _NO_EDGE if value is None else (Ref(value, 0),) for value in values]


def move_edges(node: Node, moved: Callable[[Ref, str], Ref | None]) -> dict[str, Any]:
    """Return the fields of a node with other sources of its edges.

    ``moved`` returns the new source of an edge, or ``None`` to remove it.

    >>> move_edges(Node("y", inputs=(None, Ref("x", 0)), base="z"), lambda ref, kind: Ref(f"{kind} {ref.id}", 1))
    {'inputs': (None, Ref(id='data x', output_nr=1)), 'base': 'view z'}
    """
    if _get_slotless(node) == _NO_SLOTLESS:
        return {_INPUTS: tuple([None if ref is None else moved(ref, DATA) for ref in node.inputs])}
    fields: dict[str, Any] = {}
    values: tuple[Any, ...] = _get_edge_fields(node)
    for value, (field, kind) in zip(values, KINDS.items(), strict=True):
        if type(value) is tuple:
            refs = [None if ref is None else moved(ref, kind) for ref in value]
            fields[field] = tuple(refs if kind == DATA else filter(None, refs))
        elif value is not None:
            ref = moved(Ref(value, 0), kind)
            fields[field] = None if ref is None else ref.id
    return fields


class Edges(Collection[Edge]):
    """The edges of nodes, computed on each access."""

    __slots__ = ("_nodes",)

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self._nodes = nodes

    def __iter__(self) -> Iterator[Edge]:
        return _edges_into(self._nodes.values())

    def __len__(self) -> int:
        return sum(map(number_into, self._nodes.values()))

    def __contains__(self, edge: object) -> bool:
        return isinstance(edge, Edge) and edge.dst in self._nodes and edge in edges_into(self._nodes[edge.dst])

    def __repr__(self) -> str:
        return f"<gradir edges: {len(self)}>"


def number_into(node: Node) -> int:
    """Return the number of edges into a node."""
    inputs = node.inputs
    return len(inputs) - inputs.count(None) + (0 if _get_slotless(node) == _NO_SLOTLESS else len(slotless_edges(node)))


def sources(node: Node) -> list[str]:
    """Return the sources of a node's edges in order, without creating edges."""
    # Before Python 3.12, a comprehension is a call, which is slower than a loop over one or two inputs.
    found: list[str] = []
    for ref in node.inputs:
        if ref is not None:
            found.append(ref.id)  # noqa: PERF401
    return found if _get_slotless(node) == _NO_SLOTLESS else found + [edge.src for edge in slotless_edges(node)]


_NO_SLOT: Final = -1


class EdgeColumns:
    """The edges by consumer: edges ``first[n]`` to ``first[n + 1]`` lead into node ``n``."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.numbers = {node.id: number for number, node in enumerate(nodes)}
        self.counts: list[int] = []
        self.source: list[int] = []
        self.slot: list[int] = []
        self.output: list[int] = []
        self.kind: list[int] = []
        self.kinds: Table[str] = Table([DATA])
        numbers, source, slots, outputs = self.numbers, self.source, self.slot, self.output
        before = 0
        for node in nodes:
            try:
                for slot, ref in enumerate(node.inputs):
                    if ref is not None:
                        source.append(numbers[ref.id])
                        outputs.append(ref.output_nr)
                        slots.append(slot)
                # Few nodes have edges of other kinds.
                if node.kinds or _get_slotless(node) != _NO_SLOTLESS:
                    self._read_others(node, len(source) - before)
            except KeyError as error:
                src = excerpt(error.args[0])
                raise ExportError(
                    f"node {excerpt(node.id)} has an edge from {src}, which is not in the graph"
                ) from None
            self.counts.append(len(source) - before)
            before = len(source)
        self.kind += [0] * (len(source) - len(self.kind))
        self.first = [0, *accumulate(self.counts)]
        self.target = [*chain.from_iterable(map(repeat, range(len(nodes)), self.counts))]

    def sources(self, number: int) -> list[int]:
        """Return the producers of a node's edges."""
        return self.source[self.first[number] : self.first[number + 1]]

    def standing(self, representatives: Sequence[int]) -> EdgeColumns:
        """Return the edges between representatives, given the representative of each node."""
        edges = [edge for edge, target in enumerate(self.target) if representatives[target] == target]
        if len(edges) == len(self.target):
            return self
        # A shallow copy shares the other columns, which do not change.
        found = copy(self)
        found.source = [representatives[self.source[edge]] for edge in edges]
        found.slot, found.output, found.kind, found.target = (
            [column[edge] for edge in edges] for column in (self.slot, self.output, self.kind, self.target)
        )
        found.counts = [count if representatives[node] == node else 0 for node, count in enumerate(self.counts)]
        found.first = [0, *accumulate(found.counts)]
        return found

    def _read_others(self, node: Node, inputs: int) -> None:
        self.kind += [0] * (len(self.source) - inputs - len(self.kind))
        kinds = node.kinds
        self.kind += [self.kinds[kinds[slot] if slot < len(kinds) else DATA] for slot in self.slot[-inputs:] if inputs]
        for edge in slotless_edges(node):
            self.source.append(self.numbers[edge.src])
            self.output.append(edge.output_nr)
            self.slot.append(_NO_SLOT)
            self.kind.append(self.kinds[edge.kind])


K = TypeVar("K", bound=Hashable)


def postorder(roots: Iterable[K], children: Callable[[K], Sequence[K]]) -> list[K]:
    """Return nodes in depth-first post-order from ``roots``, children in the given order, without recursion.

    Every child comes before its parents. ``children`` is called once per node, so the time is linear (Tarjan, 1972).

    >>> postorder("c", {"a": "", "b": "a", "c": "ba"}.__getitem__)
    ['a', 'b', 'c']
    """
    order: list[K] = []
    seen: set[K] = set()
    stack: list[K | None] = [*roots]
    stack.reverse()
    while stack:
        top = stack.pop()
        if top is None:
            # All children of the next node on the stack are done.
            order.append(cast("K", stack.pop()))
            continue
        if top in seen:
            continue
        seen.add(top)
        stack += (top, None)
        stack += children(top)[::-1]
    return order
