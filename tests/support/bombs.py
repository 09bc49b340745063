"""Documents that are small and ask for much memory: the most for each byte, in every place of the format."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import cache

import msgpack

from gradir.codecs.compact.reader import read
from gradir.codecs.document import MAGIC
from gradir.errors import FormatError

__all__ = ["bombs"]

_HEAD = b'{"format":"gir","version":"1.0",'
_PER_KIND = 100


@cache
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
    nodes: Mapping[str, object] = {},
    kinds: Sequence[object] = (),
    strings: Sequence[str] = ("", "a"),
    **tables: Mapping[str, object],
) -> bytes:
    head = {"format": "gir", "version": "1.0", "requires": [], "producer": {}, "strings": strings}
    empty = {"kinds": (), "kind": b""}
    given = {"scopes": {**empty}, "cuts": {**empty}, **tables, "nodes": {**empty, "kinds": kinds, **nodes}}
    packed: bytes = MAGIC + msgpack.packb(head | given)
    return packed


def _nodes(count: int) -> dict[str, bytes]:
    ordinals = b"\x04" + struct.pack(f"<{count}I", *range(1, count + 1))
    return {"kind": _column(count), "ordinal": ordinals, "scope": _column(count)}


def _crowd(count: int, letter: str) -> bytes:
    """Nodes in the fewest bytes, with ids as long as a reader allows."""
    few = 255
    places = range(count)
    columns = {
        "kind": b"\x01" + bytes([place % few for place in places]),
        "ordinal": b"\x04" + struct.pack(f"<{count}I", *(1 + place // few**2 for place in places)),
        "scope": b"\x01" + bytes([1 + place // few % few for place in places]),
    }
    kinds = [{"id": "", "op": f"{number:02x}"} for number in range(few)]

    def of_length(length: int) -> bytes:
        return _compact(columns, kinds, ["", *(f"{letter * length}{number:02x}" for number in range(few))])

    refused = 1
    while _is_read(of_length(refused)):
        refused *= 2
    longer = range(refused // 2 + 1, refused)
    read_too = bisect_left(longer, True, key=lambda length: not _is_read(of_length(length)))
    return of_length(max(refused // 2 + read_too, 1))


def _is_read(data: bytes) -> bool:
    try:
        read(data)
    except FormatError:
        return False
    return True


def _compact_bombs(count: int) -> dict[str, bytes]:
    few = _nodes(count // _PER_KIND)
    head = {"format": "gir", "version": "1.0", "requires": []}
    maps = [{}] * count
    slot = {"slot": ""}
    filled = {"slot": "", "origin": ["", 1], "storage": "@.x"}
    zeros, ones = _column(count), _column(count, 1)
    return {
        "compact promise of in": _compact(few, [{"id": "", "in": [None] * (10 * count)}]),
        "compact nulls": _compact(
            few | {"in": _column(count // _PER_KIND)}, [_kind(**{"in": [["", 0]] + [None] * _PER_KIND})]
        ),
        "compact promise of names": _compact(few, [_kind(names=[""] * (10 * count))]),
        "compact promise of saved": _compact(few, [_kind(saved=[slot] * (count // 10))]),
        "compact promise of bases": _compact(_nodes(count), [_kind(base="@")]),
        "compact nodes": _compact(_nodes(count), [_kind()]),
        "compact equal nodes": _compact(_nodes(count) | {"ordinal": zeros}, [_kind()]),
        "compact slots": _compact(few, [_kind(saved=[slot] * _PER_KIND)]),
        "compact open slots": _compact(
            few | {"saved.origin": zeros, "saved.storage": zeros}, [_kind(saved=[filled] * _PER_KIND)]
        ),
        "compact one open slot": _compact(
            few | {"saved.origin": _column(count // _PER_KIND)},
            [_kind(saved=[*[slot] * _PER_KIND, {"slot": "", "origin": ["", 0]}])],
        ),
        "compact inputs": _compact(few | {"in": zeros}, [_kind(**{"in": [["", 0]] * _PER_KIND})]),
        "compact numbered inputs": _compact(few | {"in": zeros}, [_kind(**{"in": [["", 7]] * _PER_KIND})]),
        "compact names": _compact(few | {"names": zeros}, [_kind(names=[""] * _PER_KIND)]),
        "compact kinds": _compact(kinds=[_kind(op=f"{number:x}") for number in range(count)]),
        "compact kinds that differ in their id": _compact(kinds=[_kind(id=f"{number:x}") for number in range(count)]),
        "compact strings": _compact(strings=[""] * count),
        "compact scopes": _compact(scopes={"kinds": [{"path": ""}], "kind": zeros, "path": zeros}),
        "compact numbered scopes": _compact(
            strings=["", *(f"{number:x}" for number in range(count))],
            scopes={"kinds": [{"path": ""}], "kind": zeros, "path": _nodes(count)["ordinal"]},
        ),
        "compact long ids": _crowd(count, "x"),
        "compact wide ids": _crowd(count, "\N{GRINNING FACE}"),
        "compact cuts": _compact(cuts={"kinds": [{"kind": ""}], "kind": zeros, "scope": ones}),
        "compact wrong maps": MAGIC + msgpack.packb(head | {"producer": maps}),
        "compact wrong strings": MAGIC + msgpack.packb(head | {"producer": {}, "strings": maps}),
        "compact unknown maps": MAGIC + msgpack.packb(head | {"later": maps}),
        "compact unknown column": _compact({"later": maps}),
        "compact unknown keys of a kind": _compact(kinds=[_kind(later=maps)]),
        "compact outputs beside an unknown key": _compact(kinds=[_kind(out=maps, later=0)]),
        "compact kinds with an unknown key": _compact(
            kinds=[_kind(op=f"{number:x}", later=0) for number in range(count)]
        ),
        "compact wrong head": MAGIC + msgpack.packb(head | {"requires": maps}),
        "compact no document": MAGIC + msgpack.packb({"x": maps}),
    }


def _kind(**fields: object) -> dict[str, object]:
    return {"id": "", **fields}
