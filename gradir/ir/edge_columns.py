"""Store the edges of a graph in columns of numbers, by consumer and input slot."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from itertools import accumulate, chain, repeat
from typing import Final

from gradir.errors import ExportError
from gradir.ir import Node
from gradir.ir.edges import DATA, edges_beside, have_edges_beside
from gradir.ir.excerpt import excerpt
from gradir.ir.memo import Table

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
        for node, has_others in zip(nodes, have_edges_beside(nodes), strict=True):
            try:
                for slot, ref in enumerate(node.inputs):
                    if ref is not None:
                        source.append(numbers[ref.id])
                        outputs.append(ref.output_nr)
                        slots.append(slot)
                # Few nodes have other kinds of edges than data.
                if has_others or node.kinds:
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

    def standing(self, stands: Sequence[int]) -> EdgeColumns:
        """Return the edges between representatives, for nodes that represent themselves."""
        kept = [edge for edge, target in enumerate(self.target) if stands[target] == target]
        if len(kept) == len(self.target):
            return self
        # A shallow copy: the other columns are shared, and nothing changes them.
        found = copy(self)
        found.source = [stands[self.source[edge]] for edge in kept]
        found.slot, found.output, found.kind, found.target = (
            [column[edge] for edge in kept] for column in (self.slot, self.output, self.kind, self.target)
        )
        found.counts = [count if stands[node] == node else 0 for node, count in enumerate(self.counts)]
        found.first = [0, *accumulate(found.counts)]
        return found

    def _read_others(self, node: Node, inputs: int) -> None:
        self.kind += [0] * (len(self.source) - inputs - len(self.kind))
        kinds = node.kinds
        self.kind += [self.kinds[kinds[slot] if slot < len(kinds) else DATA] for slot in self.slot[-inputs:] if inputs]
        for edge in edges_beside(node):
            self.source.append(self.numbers[edge.src])
            self.output.append(edge.output_nr)
            self.slot.append(_NO_SLOT)
            self.kind.append(self.kinds[edge.kind])
