"""Choose the encoding."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from gradir.codecs import json
from gradir.errors import FormatError
from gradir.ir import Graph

__all__ = ["ENCODERS", "decode", "encode"]

ENCODERS: Final[Mapping[str, Callable[[Graph], bytes]]] = {"json": json.encode}


def encode(graph: Graph, encoding: str = "json") -> bytes:
    """The bytes of a document in the named encoding.

    Raises:
        FormatError: there is no such encoding.
    """
    if encoding not in ENCODERS:
        raise FormatError(f"unknown format {encoding!r}: choose from {', '.join(ENCODERS)}")
    return ENCODERS[encoding](graph)


def decode(data: bytes) -> Graph:
    """The graph in a document of any encoding.

    Raises:
        FormatError: the bytes are not a GIR document, or one of a version that this release cannot read.
    """
    if not data:
        raise FormatError("the file is empty; a GIR document starts with its head")
    if not json.looks_like(data):
        raise FormatError("not a GIR document: it starts with neither '{' nor a known magic number")
    return json.decode(data)
