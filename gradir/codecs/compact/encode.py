"""Graph to compact bytes. One graph has one spelling: every table is numbered by first use, every column is narrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import force_setattr

from gradir.codecs.compact.bounds import excess
from gradir.codecs.compact.columns import pack
from gradir.codecs.compact.layout import KIND, KINDS, NODE, ORDINAL, RANKS, TABLES, TEXT, Hole, columns_of, holes_of
from gradir.codecs.compact.tables import Table, Tables
from gradir.codecs.document import FORMAT, MAGIC
from gradir.codecs.values import check_graph
from gradir.codecs.versions import lowest_for
from gradir.errors import FormatError
from gradir.ir import Graph
from gradir.ir.ids import function_prefix, split_last, split_ordinal
from gradir.ir.model import Record, Ref

__all__ = ["encode"]

_ENCODER: Final = msgspec.msgpack.Encoder(order="deterministic")
_FIRST_OUTPUT: Final = Ref("", 0)

_Fill = Callable[[Any], Any]
"""Puts a value in its column and gives what a kind has in its place."""


def encode(graph: Graph) -> bytes:
    """The compact bytes of a graph.

    Raises:
        FormatError: the graph breaks a rule of the IR, or holds what no file can, or ids that are very long.
    """
    check_graph(graph)
    version, strings = lowest_for(graph), {"": 0}
    places = dict(zip(graph.nodes, range(len(graph.nodes)), strict=True))
    held = {"scopes": graph.scopes.values(), "cuts": graph.cuts, "nodes": graph.nodes.values()}
    head = {"format": FORMAT, "version": str(version), "requires": ()}
    writers = {name: _Writer(record, strings, places) for name, record in TABLES.items()}
    spelled = {name: writer.table(held[name]) for name, writer in writers.items()}
    producer = msgspec.Raw(_ENCODER.encode(graph.producer))
    ranks = {name: msgspec.Raw(_ENCODER.encode(value)) for name in RANKS if (value := getattr(graph, name))}
    parts = {**head, "producer": producer, **ranks, "strings": list(strings), **spelled}
    packed = MAGIC + msgspec.msgpack.encode(parts)
    tables: dict[str, Any] = {
        name: Table(name, TABLES[name], writer.kinds, spelled[name], [*strings]) for name, writer in writers.items()
    }
    problem = excess(Tables(len(packed), version, graph.producer, [*strings], **tables))
    if problem:
        raise FormatError(f"{problem} for the compact form, which no reader would take: write JSON")
    return packed


class _Writer:
    """Fills the columns of a table and finds its kinds."""

    def __init__(self, record: type[Record], strings: dict[str, int], places: Mapping[str, int]) -> None:
        self._columns: dict[str, list[int]] = {name: [] for name in columns_of(record)}
        self._strings = strings
        self._places = places
        self._fills = self._fills_of(holes_of(record))
        self._place = 0
        self._record: Any = None
        self.kinds: list[Any] = []

    def table(self, records: Iterable[Any]) -> dict[str, Any]:
        """The table of some records, as it stands in the document."""
        rows: dict[bytes, int] = {}
        add, spell = self._columns[KIND].append, _ENCODER.encode
        for self._place, self._record in enumerate(records):
            kind = _opened(self._record, self._fills)
            number = rows.setdefault(spell(kind), len(rows))
            if number == len(self.kinds):
                self.kinds.append(kind)
            add(number)
        columns = {name: pack(column) for name, column in self._columns.items() if column or name == KIND}
        return {KINDS: list(map(msgspec.Raw, rows)), **columns}

    def _fills_of(self, holes: Iterable[Hole]) -> list[tuple[str, _Fill]]:
        fills = [(hole, self._fill(hole)) for hole in holes]
        return [(hole.name, _each(fill) if hole.is_list else fill) for hole, fill in fills]

    def _fill(self, hole: Hole) -> _Fill:
        if hole.inner:
            below = self._fills_of(hole.inner)
            return lambda record: _opened(record, below)
        add, strings, places = self._columns[hole.path].append, self._strings, self._places

        def text(value: str) -> str:
            add(strings.setdefault(value, len(strings)))
            return ""

        def ref(value: Ref) -> Ref:
            add(self._place - places[value.id])
            return Ref("", value.output_nr) if value.output_nr else _FIRST_OUTPUT

        def reference(value: str) -> str:
            if not value:
                return value
            head = value if value in places else split_last(value)[0]
            if head in places:
                add(self._place - places[head])
                return NODE + value[len(head) :]
            text(value)
            return TEXT

        def node_id(value: str) -> str:
            head, ordinal = split_ordinal(value)
            self._columns[ORDINAL].append(ordinal)
            if ordinal and head == function_prefix(self._record.scope, self._record.op):
                return ""
            text(head)
            return TEXT

        fills: dict[str, _Fill] = {"text": text, "ref": ref, "reference": reference, "id": node_id}
        return fills[hole.sort]


def _each(fill: _Fill) -> _Fill:
    return lambda values: tuple([None if value is None else fill(value) for value in values])


def _opened(record: Any, fills: Iterable[tuple[str, _Fill]]) -> Any:
    """A record with holes."""
    kind = record.__copy__()
    for name, fill in fills:
        value = getattr(record, name)
        if value is not None and value != ():
            force_setattr(kind, name, fill(value))
    return kind
