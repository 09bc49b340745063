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

_COLUMNS = (
    "kind id ordinal scope names in in_at in_nr base origin origin_at origin_nr storage storage_node storage_text"
)
_KIND = ("role", "op", "native", "names", "in", "out", "attrs", "saved", "base", "opaque", "source", "ext")
_ORDINAL = re.compile(r"(.*:)([1-9][0-9]{0,8})", re.DOTALL)

Document = Mapping[str, Any]


def text(document: Document) -> bytes:
    """The JSON form of a document whose keys are in order, and which has no field at its default."""
    version, requires = _spelled(document["version"]), _spelled(document.get("requires", []))
    head = f'{{"format":"gir","version":{version},"requires":{requires},\n'
    parts = [
        f'"producer":{_spelled(document.get("producer", {}))}',
        *(_listed(name, document.get(name, [])) for name in ("scopes", "cuts", "nodes")),
    ]
    return (head + ",\n".join(parts) + "}\n").encode()


def _listed(name: str, records: Sequence[object]) -> str:
    lines = ",\n".join(map(_spelled, records))
    return f'"{name}":[\n{lines}\n]' if lines else f'"{name}":[]'


def _spelled(value: object, *, is_sorted: bool = False) -> str:
    if isinstance(value, dict):
        items = sorted(value.items()) if is_sorted else value.items()
        free = ("attrs", "ext", "options")
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
    scopes = _scopes(document.get("scopes", ()), strings)
    kinds, nodes = _nodes(document["nodes"], strings)
    producer = dict(document.get("producer", {}))
    if "options" in producer:
        producer["options"] = dict(sorted(producer["options"].items()))
    tables = {"strings": list(strings), "scopes": scopes, "kinds": kinds, "nodes": nodes}
    head = {"format": "gir", "version": document["version"], "requires": document.get("requires", [])}
    packed: bytes = msgpack.packb({**head, "producer": producer, "cuts": document.get("cuts", []), **tables})
    return b"\x89GIR\r\n\x1a\n" + packed


def _number(text: str, strings: dict[str, int]) -> int:
    return strings.setdefault(text, len(strings))


def _column(values: Sequence[int]) -> bytes:
    if not values:
        return b""
    width = next(width for width in (1, 2, 4, 8) if max(values) < 1 << 8 * width)
    return bytes([width]) + struct.pack(f"<{len(values)}{' BH I   Q'[width]}", *values)


def _scopes(scopes: Sequence[Document], strings: dict[str, int]) -> dict[str, bytes]:
    rows = [
        [_number(scope.get(key, ""), strings) for key in ("path", "class", "detail")]
        + [scope.get(key, 0) for key in ("calls", "own", "total", "trainable")]
        + [{None: 0, False: 1, True: 2}[scope.get("training")]]
        for scope in scopes
    ]
    names = ("path", "class", "detail", "calls", "own", "total", "trainable", "training")
    columns = {name: [row[at] for row in rows] for at, name in enumerate(names)}
    if not any(columns["training"]):
        del columns["training"]
    return {name: _column(column) for name, column in columns.items()}


def _nodes(nodes: Sequence[Document], strings: dict[str, int]) -> tuple[list[object], dict[str, bytes]]:
    columns: dict[str, list[int]] = {name: [] for name in _COLUMNS.split()}
    places = {node["id"]: place for place, node in enumerate(nodes)}
    kinds: dict[bytes, int] = {}
    storages: dict[str, int] = {}
    for place, node in enumerate(nodes):
        columns["kind"].append(kinds.setdefault(msgpack.packb(_kind(node)), len(kinds)))
        _add_id(node, columns, strings)
        columns["names"] += [_number(name, strings) for name in node.get("names", ())]
        for ref in node.get("in", ()):
            _add_number("in", ref, columns)
            columns["in"].append(0 if ref is None else place - places[ref[0]])
        if node.get("base"):
            columns["base"].append(place - places[node["base"]])
        for slot in node.get("saved", ()):
            ref = slot.get("origin")
            _add_number("origin", ref, columns)
            columns["origin"].append(0 if ref is None else 1 + _zigzag(place - places[ref[0]]))
            columns["storage"].append(_storage(slot.get("storage", ""), storages, places, columns, strings))
    return [msgpack.unpackb(kind) for kind in kinds], {name: _column(column) for name, column in columns.items()}


def _kind(node: Document) -> dict[str, Any]:
    kind = {key: node[key] for key in _KIND if key in node}
    kind |= {key: len(node[key]) for key in ("names", "in") if key in node}
    kind |= {key: dict(sorted(node[key].items())) for key in ("attrs", "ext") if key in node}
    if "base" in node:
        kind["base"] = True
    if "saved" in node:
        kind["saved"] = [{k: v for k, v in slot.items() if k not in ("origin", "storage")} for slot in node["saved"]]
    return kind


def _add_id(node: Document, columns: dict[str, list[int]], strings: dict[str, int]) -> None:
    match = _ORDINAL.fullmatch(node["id"])
    start, ordinal = (match[1], int(match[2])) if match else (node["id"], 0)
    scope = node.get("scope", "")
    derived = f"{scope}/{node.get('op', '')}:" if scope else f"{node.get('op', '')}:"
    columns["id"].append(0 if ordinal and start == derived else 1 + _number(start, strings))
    columns["ordinal"].append(ordinal)
    columns["scope"].append(_number(scope, strings))


def _add_number(name: str, ref: Sequence[Any] | None, columns: dict[str, list[int]]) -> None:
    if ref is not None and ref[1]:
        columns[f"{name}_at"].append(len(columns[name]))
        columns[f"{name}_nr"].append(ref[1])


def _zigzag(distance: int) -> int:
    return 2 * distance if distance >= 0 else -2 * distance - 1


def _storage(
    key: str,
    storages: dict[str, int],
    places: Mapping[str, int],
    columns: dict[str, list[int]],
    strings: dict[str, int],
) -> int:
    if not key:
        return 0
    if key not in storages:
        storages[key] = 1 + len(storages)
        start, dot, rest = (key, "", "") if key in places else key.rpartition(".")
        columns["storage_node"].append(1 + places[start] if start in places else 0)
        columns["storage_text"].append(_number(dot + rest if start in places else key, strings))
    return storages[key]
