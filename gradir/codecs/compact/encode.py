"""Graph to compact bytes. One graph has one spelling: every table is numbered by first use, every column is narrow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any, Final

import msgpack
import msgspec

from gradir.codecs.compact.columns import pack
from gradir.codecs.compact.fit import is_in_proportion
from gradir.codecs.compact.keys import fit
from gradir.codecs.compact.layout import (
    FLAGS,
    KEYS,
    LATER_SCOPE_COLUMNS,
    NODE_COLUMNS,
    SCOPE_COLUMNS,
    Kind,
    Slot,
    common_fields,
    is_flag,
    zigzag,
)
from gradir.codecs.compact.strings import StringTable
from gradir.codecs.document import FORMAT, MAGIC
from gradir.codecs.values import check_graph
from gradir.codecs.versions import lowest_for
from gradir.errors import FormatError
from gradir.ir import AttrValue, Graph, Node, Saved, Scope
from gradir.ir.fields import Field, fields_of
from gradir.ir.ids import function_prefix, split_last, split_ordinal

__all__ = ["encode"]

_MAPPINGS: Final = [field.name for field in fields_of(Node) if isinstance(field.default, dict)]
_ATTRIBUTES: Final = attrgetter(*_MAPPINGS)
_IN_COMMON: Final = attrgetter(*(name for name in common_fields(Node) if name not in _MAPPINGS))
_OF_A_SLOT: Final = attrgetter(*common_fields(Saved))
"""Found once: what is read of every node and slot to tell its kind."""


def encode(graph: Graph) -> bytes:
    """The compact bytes of a graph.

    Raises:
        FormatError: the graph breaks a rule of the IR, or holds what no file can, or ids that are very long.
    """
    check_graph(graph)
    packer = msgpack.Packer(autoreset=False)
    strings = StringTable()
    scopes = _scope_columns(graph, strings)
    writer = _NodeWriter(graph, strings)
    for place, node in enumerate(graph.nodes.values()):
        writer.add(place, node)
    packer.pack_map_header(len(KEYS))
    head = (FORMAT, str(lowest_for(graph)), (), _plain(graph.producer), [_plain(cut) for cut in graph.cuts])
    for key, value in zip(KEYS, (*head, strings.texts(), scopes, writer.kinds, writer.columns()), strict=True):
        packer.pack(key)
        packer.pack(value)
    packed: bytes = MAGIC + packer.bytes()
    if not fit(graph.nodes, writer.storages(), len(packed)):
        raise FormatError("its ids are too long for the compact form, which no reader would take: write JSON")
    longest = max(map(len, graph.nodes), default=0), max(map(len, writer.storages()), default=0)
    if not is_in_proportion(len(packed), writer.column, strings=strings.texts(), kinds=writer.kinds, longest=longest):
        raise FormatError("it says too much too often for the compact form, which no reader would take: write JSON")
    return packed


def _plain(record: object) -> Any:
    return msgspec.to_builtins(record, order="deterministic")


def _scope_columns(graph: Graph, strings: StringTable) -> dict[str, bytes]:
    scopes = graph.scopes.values()
    fields = [field for field in fields_of(Scope) if field.key in SCOPE_COLUMNS]
    rows = [[_in_column(getattr(scope, field.name), strings) for field in fields] for scope in scopes]
    columns = zip(*rows, strict=True) if rows else [()] * len(SCOPE_COLUMNS)
    packed = {name: pack(column) for name, column in zip(SCOPE_COLUMNS, columns, strict=True)}
    for key, field in LATER_SCOPE_COLUMNS.items():
        values = [getattr(scope, field.name) for scope in scopes]
        if any(value != field.default for value in values):
            packed[key] = pack([_in_later_column(value, field, strings) for value in values])
    return packed


def _in_column(value: str | int, strings: StringTable) -> int:
    return strings.number(value) if isinstance(value, str) else value


def _in_later_column(value: Any, field: Field, strings: StringTable) -> int:
    if is_flag(field):
        return FLAGS.index(value)
    return 0 if value == field.default else strings.number(msgspec.json.encode(value, order="deterministic").decode())


class _NodeWriter:
    """Fills the columns of the nodes and the table of their kinds."""

    def __init__(self, graph: Graph, strings: StringTable) -> None:
        self.kinds: list[dict[str, object]] = []
        self._number = strings.number
        self._places = dict(zip(graph.nodes, range(len(graph.nodes)), strict=True))
        self._kind_numbers: dict[object, int] = {}
        self._storage_numbers: dict[str, int] = {"": 0}
        self._pack = msgpack.Packer(default=msgspec.to_builtins).pack
        self._columns: dict[str, list[int]] = {name: [] for name in NODE_COLUMNS}
        self._append = {name: column.append for name, column in self._columns.items()}

    def columns(self) -> dict[str, bytes]:
        """The packed columns."""
        return {name: pack(column) for name, column in self._columns.items()}

    def column(self, name: str) -> list[int]:
        """The integers of a column."""
        return self._columns[name]

    def storages(self) -> Iterable[str]:
        """The keys of the storages."""
        return filter(None, self._storage_numbers)

    def add(self, place: int, node: Node) -> None:
        """Append one node, whose inputs were appended before."""
        append = self._append
        append["kind"](self._kind(node))
        self._add_id(node)
        append["scope"](self._number(node.scope))
        for name in node.names:
            append["names"](self._number(name))
        for ref in node.inputs:
            if ref is None:
                append["in"](0)
                continue
            if ref.output_nr:
                self._add_number("in", ref.output_nr)
            append["in"](self._distance(place, ref.id))
        if node.base is not None:
            append["base"](self._distance(place, node.base))
        for saved in node.saved:
            self._add_saved(place, saved)

    def _add_id(self, node: Node) -> None:
        head, ordinal = split_ordinal(node.id)
        self._append["id"](0 if ordinal and head == function_prefix(node.scope, node.op) else 1 + self._number(head))
        self._append["ordinal"](ordinal)

    def _add_number(self, column: str, output_nr: int) -> None:
        self._append[f"{column}_at"](len(self._columns[column]))
        self._append[f"{column}_nr"](output_nr)

    def _distance(self, place: int, node_id: str) -> int:
        return place - self._places[node_id]

    def _add_saved(self, place: int, saved: Saved) -> None:
        if saved.origin is None:
            self._append["origin"](0)
        else:
            if saved.origin.output_nr:
                self._add_number("origin", saved.origin.output_nr)
            self._append["origin"](1 + zigzag(self._distance(place, saved.origin.id)))
        number = self._storage_numbers.get(saved.storage)
        self._append["storage"](self._new_storage(saved.storage) if number is None else number)

    def _new_storage(self, storage: str) -> int:
        node_id, text = storage, ""
        if storage not in self._places:
            node_id, _ = split_last(storage)
            text = storage[len(node_id) :] if node_id in self._places else storage
        self._append["storage_node"](1 + self._places.get(node_id, -1))
        self._append["storage_text"](self._number(text))
        return self._storage_numbers.setdefault(storage, len(self._storage_numbers))

    def _kind(self, node: Node) -> int:
        # Values that are equal but are not spelled alike (1, 1.0 and True) are told apart by their bytes.
        key = (
            _IN_COMMON(node),
            len(node.names),
            len(node.inputs),
            tuple([self._attributes_key(values) if values else b"" for values in _ATTRIBUTES(node)]),
            tuple(map(_OF_A_SLOT, node.saved)),
            node.base is None,
        )
        number = self._kind_numbers.get(key)
        return self._new_kind(key, node) if number is None else number

    def _attributes_key(self, attributes: Mapping[str, AttrValue]) -> bytes:
        key: bytes = self._pack(sorted(attributes.items()))
        return key

    def _new_kind(self, key: object, node: Node) -> int:
        slots = tuple(Slot(**{name: getattr(slot, name) for name in common_fields(Saved)}) for slot in node.saved)
        counted = {
            "names": len(node.names),
            "inputs": len(node.inputs),
            "saved": slots,
            "base": node.base is not None,
        }
        kind = Kind(**{name: getattr(node, name) for name in common_fields(Node)}, **counted)
        self.kinds.append(_plain(kind))
        return self._kind_numbers.setdefault(key, len(self._kind_numbers))
