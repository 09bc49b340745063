"""Find stacks of blocks that follow each other and are alike; `gradir.passes.rollup.rollup` says what that means."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from gradir.ir.edges import edges_into, sources
from gradir.ir.ids import numbered
from gradir.ir.marks import FOCUS, LEFT_OUT, OVERLAY, OVERLAYS
from gradir.ir.merged import MERGED
from gradir.ir.order import postorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gradir.ir import AttrValue, Graph, Node, Ref, Saved

__all__ = ["Block", "Stack", "alike", "block_reader", "stacks"]


class Block(NamedTuple):
    """A module whose name ends in a number: what its path begins with, and the number."""

    before: str
    number: int

    @property
    def path(self) -> str:
        """The path of the module."""
        return f"{self.before}{self.number}"


class Stack(NamedTuple):
    """Blocks that follow each other or stand side by side, with the ids of their nodes, alike ones at the same place.

    ``before`` is the path of the first block, ``path`` the one that stands for all of them, as ``layers.0-11``.
    ``carried`` has the input slots that are fed by the block before, by that place; nothing where they stand side by
    side.
    """

    first: Block
    before: str
    path: str
    blocks: list[list[str]]
    carried: dict[int, list[int]]


def block_reader(level: int) -> Callable[[str], Block | None]:
    """What tells the block of a scope, where the path's component number ``level`` is the block's own.

    >>> block_reader(1)("layers.3.attn"), block_reader(0)("layers.3.attn")
    (Block(before='layers.', number=3), None)
    >>> block_reader(0)("layers_3.attn")
    Block(before='layers_', number=3)
    """

    @cache
    def block_of(scope: str) -> Block | None:
        parts = scope.split(".", level + 1)
        found = numbered(parts[level]) if len(parts) > level else None
        if found is None:
            return None
        list_, number = found
        return Block(".".join([*parts[:level], list_]), number)

    return block_of


def stacks(graph: Graph, level: int) -> list[Stack]:
    """The stacks of at least two blocks on a level of the module tree, as long as they can be."""
    block_of = block_reader(level)
    members: dict[Block, list[Node]] = {}
    for node in graph.nodes.values():
        block = block_of(node.scope)
        if block is not None:
            members.setdefault(block, []).append(node)
    return [
        Stack(first, first.path, f"{first.path}-{first.number + len(blocks) - 1}", blocks, carried)
        for first, blocks, carried in alike(
            graph, members, lambda node: block_of(node.scope), lambda node, block: node.scope[len(block.path) :]
        )
    ]


def alike(
    graph: Graph,
    members: Mapping[Block, Sequence[Node]],
    block_of: Callable[[Node], Block | None],
    place_in: Callable[[Node, Block], str],
    *,
    nearly: bool = False,
    beside: bool = False,
) -> Iterator[tuple[Block, list[list[str]], dict[int, list[int]]]]:
    """The runs of at least two blocks that follow each other and are alike, with what is carried from one to the next.

    ``place_in`` says where a node lies in a block. What is ``nearly`` alike may differ in attributes, such as
    where a slice begins. Blocks ``beside`` each other, of which the same nodes take and which take from the same nodes,
    are a run too.
    """
    if len(members) < 2:
        return
    uses = _Uses(graph, block_of)
    runs: list[_Run] = []
    before: _Shape | None = None
    for block in sorted(members):
        shape = _Shape(block, members[block], place_in, nearly=nearly)
        if before is None or not runs[-1].takes(before, shape, uses, beside):
            runs.append(_Run(shape))
        before = shape
    for run in runs:
        if len(run.blocks) > 1 and uses.come_late(run.blocks):
            yield run.first, run.blocks, run.carried


class _Uses:
    """Where what the blocks make goes."""

    def __init__(self, graph: Graph, block_of: Callable[[Node], Block | None]) -> None:
        self._places = {key: place for place, key in enumerate(graph.nodes)}
        self._first: dict[str, int] = {}
        self._takers: dict[Block, Counter[tuple[str, int, str, str]]] = {}
        for place, node in enumerate(graph.nodes.values()):
            consumer = block_of(node)
            for edge in edges_into(node):
                block = block_of(graph.nodes[edge.src])
                if block is None or block == consumer:
                    continue
                self._first.setdefault(edge.src, place)
                if consumer != (block.before, block.number + 1):
                    self._takers.setdefault(block, Counter())[edge.src, edge.output_nr, edge.kind, node.id] += 1

    def leave(self, block: Block) -> bool:
        """Whether anything but the next block takes something from a block."""
        return block in self._takers

    def are_the_same(self, last: _Shape, shape: _Shape) -> bool:
        """Whether the same nodes take from both blocks, as often, and from the same places in them."""
        one, other = (
            {(each.places[source], *how): count for (source, *how), count in self._takers.get(each.block, {}).items()}
            for each in (last, shape)
        )
        return one == other

    def come_late(self, blocks: Sequence[Sequence[str]]) -> bool:
        """Whether what takes from the last block stands after the nodes of the first, so that it can take from them."""
        return all(
            self._first.get(last, len(self._places)) > self._places[first]
            for first, last in zip(blocks[0], blocks[-1], strict=True)
        )


class _Shape:
    """A block without the names in it."""

    def __init__(
        self, block: Block, nodes: Sequence[Node], place_in: Callable[[Node, Block], str], *, nearly: bool
    ) -> None:
        self.block = block
        self._place_in = place_in
        self._nearly = nearly
        by_id = {node.id: node for node in nodes}
        used = set(chain.from_iterable(map(sources, nodes)))

        def inside(key: str) -> list[str]:
            return [src for src in sources(by_id[key]) if src in by_id]

        # The order in the whole graph depends on which node something outside asked for first.
        self.order = postorder([key for key in by_id if key not in used], inside)
        self.places = {key: place for place, key in enumerate(self.order)}
        self.outside: list[tuple[int, int, Ref]] = []
        self.lines = [self._line(by_id[key]) for key in self.order]

    def _line(self, node: Node) -> tuple[object, ...]:
        own = self.places[node.id]
        wiring: list[object] = [len(node.inputs)]
        for edge in edges_into(node):
            place = self.places.get(edge.src)
            if place is None:
                self.outside.append((own, edge.input_nr, edge.ref))
            wiring.append((edge.kind, edge.input_nr, place, None if place is None else edge.output_nr))
        return (
            (node.role, node.op, node.native, self._place_in(node, self.block), node.opaque),
            (node.outputs, {} if self._nearly else node.attrs, [*filter(_is_of_the_node, node.ext.items())]),
            [self._saved(slot) for slot in node.saved],
            wiring,
        )

    def _saved(self, slot: Saved) -> tuple[object, ...]:
        origin: object = slot.origin is not None
        if slot.origin is not None and slot.origin.id in self.places:
            origin = (self.places[slot.origin.id], slot.origin.output_nr)
        return slot.slot, slot.dtype, slot.shape, slot.bytes, slot.state, origin


def _is_of_the_node(entry: tuple[str, AttrValue]) -> bool:
    """Whether an entry of ``ext`` is more than what is drawn over a node or counted at it."""
    return entry[0] not in {OVERLAY, OVERLAYS, FOCUS, LEFT_OUT, MERGED}


_Pattern = list["tuple[int, int] | None"]
"""By input from outside its place in the block before, ``None`` where both blocks take the same."""

_BESIDE: Final[_Pattern] = [(-1, -1)]
"""That of blocks that stand beside each other."""


class _Run:
    """Blocks that are one stack so far."""

    def __init__(self, shape: _Shape) -> None:
        self.first = shape.block
        self.blocks = [shape.order]
        self.carried: dict[int, list[int]] = {}
        self._pattern: _Pattern = []

    def takes(self, last: _Shape, shape: _Shape, uses: _Uses, beside: bool) -> bool:
        """Take in the next block, if it is alike and follows, or stands ``beside`` the last one."""
        if shape.block != (last.block.before, last.block.number + 1) or shape.lines != last.lines:
            return False
        if uses.leave(last.block):
            pattern = _BESIDE if beside and _read_the_same(last, shape) and uses.are_the_same(last, shape) else None
        else:
            pattern = _pattern(last, shape)
        if pattern is None or (self._pattern and pattern != self._pattern):
            return False
        if not self._pattern:
            self._pattern = pattern
            if pattern is not _BESIDE:
                for (place, slot, _), source in zip(shape.outside, pattern, strict=True):
                    if source is not None:
                        self.carried.setdefault(place, []).append(slot)
        self.blocks.append(shape.order)
        return True


def _read_the_same(last: _Shape, shape: _Shape) -> bool:
    """Whether two blocks take from the same nodes outside, of which they may take different outputs."""
    return [ref.id for *_, ref in shape.outside] == [ref.id for *_, ref in last.outside]


def _pattern(last: _Shape, shape: _Shape) -> _Pattern | None:
    """For each input from outside its place in the block before, or ``None`` where both take the same.

    The whole is ``None`` where an input is neither, or where none comes from the block before.
    """
    pattern: _Pattern = []
    for (_, slot, ref), (_, _, before) in zip(shape.outside, last.outside, strict=True):
        if ref == before:
            pattern.append(None)
        elif ref.id in last.places and slot >= 0:
            pattern.append((last.places[ref.id], ref.output_nr))
        else:
            return None
    return pattern if any(source is not None for source in pattern) else None
