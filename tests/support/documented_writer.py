"""A writer of both forms that knows docs/format.md and nothing of gradir, for documents as plain data."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgpack

__all__ = ["compact", "text"]

_COLUMNS = {
    "scopes": ("kind", "path"),
    "cuts": ("kind", "names", "scope"),
    "nodes": ("kind", "id", "ordinal", "scope", "names", "in", "saved.origin", "saved.storage", "base"),
}
_ORDINAL = re.compile(r"(.*:)([1-9][0-9]{0,8})", re.DOTALL)

Document = Mapping[str, Any]


def text(document: Document) -> bytes:
    """The JSON form of a document whose keys are in order, and which has no field at its default."""
    version, requires = _spelled(document["version"]), _spelled(document.get("requires", []))
    head = f'{{"format":"gir","version":{version},"requires":{requires},\n'
    parts = [
        f'"producer":{_spelled(document.get("producer", {}))}',
        *(f'"rank":{_spelled(document["rank"])}' for _ in ("rank",) if "rank" in document),
        *(_listed(name, document.get(name, [])) for name in ("scopes", "cuts")),
        *(_listed(name, document[name]) for name in ("collectives",) if name in document),
        _listed("nodes", document.get("nodes", [])),
    ]
    return (head + ",\n".join(parts) + "}\n").encode()


def _listed(name: str, records: Sequence[object]) -> str:
    lines = ",\n".join(map(_spelled, records))
    return f'"{name}":[\n{lines}\n]' if lines else f'"{name}":[]'


def _spelled(value: object, *, is_sorted: bool = False) -> str:
    if isinstance(value, dict):
        items = sorted(value.items()) if is_sorted else value.items()
        free = ("attrs", "ext", "options", "coordinates", "groups", "local")
        return "{" + ",".join(f"{_spelled(key)}:{_spelled(entry, is_sorted=key in free)}" for key, entry in items) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_spelled, value)) + "]"
    return _float(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def _float(value: float) -> str:
    if not value or 0.00001 <= abs(value) < 1e16:
        digits = format(Decimal(repr(value)), "f")
        return digits if "." in digits else f"{digits}.0"
    digits, _, exponent = repr(value).partition("e")
    return f"{digits}e{int(exponent)}"


def compact(document: Document) -> bytes:
    """The compact form."""
    strings: dict[str, int] = {"": 0}
    places = {node["id"]: place for place, node in enumerate(document["nodes"])}
    tables = {name: _table(name, document.get(name, ()), strings, places) for name in _COLUMNS}
    producer = dict(document.get("producer", {}))
    if "options" in producer:
        producer["options"] = dict(sorted(producer["options"].items()))
    head = {"format": "gir", "version": document["version"], "requires": document.get("requires", [])}
    ranks = {key: document[key] for key in ("rank", "collectives") if key in document}
    packed: bytes = msgpack.packb({**head, "producer": producer, **ranks, "strings": list(strings), **tables})
    return b"\x89GIR\r\n\x1a\n" + packed


def _column(values: Sequence[int]) -> bytes:
    if not values:
        return b""
    if min(values) >= 0:
        width = next(width for width in (1, 2, 4, 8) if max(values) < 1 << 8 * width)
        return bytes([width]) + struct.pack(f"<{len(values)}{' BH I   Q'[width]}", *values)
    largest = max(*values, ~min(values))
    width = next(width for width in (1, 2, 4, 8) if largest < 1 << 8 * width - 1)
    return bytes([128 + width]) + struct.pack(f"<{len(values)}{' bh i   q'[width]}", *values)


def _table(
    name: str, records: Sequence[Document], strings: dict[str, int], places: Mapping[str, int]
) -> dict[str, object]:
    columns: dict[str, list[int]] = {column: [] for column in _COLUMNS[name]}
    kinds: dict[bytes, int] = {}
    for place, record in enumerate(records):
        kind = dict(record)
        if name == "nodes":
            kind["id"] = _id(record, columns, strings)
        # A node has its scope before its names, a cut has it behind them.
        if name == "cuts" and "names" in record:
            kind["names"] = [_text(value, columns["names"], strings) for value in record["names"]]
        for key in ("path", "scope"):
            if key in columns:
                _text(kind.pop(key, ""), columns[key], strings)
        if "path" in record:
            kind = {"path": "", **kind}
        if name == "nodes" and "names" in record:
            kind["names"] = [_text(value, columns["names"], strings) for value in record["names"]]
        if name == "nodes":
            _fill(kind, place, columns, strings, places)
        columns["kind"].append(kinds.setdefault(msgpack.packb(kind), len(kinds)))
    packed = {column: _column(values) for column, values in columns.items() if values or column == "kind"}
    return {"kinds": [msgpack.unpackb(kind) for kind in kinds], **packed}


def _text(value: str, column: list[int], strings: dict[str, int]) -> str:
    column.append(strings.setdefault(value, len(strings)))
    return ""


def _fill(  # noqa: C901 (one field after the other)
    kind: dict[str, Any],
    place: int,
    columns: dict[str, list[int]],
    strings: dict[str, int],
    places: Mapping[str, int],
) -> None:
    """Put holes where a node names others."""

    def reference(column: str, value: str) -> str:
        start, dot, rest = (value, "", "") if value in places else value.rpartition(".")
        if start in places:
            columns[column].append(place - places[start])
            return f"@{dot}{rest}"
        _text(value, columns[column], strings)
        return "="

    def ref(column: str, value: Sequence[Any] | None) -> list[object] | None:
        if value is not None:
            columns[column].append(place - places[value[0]])
        return None if value is None else ["", value[1]]

    for key in ("attrs", "ext"):
        if key in kind:
            kind[key] = dict(sorted(kind[key].items()))
    if "in" in kind:
        kind["in"] = [ref("in", value) for value in kind["in"]]
    if "saved" in kind:
        kind["saved"] = [dict(slot) for slot in kind["saved"]]
    for slot in kind.get("saved", ()):
        if "origin" in slot:
            slot["origin"] = ref("saved.origin", slot["origin"])
        if "storage" in slot:
            slot["storage"] = reference("saved.storage", slot["storage"])
    if "base" in kind:
        kind["base"] = reference("base", kind["base"])


def _id(node: Document, columns: dict[str, list[int]], strings: dict[str, int]) -> str:
    match = _ORDINAL.fullmatch(node["id"])
    start, ordinal = (match[1], int(match[2])) if match else (node["id"], 0)
    scope, op = node.get("scope", ""), node.get("op", "")
    columns["ordinal"].append(ordinal)
    if ordinal and start == (f"{scope}/{op}:" if scope else f"{op}:"):
        return ""
    columns["id"].append(strings.setdefault(start, len(strings)))
    return "="
