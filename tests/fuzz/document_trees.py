"""Documents as trees in which anything can stand: keys that are there twice, and values that no library writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgpack

from gradir.codecs.document import BOM

__all__ = ["Members", "Odd", "json_bytes", "msgpack_bytes", "parse_json", "parse_msgpack"]


class Members(list[tuple[Any, Any]]):
    """The keys of an object with their values, in order. The bytes are kept while nothing changes."""

    __slots__ = ("spelled",)

    def __init__(self, pairs: Sequence[tuple[Any, Any]] = ()) -> None:
        super().__init__(pairs)
        self.spelled: bytes | None = None


class Odd(NamedTuple):
    """A value by its bytes, in JSON and in MessagePack."""

    json: bytes
    packed: bytes


_LISTS = ("scopes", "cuts", "nodes")
_FIRST_LINE = 3


def parse_json(data: bytes) -> Any:
    """The tree of a JSON document; floats stay as they are spelled.

    Raises:
        ValueError: it is none.
    """

    def spell(text: str) -> Odd:
        return Odd(text.encode(), msgpack.packb(float(text)))

    text = data.removeprefix(BOM).decode()
    tree = json.loads(text, object_pairs_hook=Members, parse_float=spell, parse_constant=spell)
    _keep(tree, _json_bytes)
    return tree


def parse_msgpack(data: bytes) -> Any:
    """The tree of a MessagePack document.

    Raises:
        ValueError: it is none.
    """
    tree = msgpack.unpackb(data, object_pairs_hook=Members, strict_map_key=False)
    _keep(tree, _pack)
    return tree


def _keep(tree: Any, spell: Callable[[Any], bytes]) -> None:
    """Note the bytes of every object below the first, as most of them stay."""
    walk = [tree]
    for value in walk:
        if isinstance(value, list):
            walk += [held for _, held in value] if isinstance(value, Members) else value
    for value in reversed(walk[1:]):
        if isinstance(value, Members):
            value.spelled = spell(value)


def json_bytes(tree: Any, *, by_lines: bool = True) -> bytes:
    """A JSON document; by lines, as gradir writes one."""
    if not by_lines or not isinstance(tree, Members):
        return _json_bytes(tree)
    parts = []
    for number, (key, value) in enumerate(tree):
        spelled = _json_bytes(value)
        if key in _LISTS and type(value) is list and value:
            spelled = b"[\n" + b",\n".join(map(_json_bytes, value)) + b"\n]"
        parts += [b"," * bool(number), b"\n" * (number >= _FIRST_LINE), _json_bytes(key), b":", spelled]
    return b"{" + b"".join(parts) + b"}\n"


def _json_bytes(value: Any) -> bytes:
    if isinstance(value, Members):
        if value.spelled is not None:
            return value.spelled
        return b"{" + b",".join([_json_bytes(key) + b":" + _json_bytes(held) for key, held in value]) + b"}"
    if type(value) is list:
        return b"[" + b",".join(map(_json_bytes, value)) + b"]"
    if isinstance(value, Odd):
        return value.json
    if isinstance(value, bytes):
        value = value.hex()
    return json.dumps(value, ensure_ascii=False).encode(errors="surrogatepass")


def msgpack_bytes(tree: Any) -> bytes:
    """A MessagePack document."""
    return _pack(tree)


def _pack(value: Any) -> bytes:
    if isinstance(value, Members):
        if value.spelled is not None:
            return value.spelled
        return _header(value, 0x80, 0xDE) + b"".join([_pack(key) + _pack(held) for key, held in value])
    if type(value) is list:
        return _header(value, 0x90, 0xDC) + b"".join(map(_pack, value))
    if isinstance(value, Odd):
        return value.packed
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        # There is no such integer in MessagePack.
        value %= 2**64
    packed: bytes = msgpack.packb(value)
    return packed


def _header(value: Sequence[Any], short: int, code: int) -> bytes:
    size = len(value)
    if size < 16:
        return bytes([short | size])
    return bytes([code]) + size.to_bytes(2, "big") if size < 1 << 16 else bytes([code + 1]) + size.to_bytes(4, "big")
