"""The reviewed form: canonical JSON, one node per line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from gradir.codecs.document import sections_of
from gradir.ir import Graph

__all__ = ["encode"]

_CHUNK: Final = 512
"""So few records are written at a time that the processor still has their text at hand."""

_HEAD: Final = ("format", "version", "requires")
"""The keys of the first line."""

_SEPARATOR: Final = b",\n"


def encode(graph: Graph) -> bytes:
    """The canonical JSON of a graph: fixed key order, defaults omitted, one record per line, a newline at the end.

    >>> from gradir.ir import Node
    >>> print(encode(Graph.of([Node("x", role="leaf")])).decode(), end="")
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
