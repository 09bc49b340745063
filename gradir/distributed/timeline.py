"""What a picture of ranks shows: their collectives beside each other, and where each stands in the mesh."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

from gradir.distributed.programs import Program
from gradir.distributed.reading import RankFile
from gradir.distributed.simulation import Outcome
from gradir.ir import Collective

_MOST_ROWS: Final = 16
_MOST_CELLS: Final = 48


class Row(NamedTuple):
    """Ranks with the same collectives, of which those from ``start`` on are shown.

    ``marked`` is the number of the one that does not fit or waits for ever, or that of the missing one behind the last.
    """

    ranks: tuple[int, ...]
    issued: Program
    start: int
    marked: int | None

    @property
    def cells(self) -> Iterator[tuple[int, Collective]]:
        """The collectives that are shown, with their numbers."""
        return enumerate(islice(self.issued, self.start, self.start + _MOST_CELLS), self.start)


class Picture(NamedTuple):
    """Rows of collectives, how many ranks have none of them, and the places of ranks in a mesh, by dimension."""

    rows: tuple[Row, ...]
    left: int
    mesh: Mapping[int, Mapping[str, int]]


def pictured(ranks: Sequence[RankFile], outcome: Outcome) -> Picture:
    """Return a picture with a row for each rank or, if these are many, for each list of collectives."""
    marks = outcome.places
    alike: dict[object, list[RankFile]] = {}
    for one in ranks:
        number = one.rank.rank
        key = number if len(ranks) <= _MOST_ROWS else (id(one.collectives), marks.get(number))
        alike.setdefault(key, []).append(one)
    # Those with a mark are shown in any case.
    chosen = sorted(alike.values(), key=lambda members: members[0].rank.rank not in marks)[:_MOST_ROWS]
    first = min(marks.values(), default=0)
    longest = max((len(members[0].collectives) for members in chosen), default=0)
    start = max(0, min(first - _MOST_CELLS // 2, longest + 1 - _MOST_CELLS))
    rows = [
        Row(tuple(numbers), members[0].collectives, start, marks.get(numbers[0]))
        for members in chosen
        for numbers in [[one.rank.rank for one in members]]
    ]
    mesh = {one.rank.rank: one.rank.coordinates for one in ranks}
    dimensions = {tuple(each) for each in mesh.values()}
    is_mesh = len(dimensions) == 1 and () not in dimensions
    shown = tuple(sorted(rows))
    return Picture(shown, len(ranks) - sum(len(row.ranks) for row in rows), mesh if is_mesh else {})
