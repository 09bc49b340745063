"""Which modules of a page are alike and follow each other, so that one can be drawn for all of them.

They are those that `gradir.passes.rollup.rollup` makes one of, found here by the columns of a page: by the numbers of
what nodes are and where their edges come from, which takes a third of the time. The order of the nodes is the file's,
so blocks that a file has in different orders are not told to be alike.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gradir.ir.module_tree import ModuleTree
    from gradir_exporters._page.edges import Wiring

__all__ = ["alike"]

_MOST_DIGITS: Final = 9
_OUTSIDE: Final = -1
_DEEPEST: Final = 16


def alike(tree: ModuleTree, scopes: Sequence[int], kinds: Sequence[object], wiring: Wiring) -> list[int]:
    """By module the first one of the stack that it is in, or itself.

    ``scopes`` are the modules of the nodes; nodes of equal ``kinds`` are the same but for where they are.
    """
    first = [*range(len(tree.scopes))]
    for level in range(1, min(max(tree.levels), _DEEPEST) + 1):
        blocks = [place for place, at in enumerate(tree.levels) if at == level and _is_number(tree.names[place])]
        if len(blocks) < 2:
            continue
        level_of = _Level(tree, blocks, scopes, kinds, wiring)
        runs, pattern = list[list[int]](), _Pattern()
        for block in sorted(blocks, key=lambda block: (tree.parents[block], int(tree.names[block]))):
            found = level_of.pattern(runs[-1][-1], block) if runs else None
            if found and pattern in ([], found):
                runs[-1].append(block)
                pattern = found
            else:
                runs.append([block])
                pattern = []
        for run in runs:
            if len(run) > 1 and level_of.comes_late(run[0], run[-1]):
                for block in run[1:]:
                    first[block] = run[0]
    return first


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal() and len(name) <= _MOST_DIGITS and str(int(name)) == name


_Pattern = list["tuple[int, int] | None"]
"""Of each edge from outside where in the block before it comes from, nothing where it is the same for both blocks."""


class _Shape(NamedTuple):
    """A block without the names in it, and the source of each edge from outside, with the number of its output."""

    columns: tuple[list[object], ...]
    outside: list[tuple[int, int]]


class _Level:
    """The blocks of one level of the module tree."""

    def __init__(
        self, tree: ModuleTree, blocks: list[int], scopes: Sequence[int], kinds: Sequence[object], wiring: Wiring
    ) -> None:
        self._tree, self._kinds, self._wiring, self._scopes = tree, kinds, wiring, scopes
        block_of = [_OUTSIDE] * len(tree.scopes)
        for block in blocks:
            block_of[block] = block
        self._below = [""] * len(block_of)
        for place, parent in enumerate(tree.parents):
            if block_of[place] == _OUTSIDE and parent != _OUTSIDE and block_of[parent] != _OUTSIDE:
                block_of[place] = block_of[parent]
                self._below[place] = f"{self._below[parent]}.{tree.names[place]}"
        self._block = [block_of[scope] for scope in scopes]
        self._members: dict[int, list[int]] = {block: [] for block in blocks}
        self._rank = [0] * len(self._block)
        for number, block in enumerate(self._block):
            if block != _OUTSIDE:
                members = self._members[block]
                self._rank[number] = len(members)
                members.append(number)
        self._leaking = set(self._leaks())
        self._shapes: dict[int, _Shape] = {}

    def _leaks(self) -> Iterator[int]:
        """The blocks of which something but the next one takes."""
        maker_of = self._block.__getitem__
        pairs = set(zip(map(maker_of, self._wiring.source), map(maker_of, self._wiring.target), strict=True))
        for maker, taker in pairs:
            if maker not in (_OUTSIDE, taker) and not self._is_next(maker, taker):
                yield maker

    def comes_late(self, first: int, last: int) -> bool:
        """Whether what takes from the last block stands after the nodes of the first, so that it can take from them."""
        used = self._used_at
        return all(
            used.get(there, len(self._block)) > here
            for here, there in zip(self._members[first], self._members[last], strict=True)
        )

    @cached_property
    def _used_at(self) -> dict[int, int]:
        """By node the first one outside its block that takes from it."""
        found: dict[int, int] = {}
        for source, target in zip(self._wiring.source, self._wiring.target, strict=True):
            if self._block[source] not in (_OUTSIDE, self._block[target]):
                found.setdefault(source, target)
        return found

    def _is_next(self, block: int, other: int) -> bool:
        if other == _OUTSIDE:
            return False
        names, parents = self._tree.names, self._tree.parents
        return parents[block] == parents[other] and int(names[block]) + 1 == int(names[other])

    def pattern(self, last: int, block: int) -> _Pattern | None:
        """Where a block takes from the one before it; nothing where it is not alike, or does not follow it."""
        if last in self._leaking or not self._is_next(last, block):
            return None
        if len(self._members[last]) != len(self._members[block]):
            return None
        before, shape = self._shape(last), self._shape(block)
        if before.columns != shape.columns:
            return None
        found: _Pattern = []
        for (source, output), there in zip(shape.outside, before.outside, strict=True):
            if (source, output) == there:
                found.append(None)
            elif self._block[source] == last:
                found.append((self._rank[source], output))
            else:
                return None
        return found if any(found) else None

    def _shape(self, block: int) -> _Shape:
        known = self._shapes.get(block)
        if known is not None:
            return known
        wiring, rank, members = self._wiring, self._rank, self._members[block]
        first, source, output, block_of = wiring.first, wiring.source, wiring.output, self._block
        edges = [edge for number in members for edge in range(first[number], first[number + 1])]
        is_inside = [block_of[source[edge]] == block for edge in edges]
        columns: tuple[list[object], ...] = (
            [self._kinds[number] for number in members],
            [self._below[self._scopes[number]] for number in members],
            [wiring.counts[number] for number in members],
            [wiring.slot[edge] for edge in edges],
            [wiring.kind[edge] for edge in edges],
            [
                (rank[source[edge]], output[edge]) if inside else None
                for edge, inside in zip(edges, is_inside, strict=True)
            ],
        )
        outside = [(source[edge], output[edge]) for edge, inside in zip(edges, is_inside, strict=True) if not inside]
        shape = self._shapes[block] = _Shape(columns, outside)
        return shape
