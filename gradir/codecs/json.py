"""The reviewed form: canonical JSON, one node per line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from gradir.codecs.document import BOM, FORMAT, Document, check_head, to_graph
from gradir.codecs.jsonfault import fault_of, lower
from gradir.codecs.values import check_graph
from gradir.codecs.versions import Version, lowest_for, needs_steps, upgrade
from gradir.errors import FormatError
from gradir.gcpause import paused_gc
from gradir.ir import Graph, Node

if TYPE_CHECKING:
    from gradir.codecs.surveyor import Survey

__all__ = ["decode", "encode", "survey"]

_CHUNK: Final = 1024


_NODES: Final = b'"nodes":[\n'
_END: Final = b"\n]}\n"
_PIECE: Final = 1 << 20


class _Versioned(msgspec.Struct):
    version: str


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
    parts = [f'{{"format":"{FORMAT}","version":"{lowest_for(graph)}","requires":[],\n"producer":'.encode()]
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
    data = data.removeprefix(BOM)
    with paused_gc():
        try:
            document = _decoder().decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return _decode_plain(data, error)
        version = check_head({"format": document.format, "version": document.version, "requires": document.requires})
        if needs_steps("json", version):
            return _decode_plain(data)
        return _graph(document, version)


def survey(data: bytes) -> Survey:
    """What is in a JSON document, read a piece at a time where it has one node a line, as gradir writes it.

    Raises:
        FormatError: see `decode`. What only the whole graph shows, such as an id that occurs twice, goes unnoticed.
    """
    start = data.find(_NODES) + len(_NODES)
    if start < len(_NODES) or not data.endswith(_END):
        return _survey_whole(data)
    try:
        document = _decoder().decode(data[:start] + b"]}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _survey_whole(data)
    version = check_head({"format": document.format, "version": document.version, "requires": document.requires})
    from gradir.codecs.surveyor import Surveyor

    surveyor = Surveyor()
    decoder = msgspec.json.Decoder(tuple[Node, ...])
    try:
        with paused_gc():
            for piece in _pieces(data, start, len(data) - len(_END)):
                surveyor.add(decoder.decode(b"[%b]" % piece))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _survey_whole(data)
    return surveyor.survey(
        encoding="json",
        version=str(version),
        producer=document.producer,
        scopes=len(document.scopes),
        cuts=document.cuts,
    )


def _survey_whole(data: bytes) -> Survey:
    from gradir.codecs.surveyor import survey_graph

    graph = decode(data)
    version = msgspec.json.decode(data.removeprefix(BOM), type=_Versioned).version
    return survey_graph(graph, "json", version)


def _pieces(data: bytes, start: int, stop: int) -> Iterator[bytes]:
    """The lines between two places, some at a time, without the comma after the last of them."""
    while start < stop:
        end = data.find(b",\n", start + _PIECE, stop)
        end = stop if end < 0 else end
        yield data[start:end]
        start = end + 2


def _decode_plain(data: bytes, error: Exception | None = None) -> Graph:
    """Decode a document that the newest records do not fit: an old one, or a broken one."""
    try:
        head = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as syntax:
        raise FormatError(fault_of(data, syntax)) from error
    version = check_head(head)
    if error is not None and not needs_steps("json", version):
        raise FormatError(lower(error)) from error
    try:
        return _graph(msgspec.convert(upgrade("json", head, version), Document), version)
    except msgspec.ValidationError as mismatch:
        raise FormatError(f"after its upgrade from GIR {version}: {lower(mismatch)}") from mismatch


def _graph(document: Document, version: Version) -> Graph:
    return to_graph(document.nodes, document.scopes, document.cuts, document.producer, version)


@lru_cache(maxsize=1)
def _decoder() -> msgspec.json.Decoder[Document]:
    return msgspec.json.Decoder(Document)
