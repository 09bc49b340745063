"""Which blocks of a page are alike and follow each other: the layers of a stack, the steps of a loop.

The rules are those of `gradir.passes.blocks`, which finds them by nodes; by the columns of a page, the numbers of what
nodes are and where their edges come from, it takes a third of the time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from gradir.ir.memo import Memo
from gradir.ir.order import postorder
from gradir_exporters._page.tables import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gradir.ir.module_tree import ModuleTree
    from gradir_exporters._page.edges import Wiring

__all__ = ["OUTSIDE", "Blocks", "Known"]

OUTSIDE: Final = -1
"""The block of what is in none."""


class Known(NamedTuple):
    """The modules of the nodes and their tree; numbers of what nodes are but for where they are; the edges."""

    tree: ModuleTree
    scopes: Sequence[int]
    kinds: Sequence[int]
    wiring: Wiring


_Pattern = list["tuple[int, int] | None"]
"""Of each edge from outside where in the block before it comes from, nothing where it is the same for both blocks."""


_BESIDE: Final[_Pattern] = [(OUTSIDE, OUTSIDE)]
"""That of blocks which stand beside each other."""


class _Shape(NamedTuple):
    """The number of a block without the names in it, and the source and output of each edge from outside."""

    form: int
    outside: list[tuple[int, int]]


class Blocks:
    """Blocks of nodes, of which some follow others. ``members`` has the nodes of each, equal ones at one place."""

    def __init__(self, known: Known, block: Sequence[int], after: Mapping[int, int], place_in: Sequence[str]) -> None:
        """Look at blocks.

        ``block`` has by node the one that it is in, ``place_in`` by module where it lies in a block. ``after`` has the
        block that follows another.
        """
        self._block, self._after, self._kinds, self._wiring = block, after, known.kinds, known.wiring
        self._scopes, self._place_in = known.scopes, place_in
        self.members: defaultdict[int, list[int]] = defaultdict(list)
        self._rank = [0] * len(block)
        for number, own in enumerate(block):
            if own != OUTSIDE:
                members = self.members[own]
                self._rank[number] = len(members)
                members.append(number)
        wiring = known.wiring
        edges = zip(wiring.source, wiring.target, wiring.output, wiring.kind, strict=True)
        self._leaving = [edge for edge in edges if block[edge[0]] not in (OUTSIDE, block[edge[1]])]
        self._takers = self._outside_takers()
        self._forms: Table[tuple[tuple[int | str, ...], ...]] = Table()
        self._shapes = {block: self._shape(block) for block in dict.fromkeys(chain(after, after.values()))}

    def runs(self, order: Iterable[int]) -> Iterator[list[int]]:
        """The longest runs of at least two blocks that are alike; ``order`` has each before the one that follows it.

        Blocks beside each other that take from the same nodes, and from which the same nodes take, are a run too.
        """
        self._agree()
        runs, pattern = list[list[int]](), _Pattern()
        for block in order:
            found = self._pattern(runs[-1][-1], block) if runs else None
            if found and pattern in ([], found):
                runs[-1].append(block)
                pattern = found
            else:
                runs.append([block])
                pattern = []
        for run in runs:
            if len(run) > 1 and self._comes_late(run[0], run[-1]):
                yield run

    def _outside_takers(self) -> dict[int, Counter[tuple[int, ...]]]:
        """By block of which something but the next one takes: how often, by what makes, what takes, output and kind."""
        found: dict[int, Counter[tuple[int, ...]]] = {}
        for edge in self._leaving:
            maker = self._block[edge[0]]
            if self._after.get(maker) != self._block[edge[1]]:
                found.setdefault(maker, Counter())[edge] += 1
        return found

    def _feed_the_same(self, last: int, block: int) -> bool:
        """Whether the same nodes take from both blocks, as often, and from the same places in them."""
        one, other = (
            {(self._rank[source], *how): times for (source, *how), times in self._takers.get(each, Counter()).items()}
            for each in (last, block)
        )
        return one == other

    def _comes_late(self, first: int, last: int) -> bool:
        """Whether what takes from the last block stands after the nodes of the first, so that it can take from them."""
        used = self._used_at
        return all(
            used.get(there, len(self._block)) > here
            for here, there in zip(self.members[first], self.members[last], strict=True)
        )

    @cached_property
    def _used_at(self) -> dict[int, int]:
        """By node the first one outside its block that takes from it."""
        found: dict[int, int] = {}
        for source, target, *_ in self._leaving:
            found.setdefault(source, target)
        return found

    def _pattern(self, last: int, block: int) -> _Pattern | None:
        """Where a block takes from the one before it; nothing where they are not alike.

        It has to follow that block, or to stand beside it.
        """
        if self._after.get(last) != block:
            return None
        before, shape = self._shapes[last], self._shapes[block]
        if before.form != shape.form:
            return None
        if last in self._takers:
            is_beside = [source for source, _ in shape.outside] == [source for source, _ in before.outside]
            return _BESIDE if is_beside and self._feed_the_same(last, block) else None
        found: _Pattern = []
        for (source, output), there in zip(shape.outside, before.outside, strict=True):
            if (source, output) == there:
                found.append(None)
            elif self._block[source] == last:
                found.append((self._rank[source], output))
            else:
                return None
        return found if any(found) else None

    def _agree(self) -> None:
        """Bring blocks of the same nodes which the file has in different orders into the one that most of them have."""
        forms = [*self._forms]
        shapes, nodes_of = self._shapes, Memo[int, tuple[int | str, ...]](lambda form: tuple(sorted(forms[form][0])))
        unlike = ((shapes[last].form, shapes[block].form) for last, block in self._after.items())
        odd = {nodes_of[one] for one, other in unlike if one != other and nodes_of[one] == nodes_of[other]}
        if not odd:
            return
        usual: dict[tuple[int | str, ...], int] = {}
        for form, _ in Counter(shape.form for shape in shapes.values()).most_common():
            usual.setdefault(nodes_of[form], form)
        orders: dict[int, list[int]] = {}
        for block, (form, _) in shapes.items():
            if nodes_of[form] in odd and form not in orders:
                orders[form] = [self._rank[number] for number in self._in_flow(block)]
        for block, (form, _) in [*shapes.items()]:
            if form in orders and form != usual[nodes_of[form]]:
                self._reorder(block, orders[form], orders[usual[nodes_of[form]]])

    def _reorder(self, block: int, own: Sequence[int], usual: Sequence[int]) -> None:
        """Bring the nodes of a block, ``own`` as they flow, to the places that are ``usual`` as they flow."""
        members = self.members[block]
        self.members[block] = [members[place] for _, place in sorted(zip(usual, own, strict=True))]
        for rank, number in enumerate(self.members[block]):
            self._rank[number] = rank
        self._shapes[block] = self._shape(block)

    def _in_flow(self, block: int) -> list[int]:
        """The nodes of a block in an order that depends on their edges alone."""
        first, source = self._wiring.first, self._wiring.source
        members = self.members[block]
        used = {source[edge] for number in members for edge in range(first[number], first[number + 1])}

        def inside(number: int) -> list[int]:
            return [made for made in source[first[number] : first[number + 1]] if self._block[made] == block]

        return postorder([number for number in members if number not in used], inside)

    def _shape(self, block: int) -> _Shape:
        wiring, rank, members, block_of = self._wiring, self._rank, self.members[block], self._block
        first, source, output = wiring.first, wiring.source, wiring.output
        edges = [edge for number in members for edge in range(first[number], first[number + 1])]
        inside: list[int] = []
        outside: list[tuple[int, int]] = []
        for edge in edges:
            made = source[edge]
            if block_of[made] == block:
                inside.append(rank[made] + output[edge] * len(members))
            else:
                inside.append(OUTSIDE)
                outside.append((made, output[edge]))
        form = (
            tuple([self._kinds[number] for number in members]),
            tuple([self._place_in[self._scopes[number]] for number in members]),
            tuple([wiring.counts[number] for number in members]),
            tuple([wiring.slot[edge] for edge in edges]),
            tuple([wiring.kind[edge] for edge in edges]),
            tuple(inside),
        )
        return _Shape(self._forms[form], outside)
