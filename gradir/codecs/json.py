"""The reviewed form: canonical JSON, one node per line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Final

import msgspec

from gradir.codecs.document import FORMAT, VERSION, Document, check_head, to_graph
from gradir.codecs.values import check_graph
from gradir.errors import FormatError
from gradir.gcpause import paused_gc
from gradir.ir import Graph

__all__ = ["decode", "encode", "looks_like"]

_CHUNK: Final = 1024
_WHITESPACE = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"


def looks_like(data: bytes) -> bool:
    """Whether the bytes start as a JSON object does."""
    return data[:64].removeprefix(_BOM).lstrip(_WHITESPACE).startswith(b"{")


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
        FormatError: the graph holds a lone surrogate, an integer of more than 64 bits or an untagged nan or infinity.
    """
    check_graph(graph)
    encoder = msgspec.json.Encoder(order="deterministic")
    version = ".".join(map(str, VERSION))
    parts = [f'{{"format":"{FORMAT}","version":"{version}","requires":[],\n"producer":'.encode()]
    try:
        parts.append(encoder.encode(graph.producer))
        for name, records in (("scopes", graph.scopes.values()), ("cuts", graph.cuts), ("nodes", graph.nodes.values())):
            parts.append(f',\n"{name}":['.encode())
            parts += _lines(encoder, records)
            parts.append(b"]")
    except UnicodeEncodeError as error:
        raise FormatError("a string of the graph holds a lone surrogate, which a file cannot") from error
    parts.append(b"}\n")
    return b"".join(parts)


def _lines(encoder: msgspec.json.Encoder, records: Iterable[object]) -> Iterator[bytes]:
    # In chunks, so that few large pieces are copied. JSON strings hold no raw newline: each one ends a record.
    iterator, separator = iter(records), b"\n"
    while chunk := list(islice(iterator, _CHUNK)):
        yield separator + encoder.encode_lines(chunk)[:-1].replace(b"\n", b",\n")
        separator = b",\n"
    if separator != b"\n":
        yield b"\n"


def decode(data: bytes) -> Graph:
    """The graph in a JSON document.

    Raises:
        FormatError: the text is not JSON, not GIR, of a version that cannot be read, or breaks a rule of the IR.
    """
    data = data.removeprefix(_BOM)
    with paused_gc():
        try:
            document = _decoder().decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            _explain(data, error)
        check_head({"format": document.format, "version": document.version, "requires": document.requires})
        return to_graph(document.nodes, document.scopes, document.cuts, document.producer)


@lru_cache(maxsize=1)
def _decoder() -> msgspec.json.Decoder[Document]:
    return msgspec.json.Decoder(Document)


def _explain(data: bytes, error: Exception) -> None:
    try:
        head = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as syntax:
        raise FormatError(f"broken JSON: {_lower(syntax)}") from error
    check_head(head)
    raise FormatError(_lower(error)) from error


def _lower(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]
