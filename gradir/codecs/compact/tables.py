"""The tables of a compact document, checked for type and length but not put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain, repeat
from operator import attrgetter, mul
from typing import Any, NamedTuple, TypeVar

import msgspec

from gradir.codecs.compact.columns import any_beyond, counts_of, length, pick, unpack
from gradir.codecs.compact.layout import KIND, KINDS, ORDINAL, Hole, holes_of
from gradir.codecs.faults import damaged
from gradir.codecs.versions import Version
from gradir.ir import Producer
from gradir.ir.model import Record

__all__ = ["Plan", "Table", "Tables", "is_hole", "parts_of", "weighted"]

T = TypeVar("T")


class Plan(NamedTuple):
    """How one field is filled: its value by kind, and how many entries of the column a record of that kind takes."""

    hole: Hole
    values: Sequence[Any]
    counts: Sequence[int]
    rows: Sequence[Any] = ()
    inner: Sequence[Plan] = ()
    """Where there are holes in records in the record: these records, for kind after kind, and how they are filled."""


def parts_of(value: Any, hole: Hole) -> Sequence[Any]:
    """The parts of a value that may be holes."""
    return value if hole.is_list else (value,)


def is_hole(part: Any, hole: Hole) -> bool:
    """Whether a part of a kind's value is a hole, or has one."""
    if not hole.inner:
        return part is not None if hole.sort in ("text", "ref") else bool(part)
    return part is not None and any(
        is_hole(below, inner) for inner in hole.inner for below in parts_of(getattr(part, inner.name), inner)
    )


def _plans_of(holes: Iterable[Hole], kinds: Sequence[Any]) -> list[Plan]:
    plans = []
    for hole in holes:
        values = list(map(attrgetter(hole.name), kinds))
        live: list[Sequence[Any]] = [
            [part for part in parts_of(value, hole) if is_hole(part, hole)] if value != () else () for value in values
        ]
        rows = list(chain.from_iterable(live)) if hole.inner else []
        plans.append(Plan(hole, values, list(map(len, live)), rows, _plans_of(hole.inner, rows)))
    return plans


def weighted(plans: Iterable[Plan], weights: Sequence[int]) -> Iterator[tuple[Plan, Sequence[int]]]:
    """Each plan, also of records in records, and how many records there are of each of its kinds."""
    for plan in plans:
        yield plan, weights
        if plan.inner:
            yield from weighted(plan.inner, list(chain.from_iterable(map(repeat, weights, plan.counts))))


class Table:
    """One table: its kinds, and its columns, which are unpacked when asked for."""

    def __init__(self, name: str, record: type[Record], kinds: Sequence[Any], packed: Mapping[str, bytes]) -> None:
        """Take a table whose columns are as long as its kinds ask for.

        Raises:
            FormatError: a column is not; a record is of a kind that there is not.
        """
        self.kinds = kinds
        self.size = sum(map(len, packed.values()))
        self._name = name
        self._packed = packed
        self.kind_of = self.indexes(KIND, len(kinds), KINDS)
        self.plans = _plans_of(holes_of(record), kinds)
        # A kind may ask for any number of entries, so nothing is made of these numbers before.
        for plan, weights in weighted(self.plans, self.weights):
            if not plan.inner:
                self._check_length(plan.hole.path, sum(map(mul, plan.counts, weights)))
            if plan.hole.sort == "id":
                self._check_length(ORDINAL, len(self.kind_of))

    @cached_property
    def weights(self) -> Sequence[int]:
        """How many records there are of each kind."""
        counts = counts_of(self.kind_of)
        return [counts.get(number, 0) for number in range(len(self.kinds))]

    def column(self, name: str, places: Sequence[int] | None = None) -> Sequence[int]:
        """The integers of a column, or those at some places."""
        return self._read(name, unpack if places is None else partial(pick, places=places))

    def indexes(self, name: str, limit: int, table: str, places: Sequence[int] | None = None) -> Sequence[int]:
        """A column of indexes into a table of ``limit`` entries, or those at some places.

        Raises:
            FormatError: it names an entry that there is not.
        """
        column = self.column(name, places)
        if any_beyond(limit, column):
            worst = max(column) if min(column) >= 0 else min(column)
            raise damaged(f"column {self.title(name)} names entry {worst:,} of {table}, of which there are {limit:,}")
        return column

    def bytes_of(self, name: str) -> int:
        """The size of a column."""
        return len(self._packed.get(name, b""))

    def length(self, name: str) -> int:
        """The number of entries of a column, which is not unpacked for it."""
        return self._read(name, length)

    def _check_length(self, name: str, count: int) -> None:
        found = self.length(name)
        if found != count:
            raise damaged(f"column {self.title(name)} has {found:,} entries, not one per hole of its kinds ({count:,})")

    def _read(self, name: str, function: Callable[[bytes], T]) -> T:
        try:
            return function(self._packed.get(name, b""))
        except ValueError as error:
            raise damaged(f"column {self.title(name)}: {error}") from error

    def title(self, name: str) -> str:
        """The column as an error names it."""
        return f"{self._name}.{name}"


class Tables(msgspec.Struct):
    """Everything in a compact document."""

    size: int
    version: Version
    producer: Producer
    strings: Sequence[str]
    scopes: Table
    cuts: Table
    nodes: Table
    unknown: str = ""
    """Where what nobody knows stands first, and what that is."""
