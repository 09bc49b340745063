"""Graph to compact bytes. One graph has one spelling: every table is numbered by first use, every column is narrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec.structs import force_setattr

from gradir.codecs.compact.bounds import excess
from gradir.codecs.compact.columns import pack
from gradir.codecs.compact.layout import (
    KIND,
    KINDS,
    NODE,
    ORDINAL,
    TABLES,
    TEXT,
    Hole,
    columns_of,
    holes_of,
)
from gradir.codecs.compact.tables import Table, Tables
from gradir.codecs.document import FORMAT, MAGIC
from gradir.codecs.values import check_graph
from gradir.codecs.versions import lowest_for
from gradir.errors import FormatError
from gradir.ir import Graph, Node
from gradir.ir.ids import function_prefix, split_last, split_ordinal
from gradir.ir.model import Record, Ref

__all__ = ["encode"]

_ENCODER: Final = msgspec.msgpack.Encoder(order="deterministic")
_FIRST_OUTPUT: Final = Ref("", 0)

_Fill = Callable[[Any, int], Any]
"""Puts a value in its column and gives what a kind has in its place; the number is the place of the record."""


def encode(graph: Graph) -> bytes:
    """The compact bytes of a graph.

    Raises:
        FormatError: the graph breaks a rule of the IR, or holds what no file can, or ids that are very long.
    """
    check_graph(graph)
    version, strings = lowest_for(graph), {"": 0}
    places = dict(zip(graph.nodes, range(len(graph.nodes)), strict=True))
    held = {"scopes": graph.scopes.values(), "cuts": graph.cuts, "nodes": graph.nodes.values()}
    writers = {name: _Writer(record, strings, places) for name, record in TABLES.items()}
    for name, writer in writers.items():
        writer.write(held[name])
    head = {"format": FORMAT, "version": str(version), "requires": (), "producer": _spelled(graph.producer)}
    tables = {name: writer.table() for name, writer in writers.items()}
    packed = MAGIC + msgspec.msgpack.encode({**head, "strings": list(strings), **tables})
    columns: dict[str, Any] = {
        name: Table(name, TABLES[name], writer.kinds, tables[name]) for name, writer in writers.items()
    }
    problem = excess(Tables(len(packed), version, graph.producer, list(strings), **columns))
    if problem:
        raise FormatError(f"{problem} for the compact form, which no reader would take: write JSON")
    return packed


def _spelled(record: Record) -> msgspec.Raw:
    return msgspec.Raw(_ENCODER.encode(record))


class _Writer:
    """Fills the columns of a table and finds its kinds."""

    def __init__(self, record: type[Record], strings: dict[str, int], places: Mapping[str, int]) -> None:
        self.kinds: list[Any] = []
        self._rows: dict[bytes, int] = {}
        self._columns: dict[str, list[int]] = {name: [] for name in columns_of(record)}
        self._strings = strings
        self._places = places
        self._fills = self._fills_of(holes_of(record))

    def write(self, records: Iterable[Any]) -> None:
        """Append records, those that they name among them or before."""
        add, number, spell = self._columns[KIND].append, self._rows.get, _ENCODER.encode
        for place, record in enumerate(records):
            kind = _opened(record, self._fills, place)
            row = spell(kind)
            known = number(row)
            add(self._new_kind(row, kind) if known is None else known)

    def table(self) -> dict[str, Any]:
        """The table as it stands in the document."""
        columns = {name: pack(column) for name, column in self._columns.items() if column or name == KIND}
        return {KINDS: list(map(msgspec.Raw, self._rows)), **columns}

    def _new_kind(self, row: bytes, kind: Any) -> int:
        self.kinds.append(kind)
        return self._rows.setdefault(row, len(self._rows))

    def _fills_of(self, holes: Iterable[Hole]) -> list[tuple[str, Callable[[Any], Any], _Fill]]:
        found = []
        for hole in holes:
            fill = self._fill(hole)
            # An id is told by the whole node.
            get = (lambda record: record) if hole.sort == "id" else attrgetter(hole.name)
            found.append((hole.name, get, _each(fill) if hole.is_list else fill))
        return found

    def _fill(self, hole: Hole) -> _Fill:
        if hole.inner:
            below = self._fills_of(hole.inner)
            return lambda record, place: _opened(record, below, place)
        add, strings, places = self._columns[hole.path].append, self._strings, self._places

        def text(value: str, _: int) -> str:
            add(strings.setdefault(value, len(strings)))
            return ""

        def ref(value: Ref, place: int) -> Ref:
            add(place - places[value.id])
            return Ref("", value.output_nr) if value.output_nr else _FIRST_OUTPUT

        def reference(value: str, place: int) -> str:
            if not value:
                return value
            head, rest = value, ""
            if value not in places:
                head, _ = split_last(value)
                rest = value[len(head) :]
            if head in places:
                add(place - places[head])
                return NODE + rest
            add(strings.setdefault(value, len(strings)))
            return TEXT

        def node_id(node: Node, _: int) -> str:
            head, ordinal = split_ordinal(node.id)
            add_ordinal(ordinal)
            if ordinal and head == function_prefix(node.scope, node.op):
                return ""
            add(strings.setdefault(head, len(strings)))
            return TEXT

        add_ordinal = self._columns[ORDINAL].append if hole.sort == "id" else add
        fills: Mapping[str, _Fill] = {"text": text, "ref": ref, "reference": reference, "id": node_id}
        return fills[hole.sort]


def _each(fill: _Fill) -> _Fill:
    return lambda values, place: tuple([None if value is None else fill(value, place) for value in values])


def _opened(record: Any, fills: Iterable[tuple[str, Callable[[Any], Any], _Fill]], place: int) -> Any:
    """A record with holes."""
    kind = record.__copy__()
    for name, get, fill in fills:
        value = get(record)
        if value is not None and value != ():
            force_setattr(kind, name, fill(value, place))
    return kind
