"""The document in MessagePack: the very keys and values of the JSON form, in its order."""

from __future__ import annotations

from typing import Final

import msgspec

from gradir.codecs.document import sections_of
from gradir.ir import Graph

__all__ = ["encode"]

_SMALL_MAP: Final = 0x80
"""The first byte of a map of fewer than 16 keys, without their number."""

_MAP: Final = b"\xde"
"""The first byte of a map whose number of keys follows in two bytes."""


def encode(graph: Graph) -> bytes:
    """Return the canonical MessagePack of a graph: keys in order, defaults omitted, each value in its shortest form.

    Raises:
        FormatError: the graph breaks a rule of the IR, or has a value that no file can spell.

    >>> import msgpack
    >>> from gradir.ir import Node
    >>> msgpack.unpackb(encode(Graph.of([Node("x", role="leaf")])))["nodes"]
    [{'id': 'x', 'role': 'leaf'}]
    """
    sections = sections_of(graph)
    encoder = msgspec.msgpack.Encoder(order="deterministic")
    parts = [encoder.encode(part) for section in sections.items() for part in section]
    count = len(sections)
    start = bytes([_SMALL_MAP | count]) if count < 16 else _MAP + count.to_bytes(2, "big")
    return b"".join([start, *parts])
