"""Write a graph in either encoding, in canonical form."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from gradir.codecs.document import sections_of
from gradir.ir import Graph

__all__ = ["ENCODINGS", "to_json", "to_msgpack"]

_CHUNK: Final = 512
"""So few records are written at a time that the processor still has their text at hand."""

_HEAD: Final = ("format", "version", "requires")
"""The keys of the first line of JSON."""

_SEPARATOR: Final = b",\n"

_SMALL_MAP: Final = 0x80
"""The first byte of a map in MessagePack of fewer than 16 keys, without their number."""

_MAP: Final = b"\xde"
"""The first byte of a map whose number of keys follows in two bytes."""


def to_json(graph: Graph) -> bytes:
    """The canonical JSON of a graph: fixed key order, defaults omitted, one record per line, a newline at the end.

    >>> from gradir.ir import Node
    >>> print(to_json(Graph.of([Node("x", role="leaf")])).decode(), end="")
    {"format":"gir","version":"1.0","requires":[],
    "producer":{},
    "scopes":[],
    "cuts":[],
    "nodes":[
    {"id":"x","role":"leaf"}
    ]}

    Raises:
        FormatError: the graph breaks a rule of the IR, or holds what no file can: a lone surrogate, an integer of more
            than 64 bits, an untagged nan or infinity, or a value of another type than its field's.
    """
    sections = sections_of(graph)
    encoder = msgspec.json.Encoder(order="deterministic")
    head = [encoder.encode(key) + b":" + encoder.encode(sections.pop(key)) for key in _HEAD]
    lines = [b"{", b",".join(head)]
    for key, value in sections.items():
        spelled = _listed(encoder, value) if isinstance(value, (list, tuple)) else [encoder.encode(value)]
        lines += [_SEPARATOR, encoder.encode(key), b":", *spelled]
    return b"".join([*lines, b"}\n"])


def _listed(encoder: msgspec.json.Encoder, records: Sequence[Any]) -> list[bytes]:
    """One list of the document. JSON strings hold no raw newline: each one ends a record."""
    if not records:
        return [b"[]"]
    chunks = [records[start : start + _CHUNK] for start in range(0, len(records), _CHUNK)]
    lines = [encoder.encode_lines(chunk).replace(b"\n", _SEPARATOR) for chunk in chunks]
    return [b"[\n", *lines[:-1], lines[-1].removesuffix(_SEPARATOR), b"\n]"]


def to_msgpack(graph: Graph) -> bytes:
    """Return the canonical MessagePack of a graph: keys in order, defaults omitted, each value in its shortest form.

    Raises:
        FormatError: the graph breaks a rule of the IR, or has a value that no file can spell.

    >>> import msgpack
    >>> from gradir.ir import Node
    >>> msgpack.unpackb(to_msgpack(Graph.of([Node("x", role="leaf")])))["nodes"]
    [{'id': 'x', 'role': 'leaf'}]
    """
    sections = sections_of(graph)
    encoder = msgspec.msgpack.Encoder(order="deterministic")
    parts = [encoder.encode(part) for section in sections.items() for part in section]
    count = len(sections)
    start = bytes([_SMALL_MAP | count]) if count < 16 else _MAP + count.to_bytes(2, "big")
    return b"".join([start, *parts])


ENCODINGS: Final[Mapping[str, Callable[[Graph], bytes]]] = {"json": to_json, "msgpack": to_msgpack}
"""The encodings by name."""
