"""The reviewed form: canonical JSON, one node per line."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import msgspec

from gradir.codecs.document import FORMAT, VERSION, Document, check_head, to_graph
from gradir.errors import FormatError
from gradir.gcpause import paused_gc
from gradir.ir import Graph

__all__ = ["decode", "encode", "looks_like"]

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
    """
    encoder = msgspec.json.Encoder(order="deterministic")
    version = ".".join(map(str, VERSION))

    def lines(records: Iterable[object]) -> bytes:
        # JSON strings hold no raw newline, so every newline of encode_lines ends a record.
        body: bytes = encoder.encode_lines(records)[:-1].replace(b"\n", b",\n")
        return b"[\n" + body + b"\n]" if body else b"[]"

    try:
        return b"".join(
            (
                f'{{"format":"{FORMAT}","version":"{version}","requires":[],\n"producer":'.encode(),
                encoder.encode(graph.producer),
                b',\n"scopes":',
                lines(graph.scopes.values()),
                b',\n"cuts":',
                lines(graph.cuts),
                b',\n"nodes":',
                lines(graph.nodes.values()),
                b"}\n",
            )
        )
    except UnicodeEncodeError as error:
        raise FormatError("a string of the graph holds a lone surrogate, which a file cannot") from error


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
        return to_graph(document)


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
