"""What only a strict reader minds: keys that occur twice, and bytes that are not the canonical ones."""

from __future__ import annotations

import json
from itertools import zip_longest
from typing import Any

from gradir.codecs.codec import decode, encode, encoding_of
from gradir.codecs.compression import decompress
from gradir.errors import FormatError
from gradir.ir import Graph

__all__ = ["check_canonical", "check_keys"]

_SHOWN = 60


def check_keys(data: bytes) -> None:
    """Refuse JSON in which an object has a key twice: readers differ in which of the two they take.

    Raises:
        FormatError: a key occurs twice.
    """
    data = decompress(data)
    if encoding_of(data) != "json":
        return
    try:
        json.loads(data.decode("utf-8-sig"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"broken JSON: {error}") from error


def _unique(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) == len(pairs):
        return
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise FormatError(f"the key {key!r} occurs twice in one object")
        seen.add(key)


def check_canonical(data: bytes) -> Graph:
    """The graph of a document whose bytes, decompressed, are those that gradir writes for it.

    Raises:
        FormatError: they are not; the message says where.
    """
    data = decompress(data)
    graph = decode(data)
    if graph.read_from:
        raise FormatError(f"GIR {graph.read_from} is newer than this gradir, which cannot tell its canonical form")
    expected = encode(graph, encoding_of(data))
    if expected == data:
        return graph
    if encoding_of(data) == "msgpack":
        at = next((at for at, pair in enumerate(zip_longest(data, expected)) if pair[0] != pair[1]), 0)
        raise FormatError(f"valid, but not in canonical form at byte {at:,}; gradir convert makes it so")
    lines = zip_longest(data.split(b"\n"), expected.split(b"\n"), fillvalue=b"")
    number, line = next((number, here) for number, (here, there) in enumerate(lines, 1) if here != there)
    shown = line[:_SHOWN].decode(errors="replace") + ("…" if len(line) > _SHOWN else "")
    raise FormatError(f"valid, but not in canonical form at line {number:,}, {shown!r}; gradir convert makes it so")
