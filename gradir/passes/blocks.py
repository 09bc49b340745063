"""Find equal blocks of nodes in a row: the layers of a stack, the steps of a loop.

`gradir.passes.rollup.rollup` defines equality.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from gradir.ir import Graph, Node
from gradir.ir.edges import EdgeColumns, postorder
from gradir.ir.marks import FOCUS, LEFT_OUT, OVERLAY, OVERLAYS, VERDICT
from gradir.ir.memo import Memo, Table
from gradir.ir.saved import MERGED

# The number of no block.
OUTSIDE: Final = -1
# Entries of ``ext`` that a picture draws or counts at a node, and that do not make equal nodes differ.
_MARKS: Final = frozenset({OVERLAY, OVERLAYS, VERDICT, FOCUS, LEFT_OUT, MERGED})


class NodeColumns(NamedTuple):
    """Nodes as columns of numbers: their kinds without their places, and their edges.

    ``origins`` has, by node, the saved slots with the output of another node.
    """

    kinds: Sequence[int]
    edges: EdgeColumns
    origins: Sequence[Sequence[tuple[int, int, int]]] = ()


def number_nodes(graph: Graph, *, nearly: bool = False) -> NodeColumns:
    """Number the nodes of a graph; with ``nearly``, equal nodes may differ in attributes."""
    nodes = [*graph.nodes.values()]
    edges, kinds = EdgeColumns(nodes), Table[tuple[object, ...]]()
    return NodeColumns(
        [kinds[_node_kind(node, nearly=nearly)] for node in nodes],
        edges,
        [
            [
                (at, edges.numbers[slot.origin.id], slot.origin.output_nr)
                for at, slot in enumerate(node.saved)
                if slot.origin is not None and slot.origin.id in edges.numbers
            ]
            for node in nodes
        ],
    )


def _node_kind(node: Node, *, nearly: bool) -> tuple[object, ...]:
    return (
        (node.role, node.op, node.native, node.opaque, node.outputs, len(node.inputs)),
        frozenset(() if nearly else node.attrs.items()),
        frozenset(entry for entry in node.ext.items() if entry[0] not in _MARKS),
        tuple(
            [(slot.slot, slot.dtype, slot.shape, slot.bytes, slot.state, slot.origin is None) for slot in node.saved]
        ),
    )


# For each edge from outside, its place in the previous block, or None if both blocks have the same source.
_Pattern = list["tuple[int, int] | None"]
_PARALLEL: Final[_Pattern] = [(OUTSIDE, OUTSIDE)]
# For each node of a block, its producers within the block.
_Inside = tuple[tuple[int, ...], ...]


class _Shape(NamedTuple):
    """The number of a block without names, and the source and output of each edge from outside."""

    form: int
    outside: list[tuple[int, int]]


class Blocks:
    """Blocks of nodes, some of which follow others.

    ``members`` has the nodes of each in an order that depends on their edges alone.
    """

    def __init__(
        self, columns: NodeColumns, places: Sequence[str], block: Sequence[int], after: Mapping[int, int]
    ) -> None:
        """Compare blocks; ``block`` and ``places`` have an entry for each node, ``after`` for each pair in a row."""
        self._columns, self._places, self._block, self._after = columns, places, block, after
        nodes: dict[int, list[int]] = {one: [] for one in chain(after, after.values())}
        for number, own in enumerate(block):
            if own in nodes:
                nodes[own].append(number)
        # Equal layers have equal edges inside, so their order is found once.
        orders = Memo(_sort_by_edges)
        self.members = {one: _sort_members(members, columns.edges, orders) for one, members in nodes.items()}
        self._rank = [0] * len(block)
        for members in self.members.values():
            for rank, number in enumerate(members):
                self._rank[number] = rank
        edges = columns.edges
        leaving = zip(edges.source, edges.target, edges.output, edges.kind, strict=True)
        self._leaving = [edge for edge in leaving if block[edge[0]] not in (OUTSIDE, block[edge[1]])]
        # Edges to consumers outside of the next block, by block.
        self._consumers: dict[int, Counter[tuple[int, ...]]] = {}
        for edge in self._leaving:
            producer = block[edge[0]]
            if after.get(producer) != block[edge[1]]:
                self._consumers.setdefault(producer, Counter())[edge] += 1
        self._forms: Table[tuple[object, ...]] = Table()
        self._shapes = {one: self._make_shape(one) for one in self.members}

    def runs(self) -> list[list[int]]:
        """Return the longest runs of at least two equal blocks, in a row or in parallel."""
        runs, pattern = list[list[int]](), _Pattern()
        for last, block in self._after.items():
            found = self._find_pattern(last, block)
            if not found:
                continue
            if not runs or runs[-1][-1] != last:
                runs.append([last, block])
                pattern = found
            elif found == pattern:
                runs[-1].append(block)
        first_use: dict[int, int] = {}
        for source, target, *_ in self._leaving:
            first_use.setdefault(source, target)
        # The first block must come before all consumers of the last one, since it will feed them instead.
        return [
            run
            for run in runs
            if all(
                one < first_use.get(other, len(self._block))
                for one, other in zip(self.members[run[0]], self.members[run[-1]], strict=True)
            )
        ]

    def find_carried(self, run: Sequence[int]) -> dict[int, list[int]] | None:
        """Return the input slots that the previous block feeds, by node place; parallel blocks have none.

        Return ``None`` if it feeds an edge without an input slot.
        """
        edges, found = self._columns.edges, dict[int, list[int]]()
        for place, number in enumerate(self.members[run[1]]):
            for edge in range(edges.first[number], edges.first[number + 1]):
                if self._block[edges.source[edge]] == run[0]:
                    found.setdefault(place, []).append(edges.slot[edge])
        return None if any(min(slots) < 0 for slots in found.values()) else found

    def _feed_the_same(self, last: int, block: int) -> bool:
        one, other = (
            {(self._rank[source], *edge): times for (source, *edge), times in self._consumers.get(each, {}).items()}
            for each in (last, block)
        )
        return one == other

    def _find_pattern(self, last: int, block: int) -> _Pattern | None:
        before, shape = self._shapes[last], self._shapes[block]
        if before.form != shape.form:
            return None
        # In a row, only the next block uses the outputs of a block. Parallel blocks feed the same consumers.
        if last in self._consumers:
            is_parallel = [source for source, _ in shape.outside] == [source for source, _ in before.outside]
            return _PARALLEL if is_parallel and self._feed_the_same(last, block) else None
        found: _Pattern = []
        for (source, output), previous in zip(shape.outside, before.outside, strict=True):
            if (source, output) == previous:
                found.append(None)
            elif self._block[source] == last:
                found.append((self._rank[source], output))
            else:
                return None
        return found if any(found) else None

    def _make_shape(self, block: int) -> _Shape:
        columns, rank, members, block_of = self._columns, self._rank, self.members[block], self._block
        edges, places = columns.edges, self._places
        numbers = [edge for number in members for edge in range(edges.first[number], edges.first[number + 1])]
        inside: list[int] = []
        outside: list[tuple[int, int]] = []
        for edge in numbers:
            source, output = edges.source[edge], edges.output[edge]
            if block_of[source] == block:
                inside.append(rank[source] + output * len(members))
            else:
                inside.append(OUTSIDE)
                outside.append((source, output))
        form = (
            tuple([columns.kinds[number] for number in members]),
            tuple([places[number] for number in members]),
            tuple([edges.counts[number] for number in members]),
            tuple([edges.slot[edge] for edge in numbers]),
            tuple([edges.kind[edge] for edge in numbers]),
            tuple(inside),
            tuple(
                [
                    (rank[number], slot, rank[source], output)
                    for number in (members if columns.origins else ())
                    for slot, source, output in columns.origins[number]
                    if block_of[source] == block
                ]
            ),
        )
        return _Shape(self._forms[form], outside)


def _sort_members(members: Sequence[int], edges: EdgeColumns, orders: Memo[_Inside, list[int]]) -> list[int]:
    place = {number: place for place, number in enumerate(members)}
    inside = tuple([tuple([place[each] for each in edges.sources(number) if each in place]) for number in members])
    return [members[place] for place in orders[inside]]


def _sort_by_edges(inside: _Inside) -> list[int]:
    used = {*chain.from_iterable(inside)}
    return postorder([place for place in range(len(inside)) if place not in used], inside.__getitem__)
