"""Make the picture of ranks: their collectives side by side, and their places in the mesh."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from gradir.distributed.reading import Program, RankFile
from gradir.distributed.simulation import Outcome
from gradir.ir import Collective
from gradir.ir.memo import group_by_key

_MOST_ROWS: Final = 16
_MOST_CELLS: Final = 48


class Row(NamedTuple):
    """Ranks with the same collectives. The picture shows those from ``start`` on.

    ``marked`` is the number of the collective that does not fit or waits for ever, or of a missing one after the last.
    """

    ranks: tuple[int, ...]
    issued: Program
    start: int
    marked: int | None

    @property
    def cells(self) -> Iterator[tuple[int, Collective]]:
        """Return the collectives to show, with their numbers."""
        return enumerate(islice(self.issued, self.start, self.start + _MOST_CELLS), self.start)


class Picture(NamedTuple):
    """Rows of collectives, the number of ranks without a row, and the places of ranks in a mesh, by dimension."""

    rows: tuple[Row, ...]
    omitted: int
    mesh: Mapping[int, Mapping[str, int]]


def make_picture(ranks: Sequence[RankFile], outcome: Outcome) -> Picture:
    """Return a picture with a row for each rank or, if there are many, for each list of collectives."""
    marks = outcome.places
    is_short = len(ranks) <= _MOST_ROWS
    groups = group_by_key(
        (one.rank.rank if is_short else (id(one.collectives), marks.get(one.rank.rank)), one) for one in ranks
    )
    # The picture always shows ranks with a mark.
    chosen = sorted(groups.values(), key=lambda members: members[0].rank.rank not in marks)[:_MOST_ROWS]
    first = min(marks.values(), default=0)
    longest = max((len(members[0].collectives) for members in chosen), default=0)
    start = max(0, min(first - _MOST_CELLS // 2, longest + 1 - _MOST_CELLS))
    rows = []
    for members in chosen:
        numbers = tuple(one.rank.rank for one in members)
        rows.append(Row(numbers, members[0].collectives, start, marks.get(numbers[0])))
    mesh = {one.rank.rank: one.rank.coordinates for one in ranks}
    dimensions = {tuple(each) for each in mesh.values()}
    is_mesh = len(dimensions) == 1 and () not in dimensions
    return Picture(tuple(sorted(rows)), len(ranks) - sum(map(len, chosen)), mesh if is_mesh else {})
