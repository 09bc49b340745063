"""A writer of both encodings that knows docs/format.md and nothing of gradir, for documents as plain data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgpack

_FREE = ("attrs", "ext", "options", "coordinates", "groups", "local")
"""The keys of objects whose own keys are anything, and sorted."""

Document = Mapping[str, Any]


def text(document: Document) -> bytes:
    """The JSON form of a document whose keys are in order, and which has no field at its default."""
    version, requires = _spell_value(document["version"]), _spell_value(document.get("requires", []))
    head = f'{{"format":"gir","version":{version},"requires":{requires},\n'
    parts = [
        f'"producer":{_spell_value(document.get("producer", {}))}',
        *(f'"rank":{_spell_value(document["rank"])}' for _ in ("rank",) if "rank" in document),
        *(_make_columns(name, document.get(name, [])) for name in ("scopes", "cuts")),
        *(_make_columns(name, document[name]) for name in ("collectives",) if name in document),
        _make_columns("nodes", document.get("nodes", [])),
    ]
    return (head + ",\n".join(parts) + "}\n").encode()


def _make_columns(name: str, records: Sequence[object]) -> str:
    lines = ",\n".join(map(_spell_value, records))
    return f'"{name}":[\n{lines}\n]' if lines else f'"{name}":[]'


def _spell_value(value: object, *, is_sorted: bool = False) -> str:
    if isinstance(value, dict):
        items = sorted(value.items()) if is_sorted else value.items()
        return (
            "{"
            + ",".join(f"{_spell_value(key)}:{_spell_value(entry, is_sorted=key in _FREE)}" for key, entry in items)
            + "}"
        )
    if isinstance(value, list):
        return "[" + ",".join(map(_spell_value, value)) + "]"
    return _float(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def _float(value: float) -> str:
    if not value or 0.00001 <= abs(value) < 1e16:
        digits = format(Decimal(repr(value)), "f")
        return digits if "." in digits else f"{digits}.0"
    digits, _, exponent = repr(value).partition("e")
    return f"{digits}e{int(exponent)}"


def write_msgpack(document: Document) -> bytes:
    """The same document in MessagePack."""
    head = {key: document[key] for key in ("format", "version")}
    empty: dict[str, object] = {"requires": [], "producer": {}, "scopes": [], "cuts": [], "nodes": []}
    keys = ("format", "version", "requires", "producer", "rank", "scopes", "cuts", "collectives", "nodes")
    whole = {**empty, **document, **head}
    found: bytes = msgpack.packb({key: _sort_keys(whole[key]) for key in keys if key in whole})
    return found


def _sort_keys(value: object, *, is_sorted: bool = False) -> object:
    if isinstance(value, dict):
        items = sorted(value.items()) if is_sorted else value.items()
        return {key: _sort_keys(entry, is_sorted=key in _FREE) for key, entry in items}
    return list(map(_sort_keys, value)) if isinstance(value, list) else value
