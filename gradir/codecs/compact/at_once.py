"""Read the tables of a compact document that is as gradir writes it, each with one call.

First the bytes are walked without making anything of them. So every length that is declared is there when a table is
made, and what is not in its place is left to the reader that can say what is wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgpack
import msgspec

from gradir.codecs.compact.layout import HEAD, KEYS, NODE_COLUMNS, SCOPE_COLUMNS, Kind
from gradir.codecs.compact.tables import Columns, Tables
from gradir.codecs.compact.unpacker import unpacker_of
from gradir.codecs.document import MAGIC, check_head
from gradir.codecs.values import check_finite, harmless
from gradir.codecs.versions import NEWEST, Version, needs_steps
from gradir.errors import FormatError
from gradir.ir import Cut, Producer

__all__ = ["read_at_once"]

_TYPES: Final[Mapping[str, Any]] = {
    "format": str,
    "version": str,
    "requires": tuple[str, ...],
    "producer": Producer,
    "cuts": tuple[Cut, ...],
    "strings": list[str],
    "scopes": dict[str, bytes],
    "kinds": list[Kind],
    "nodes": dict[str, bytes],
}

_NAMES: Final = tuple(msgpack.packb(key) for key in KEYS)
_LISTED: Final = ("cuts", "kinds")
_ALL_KNOWN: Final = ("strings", "scopes", "nodes")
"""Where a decoder sees every value. Elsewhere there may be keys that nobody knows, and what is under them is made once
as plain data, which shows texts that are none."""

_SMALL_MAP: Final = 0x80
_ARRAY: Final = struct.Struct(">BI")


def read_at_once(data: bytes) -> Tables | None:
    """The tables, or nothing when the document is anything but what gradir writes.

    Raises:
        FormatError: it is of a version that cannot be read.
    """
    try:
        rows = _walked(data)
        found = {} if rows is None else {key: _decoder(key).decode(row) for key, row in rows.items()}
    except (ValueError, RecursionError, msgpack.OutOfData, FormatError):
        # All else that msgpack and msgspec raise for broken data are ValueErrors.
        return None
    if rows is None or not found["strings"] or found["strings"][0]:
        return None
    if not _holds(rows["scopes"], found["scopes"], SCOPE_COLUMNS):
        return None
    if not _holds(rows["nodes"], found["nodes"], NODE_COLUMNS):
        return None
    return _tables(len(data), found)


def _tables(size: int, parts: dict[str, Any]) -> Tables | None:
    if needs_steps("msgpack", Version.parse(parts["version"]) or NEWEST):
        return None
    if parts["producer"].options or not harmless(parts["kinds"]):
        check_finite("the producer", parts["producer"].options)
        for number, kind in enumerate(parts["kinds"]):
            check_finite(f"kinds[{number}]", kind.attrs)
            check_finite(f"kinds[{number}]", kind.ext)
    version = check_head({key: parts.pop(key) for key in HEAD})
    scopes, nodes = Columns("scopes", parts.pop("scopes")), Columns("nodes", parts.pop("nodes"))
    return Tables.of(size, version, scopes=scopes, nodes=nodes, **parts)


def _walked(data: bytes) -> dict[str, memoryview | bytes] | None:
    """The bytes of each value, if the keys are all there and in order, and no kind is there twice."""
    view = memoryview(data)[len(MAGIC) :]
    unpacker = unpacker_of(data)
    if unpacker.read_map_header() != len(KEYS):
        return None
    rows: dict[str, memoryview | bytes] = {}
    for key, name in zip(KEYS, _NAMES, strict=True):
        start = unpacker.tell()
        if view[start : start + len(name)] != name:
            return None
        unpacker.skip()
        row = _listed(unpacker, view) if key in _LISTED else _walked_over(key, unpacker, view)
        if row is None:
            return None
        rows[key] = row
    return rows if unpacker.tell() == len(view) else None


def _walked_over(key: str, unpacker: msgpack.Unpacker, view: memoryview) -> memoryview:
    start = unpacker.tell()
    if key in _ALL_KNOWN:
        unpacker.skip()
    else:
        unpacker.unpack()
    return view[start : unpacker.tell()]


def _listed(unpacker: msgpack.Unpacker, view: memoryview) -> bytes | None:
    # One takes hundreds of bytes in memory, so one that comes again and again must not be kept each time.
    count = unpacker.read_array_header()
    seen: set[bytes] = set()
    start = end = unpacker.tell()
    for number in range(count):
        unpacker.unpack()
        seen.add(bytes(view[end : unpacker.tell()]))
        if len(seen) == number:
            return None
        end = unpacker.tell()
    return _ARRAY.pack(0xDD, count) + view[start:end]


def _holds(row: memoryview | bytes, columns: Mapping[str, bytes], names: tuple[str, ...]) -> bool:
    # A map of few keys says their number in its first byte, and so whether one is there twice.
    return row[0] == _SMALL_MAP | len(columns) and all(map(columns.__contains__, names))


@lru_cache(maxsize=len(KEYS))
def _decoder(key: str) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(_TYPES[key])
