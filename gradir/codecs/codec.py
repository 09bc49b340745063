"""Choose the encoding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from gradir.codecs import compact, json
from gradir.errors import FormatError
from gradir.ir import Graph

__all__ = ["ENCODERS", "decode", "encode", "encoding_of"]

ENCODERS: Final[Mapping[str, Callable[[Graph], bytes]]] = {"json": json.encode, "msgpack": compact.encode}
_DECODERS: Final[Mapping[str, Callable[[bytes], Graph]]] = {"json": json.decode, "msgpack": compact.decode}


def encode(graph: Graph, encoding: str = "json") -> bytes:
    """The bytes of a document in the named encoding.

    Raises:
        FormatError: there is no such encoding, or the graph holds what it cannot spell.
    """
    if encoding not in ENCODERS:
        raise FormatError(f"unknown format {encoding!r}: choose from {', '.join(ENCODERS)}")
    return ENCODERS[encoding](graph)


def decode(data: bytes) -> Graph:
    """The graph in a document of any encoding.

    Raises:
        FormatError: the bytes are not a GIR document, or one of a version that this release cannot read.
    """
    return _DECODERS[encoding_of(data)](data)


def encoding_of(data: bytes) -> str:
    """The name of the encoding of a document, from its first bytes.

    Raises:
        FormatError: the bytes are not a GIR document.
    """
    if not data:
        raise FormatError("the file is empty; a GIR document starts with its head")
    if compact.looks_like(data):
        return "msgpack"
    if json.looks_like(data):
        return "json"
    raise FormatError("not a GIR document: it starts with neither '{' nor a known magic number")
