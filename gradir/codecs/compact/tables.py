"""The tables of a compact document, checked for type and length but not put together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from operator import attrgetter, mul
from typing import Any, NamedTuple

import msgspec

from gradir.codecs.compact.columns import any_beyond, counts_of, unpack
from gradir.codecs.compact.layout import KIND, KINDS, ORDINAL, Hole, columns_of, holes_of
from gradir.codecs.faults import damaged
from gradir.codecs.versions import Version
from gradir.ir import Collective, Producer, Rank
from gradir.ir.model import Record

__all__ = ["Plan", "Table", "Tables", "is_hole", "weighted"]


class Plan(NamedTuple):
    """How one field is filled.

    ``values`` is what each kind has there, ``counts`` how many holes are in that, and ``rows`` are these holes of all
    kinds. Where they are records, ``inner`` is how they are filled.
    """

    hole: Hole
    values: Sequence[Any]
    counts: Sequence[int]
    rows: Sequence[Any]
    inner: Sequence[Plan]


def is_hole(part: Any, hole: Hole) -> bool:
    """Whether a value of a kind, or an entry of it, is a hole or has one."""
    if hole.inner:
        return part is not None and any(_open_parts(part, inner) for inner in hole.inner)
    return part is not None if hole.sort in ("text", "ref") else bool(part)


def _open_parts(record: Any, hole: Hole) -> list[Any]:
    value = getattr(record, hole.name)
    return [part for part in (value if hole.is_list else (value,)) if is_hole(part, hole)]


def _plans_of(holes: Iterable[Hole], kinds: Sequence[Any]) -> list[Plan]:
    plans = []
    for hole in holes:
        parts = [_open_parts(kind, hole) for kind in kinds]
        rows = list(chain.from_iterable(parts))
        values = list(map(attrgetter(hole.name), kinds))
        plans.append(Plan(hole, values, list(map(len, parts)), rows, _plans_of(hole.inner, rows)))
    return plans


def weighted(plans: Iterable[Plan], weights: Sequence[int]) -> Iterator[tuple[Plan, Sequence[int], Sequence[int]]]:
    """Each plan, also of records in records, with how many records there are of its kinds, and of its rows."""
    for plan in plans:
        of_rows = list(chain.from_iterable(map(repeat, weights, plan.counts)))
        yield plan, weights, of_rows
        yield from weighted(plan.inner, of_rows)


class Table:
    """One table: its kinds, how many records there are of each, and its columns."""

    def __init__(
        self, name: str, record: type[Record], kinds: Sequence[Any], packed: Mapping[str, bytes], strings: Sequence[str]
    ) -> None:
        """Take a table whose columns are as long as its kinds ask for.

        Raises:
            FormatError: a column is not; it names a text or a kind that there is not.
        """
        self.kinds = kinds
        self.packed = packed
        self._name = name
        self.columns = {column: self._unpacked(column) for column in columns_of(record)}
        self.kind_of = self.columns[KIND]
        self._check_entries(KIND, len(kinds), KINDS)
        counts = counts_of(self.kind_of)
        self.weights = [counts.get(number, 0) for number in range(len(kinds))]
        self.plans = _plans_of(holes_of(record), kinds)
        # A kind may ask for any number of entries, so nothing is made of these numbers before.
        for plan, weights, _ in weighted(self.plans, self.weights):
            for column in () if plan.inner else plan.hole.columns:
                found = len(self.columns[column])
                count = len(self.kind_of) if column == ORDINAL else sum(map(mul, plan.counts, weights))
                if found != count:
                    problem = f"has {found:,} entries, not one per hole of its kinds ({count:,})"
                    raise damaged(f"column {self.title(column)} {problem}")
            if plan.hole.sort in ("text", "id"):
                self._check_entries(plan.hole.path, len(strings), "the strings")

    def _unpacked(self, name: str) -> Sequence[int]:
        try:
            return unpack(self.packed.get(name, b""))
        except ValueError as error:
            raise damaged(f"column {self.title(name)}: {error}") from error

    def _check_entries(self, name: str, limit: int, table: str) -> None:
        entries = self.columns[name]
        if any_beyond(limit, entries):
            worst = max(entries) if min(entries) >= 0 else min(entries)
            raise damaged(f"column {self.title(name)} names entry {worst:,} of {table}, of which there are {limit:,}")

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
    rank: Rank | None = None
    collectives: Sequence[Collective] = ()
    unknown: str = ""
    """Where what nobody knows stands first, and what that is."""
