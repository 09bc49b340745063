"""The top level of a compact document: its head, tables and packed columns, checked for type but not put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from gradir.codecs.compact.columns import any_from, length, pick, unpack
from gradir.codecs.compact.layout import Kind
from gradir.codecs.faults import damaged
from gradir.codecs.versions import Version
from gradir.ir import Cut, Producer

__all__ = ["Columns", "Tables"]

T = TypeVar("T")


class Columns:
    """The packed columns of one table, unpacked when asked for."""

    def __init__(self, table: str, packed: Mapping[str, bytes]) -> None:
        self._table = table
        self._packed = packed

    def __getitem__(self, name: str) -> Any:
        """The integers of a column."""
        return self._read(name, unpack)

    def __contains__(self, name: str) -> bool:
        """Whether the document has the column."""
        return name in self._packed

    def length(self, name: str) -> int:
        """The number of entries of a column, which is not unpacked for it."""
        return self._read(name, length)

    def check_length(self, name: str, count: int, per: str) -> None:
        """Refuse a column that has not ``count`` entries."""
        found = self.length(name)
        if found != count:
            raise damaged(f"column {self.title(name)} has {found:,} entries, not one per {per} ({count:,})")

    def counted(self, name: str, count: int, per: str, *, places: Sequence[int] | None = None) -> Any:
        """A column that must have ``count`` entries, or those of its entries that are asked for."""
        if places is not None:
            self.check_length(name, count, per)
            return self._read(name, lambda packed: pick(packed, places))
        column = self[name]
        if len(column) != count:
            self.check_length(name, count, per)
        return column

    def indexes(
        self, name: str, count: int, per: str, limit: int, table: str, *, places: Sequence[int] | None = None
    ) -> Any:
        """A column of ``count`` indexes into a table of ``limit`` entries, or those that are asked for."""
        column = self.counted(name, count, per, places=places)
        if any_from(limit, column):
            raise damaged(
                f"column {self.title(name)} names entry {max(column):,} of {table}, of which there are {limit:,}"
            )
        return column

    def _read(self, name: str, function: Callable[[bytes], T]) -> T:
        try:
            return function(self._packed[name])
        except ValueError as error:
            raise damaged(f"column {self.title(name)}: {error}") from error

    def title(self, name: str) -> str:
        """The column as an error names it."""
        return f"{self._table}.{name}"


class Tables(msgspec.Struct):
    """Everything in a compact document."""

    size: int
    version: Version
    producer: Producer
    cuts: tuple[Cut, ...]
    strings: list[str]
    scopes: Columns
    kinds: list[Kind]
    nodes: Columns
    kind_of: Sequence[int]
    """By place of a node, an index of ``kinds``."""
    unknown: str = ""
    """Where what nobody knows stands first, and what that is."""

    @classmethod
    def of(cls, size: int, version: Version, *, kinds: list[Kind], nodes: Columns, **others: Any) -> Tables:
        """The tables, once each node is known to be of a kind that there is.

        Raises:
            FormatError: one is not.
        """
        kind_of = nodes.indexes("kind", nodes.length("kind"), "node", len(kinds), "kinds")
        return cls(size, version, kinds=kinds, nodes=nodes, kind_of=kind_of, **others)
