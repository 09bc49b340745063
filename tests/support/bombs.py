"""Documents that are small and ask for much memory: the most for each byte, in every place of the format."""

from __future__ import annotations

from functools import cache

import msgpack

_HEAD = b'{"format":"gir","version":"1.0",'


@cache
def bombs(count: int) -> dict[str, bytes]:
    """By name; each repeats its smallest part ``count`` times."""
    return {**_json_bombs(count), **_msgpack_bombs(count)}


def _make_list(part: bytes, count: int) -> bytes:
    return b"[" + b",".join([part] * count) + b"]"


def _fill_template(template: bytes, count: int) -> bytes:
    return b",".join(template % number for number in range(count))


def _json_bombs(count: int) -> dict[str, bytes]:
    node = _HEAD + b'"nodes":[{"id":"a",%b}]}'
    return {
        "json nodes": _HEAD + b'"nodes":[%b]}' % _fill_template(b'{"id":"%x"}', count),
        "json equal nodes": _HEAD + b'"nodes":%b}' % _make_list(b'{"id":""}', count),
        "json outputs": node % (b'"out":' + _make_list(b"{}", count)),
        "json null inputs": node % (b'"in":' + _make_list(b"null", count)),
        "json inputs": node % (b'"in":' + _make_list(b'["a",0]', count)),
        "json slots": node % (b'"saved":' + _make_list(b'{"slot":""}', count)),
        "json names": node % (b'"names":[%b]' % _fill_template(b'"%x"', count)),
        "json attributes": node % (b'"attrs":{%b}' % _fill_template(b'"%x":0', count)),
        "json lists": node % (b'"attrs":{"":%b}' % _make_list(b"[]", count)),
        "json short lists": node % (b'"attrs":{"":%b}' % _make_list(b"[1]", count)),
        "json floats": node % (b'"attrs":{"":%b}' % _make_list(b"1.5", count)),
        "json cuts": _HEAD + b'"nodes":[],"cuts":%b}' % _make_list(b'{"kind":""}', count),
        "json scopes": _HEAD + b'"nodes":[],"scopes":[%b]}' % _fill_template(b'{"path":"%x"}', count),
        "json unknown maps": _HEAD + b'"nodes":[],"later":%b}' % _make_list(b"{}", count),
        "json wrong maps": _HEAD + b'"nodes":[],"requires":%b}' % _make_list(b"{}", count),
        "json no document": _make_list(b"{}", count),
    }


def _document(**changes: object) -> bytes:
    packed: bytes = msgpack.packb({"format": "gir", "version": "1.0", "nodes": [], **changes})
    return packed


def _node(**fields: object) -> bytes:
    return _document(nodes=[{"id": "a", **fields}])


def _msgpack_bombs(count: int) -> dict[str, bytes]:
    maps: list[object] = [{}] * count
    names = [f"{number:x}" for number in range(count)]
    return {
        "msgpack nodes": _document(nodes=[{"id": name} for name in names]),
        "msgpack equal nodes": _document(nodes=[{"id": ""}] * count),
        "msgpack wide ids": _document(nodes=[{"id": f"\N{GRINNING FACE}{name}"} for name in names]),
        "msgpack outputs": _node(out=maps),
        "msgpack null inputs": _node(**{"in": [None] * count}),
        "msgpack inputs": _node(**{"in": [["a", 0]] * count}),
        "msgpack slots": _node(saved=[{"slot": ""}] * count),
        "msgpack names": _node(names=names),
        "msgpack attributes": _node(attrs=dict.fromkeys(names, 0)),
        "msgpack lists": _node(attrs={"": [[]] * count}),
        "msgpack short lists": _node(attrs={"": [[1]] * count}),
        "msgpack floats": _node(attrs={"": [1.5] * count}),
        "msgpack cuts": _document(cuts=[{"kind": ""}] * count),
        "msgpack scopes": _document(scopes=[{"path": name} for name in names]),
        "msgpack unknown maps": _document(later=maps),
        "msgpack unknown nested maps": _document(later=[{"": {"": {}}}] * count),
        "msgpack wrong maps": _document(requires=maps),
        "msgpack wrong attributes": _node(attrs={"": maps}),
        "msgpack outputs beside an unknown key": _node(out=maps, later=0),
        "msgpack nodes with an unknown key": _document(nodes=[{"id": name, "later": 0} for name in names]),
        "msgpack no document": msgpack.packb({"x": maps}),
    }
