"""Documents that are small and ask for much memory: the most for each byte, in every place of the format."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import msgpack

from gradir.codecs.compact.keys import fit
from gradir.codecs.compact.layout import NODE_COLUMNS, SCOPE_COLUMNS
from gradir.codecs.document import MAGIC

__all__ = ["bombs"]

_HEAD = b'{"format":"gir","version":"1.0",'
_PER_KIND = 100


def bombs(count: int) -> dict[str, bytes]:
    """By name; each repeats its smallest part ``count`` times."""
    return {**_json_bombs(count), **_compact_bombs(count)}


def _listed(part: bytes, count: int) -> bytes:
    return b"[" + b",".join([part] * count) + b"]"


def _numbered(template: bytes, count: int) -> bytes:
    return b",".join(template % number for number in range(count))


def _json_bombs(count: int) -> dict[str, bytes]:
    node = _HEAD + b'"nodes":[{"id":"a",%b}]}'
    return {
        "json nodes": _HEAD + b'"nodes":[%b]}' % _numbered(b'{"id":"%x"}', count),
        "json equal nodes": _HEAD + b'"nodes":%b}' % _listed(b'{"id":""}', count),
        "json outputs": node % (b'"out":' + _listed(b"{}", count)),
        "json null inputs": node % (b'"in":' + _listed(b"null", count)),
        "json inputs": node % (b'"in":' + _listed(b'["a",0]', count)),
        "json slots": node % (b'"saved":' + _listed(b'{"slot":""}', count)),
        "json names": node % (b'"names":[%b]' % _numbered(b'"%x"', count)),
        "json attributes": node % (b'"attrs":{%b}' % _numbered(b'"%x":0', count)),
        "json lists": node % (b'"attrs":{"":%b}' % _listed(b"[]", count)),
        "json short lists": node % (b'"attrs":{"":%b}' % _listed(b"[1]", count)),
        "json floats": node % (b'"attrs":{"":%b}' % _listed(b"1.5", count)),
        "json cuts": _HEAD + b'"nodes":[],"cuts":%b}' % _listed(b'{"kind":""}', count),
        "json scopes": _HEAD + b'"nodes":[],"scopes":[%b]}' % _numbered(b'{"path":"%x"}', count),
        "json unknown maps": _HEAD + b'"nodes":[],"later":%b}' % _listed(b"{}", count),
        "json wrong maps": _HEAD + b'"nodes":[],"requires":%b}' % _listed(b"{}", count),
        "json no document": _listed(b"{}", count),
    }


def _column(count: int, value: int = 0) -> bytes:
    return b"\x01" + bytes([value]) * count


def _compact(
    kinds: Sequence[object] = (),
    strings: Sequence[str] = ("", "a"),
    nodes: Mapping[str, object] = {},
    scopes: Mapping[str, bytes] = {},
    cuts: Sequence[object] = (),
) -> bytes:
    head = {"format": "gir", "version": "1.0", "requires": [], "producer": {}, "cuts": cuts, "strings": strings}
    columns = {**dict.fromkeys(NODE_COLUMNS, b""), **nodes}
    tables = {"scopes": {**dict.fromkeys(SCOPE_COLUMNS, b""), **scopes}, "kinds": kinds, "nodes": columns}
    packed: bytes = MAGIC + msgpack.packb(head | tables)
    return packed


def _nodes(count: int) -> dict[str, bytes]:
    ordinals = b"\x04" + struct.pack(f"<{count}I", *range(1, count + 1))
    return {"kind": _column(count), "id": _column(count), "ordinal": ordinals, "scope": _column(count)}


def _crowd(count: int, letter: str) -> bytes:
    """Nodes of four bytes each, with ids as long as a reader allows."""
    few = 255
    length = 20 if letter.isascii() else 5
    places = range(count)
    columns = {
        "kind": bytes([place % few for place in places]),
        "id": bytes(count),
        "ordinal": bytes([1 + place // few**2 for place in places]),
        "scope": bytes([1 + place // few % few for place in places]),
    }
    while True:
        data = _compact(
            [{"op": f"{number:02x}"} for number in range(few)],
            ["", *(f"{letter * length}{number:02x}" for number in range(few))],
            nodes={name: b"\x01" + column for name, column in columns.items()},
        )
        longer = f"{letter * (length + 1)}00/00:1"
        if not fit([longer] * count, [], len(data)):
            return data
        length += 1


def _compact_bombs(count: int) -> dict[str, bytes]:
    few = _nodes(count // _PER_KIND)
    head = {"format": "gir", "version": "1.0", "requires": []}
    maps = [{}] * count
    slots = {"saved": [{"slot": ""}] * _PER_KIND}
    promises = {"in": 1000 * count}, {"names": 1000 * count}, {"saved": [{"slot": ""}] * (count // 10)}
    return {
        **{f"compact promise of {next(iter(kind))}": _compact([kind], nodes=few) for kind in promises},
        "compact promise of bases": _compact([{"base": True}], nodes=_nodes(count)),
        "compact nodes": _compact([{}], nodes=_nodes(count)),
        "compact equal nodes": _compact([{}], nodes=_nodes(count) | {"ordinal": _column(count)}),
        "compact slots": _compact([slots], nodes=few | {"origin": _column(count), "storage": _column(count)}),
        "compact inputs": _compact([{"in": _PER_KIND}], nodes=few | {"in": _column(count)}),
        "compact names": _compact([{"names": _PER_KIND}], nodes=few | {"names": _column(count)}),
        "compact kinds": _compact([{"op": f"{number:x}"} for number in range(count)]),
        "compact strings": _compact(strings=[""] * count),
        "compact storages": _compact([{}], nodes={"storage_node": _column(count), "storage_text": _column(count)}),
        "compact scopes": _compact(scopes=dict.fromkeys(SCOPE_COLUMNS, _column(count))),
        "compact long ids": _crowd(count, "x"),
        "compact wide ids": _crowd(count, "\N{GRINNING FACE}"),
        "compact cuts": _compact(cuts=[{"kind": ""}] * count),
        "compact wrong maps": MAGIC + msgpack.packb(head | {"producer": maps}),
        "compact unknown maps": MAGIC + msgpack.packb(head | {"later": maps}),
        "compact unknown column": _compact(nodes={"later": maps}),
        "compact wrong head": MAGIC + msgpack.packb(head | {"requires": maps}),
        "compact no document": MAGIC + msgpack.packb({"x": maps}),
    }
