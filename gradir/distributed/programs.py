"""Store each distinct part of the collectives of all ranks once, since a thousand ranks have a million of them."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final

from msgspec.structs import astuple

from gradir.codecs.rank_parts import RankParts, number_collectives
from gradir.ir import Collective

_STARTS: Final = tuple(map(Collective.__struct_fields__.index, ("phase", "node", "source", "operands")))
"""The first field of each part: the operation, its place, its line, and its tensors."""

_MOST_KNOWN: Final = 20_000
"""The records to recognize by their bytes, or to keep as objects, which takes some megabytes."""


class _Part(dict[tuple[Any, ...], int]):
    """The distinct values of one part, with their numbers, and the numbers of all records."""

    def __init__(self, fields: slice) -> None:
        super().__init__()
        self.fields = fields
        self.distinct: list[tuple[Any, ...]] = []
        self.numbers = array("L")

    def __missing__(self, value: tuple[Any, ...]) -> int:
        number = self[value] = len(self.distinct)
        self.distinct.append(value)
        return number


class Programs:
    """The collectives of all ranks. Equal lists are one object."""

    def __init__(self) -> None:
        self._parts = [_Part(slice(*ends)) for ends in zip(_STARTS, (*_STARTS[1:], None), strict=True)]
        self._lists: dict[bytes, Program] = {}
        self._known: dict[bytes, int] = {}
        self._record = lru_cache(_MOST_KNOWN)(self._make_record)

    def read(self, data: bytes, parts: RankParts) -> Program:
        """Return the collectives of a document."""
        digest = hashlib.sha256(parts.collectives).digest()
        if digest not in self._lists:
            if len(self._known) > _MOST_KNOWN:
                self._known.clear()
            rows = number_collectives(data, parts, self._known, self._add)
            self._lists[digest] = Program(self._parts, self._record, rows)
        return self._lists[digest]

    def _add(self, collectives: Sequence[Collective]) -> range:
        records = [*map(astuple, collectives)]
        for part in self._parts:
            part.numbers.extend(map(part.__getitem__, map(itemgetter(part.fields), records)))
        count = len(self._parts[0].numbers)
        return range(count - len(records), count)

    def _make_record(self, row: int) -> Collective:
        # Ranks whose lists all differ make each record anew, and a loop over the parts takes twice as long.
        operation, place, line, tensors = self._parts
        return Collective(
            *operation.distinct[operation.numbers[row]],
            *place.distinct[place.numbers[row]],
            *line.distinct[line.numbers[row]],
            *tensors.distinct[tensors.numbers[row]],
        )


class Program:
    """The collectives of a rank, in order."""

    def __init__(self, parts: Sequence[_Part], record: Callable[[int], Collective], rows: Sequence[int]) -> None:
        self._parts, self.record, self._rows = parts, record, rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: int) -> Collective:
        return self.record(self._rows[place])

    def __iter__(self) -> Iterator[Collective]:
        return map(self.record, self._rows)

    def kinds(self) -> Iterator[tuple[Collective, int]]:
        """Return the collectives that differ in more than their lines, with their counts."""
        operations, places, _, tensors = (part.numbers for part in self._parts)
        firsts: dict[tuple[int, ...], int] = {}
        counts: Counter[int] = Counter()
        for row, count in Counter(self._rows).items():
            counts[firsts.setdefault((operations[row], places[row], tensors[row]), row)] += count
        return ((self.record(row), count) for row, count in counts.items())
