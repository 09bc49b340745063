"""The reviewed form: canonical JSON, one node per line."""

from __future__ import annotations

from codecs import utf_8_decode
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from gradir.codecs.document import BOM, FORMAT, Document, check_head, graph_of, to_graph
from gradir.codecs.faults import broken, mismatched, placed
from gradir.codecs.values import check_graph
from gradir.codecs.versions import NEWEST, Version, lowest_for, needs_steps, upgrade
from gradir.gcpause import paused_gc
from gradir.ir import Graph, Node
from gradir.ir.nesting import TOO_DEEP, is_too_deep
from gradir.ir.unknown import converted, known, tolerant
from gradir.ir.validate import Gathered

if TYPE_CHECKING:
    from gradir.codecs.surveyor import Survey

__all__ = ["decode", "encode", "survey"]

T = TypeVar("T")

_CHUNK: Final = 512
"""So few records are checked and written at a time that the processor still has them, and their text, at hand."""

_NODES: Final = b'"nodes":[\n'
_END: Final = b"\n]}\n"
_SEPARATOR: Final = b",\n"
_PIECE: Final = 1 << 13
"""How many bytes are read at a time, so that what is made of them is still at hand when it is checked. So few seldom
have more brackets than may be nested."""

_BROKEN: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


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
        FormatError: the graph breaks a rule of the IR, or holds what no file can: a lone surrogate, an integer of more
            than 64 bits, an untagged nan or infinity, or a value of another type than its field's.
    """
    check_graph(graph)
    encoder = msgspec.json.Encoder(order="deterministic")
    parts = [f'{{"format":"{FORMAT}","version":"{lowest_for(graph)}","requires":[],\n"producer":'.encode()]
    parts.append(encoder.encode(graph.producer))
    if graph.rank is not None:
        parts += [b',\n"rank":', encoder.encode(graph.rank)]
    for name, records in (("scopes", graph.scopes.values()), ("cuts", graph.cuts)):
        parts += _listed(encoder, name, _chunks(records))
    if graph.collectives:
        parts += _listed(encoder, "collectives", _chunks(graph.collectives))
    parts += _listed(encoder, "nodes", _chunks(graph.nodes.values()))
    parts.append(b"}\n")
    return b"".join(parts)


def _chunks(records: Iterable[T]) -> Iterator[list[T]]:
    iterator = iter(records)
    while chunk := list(islice(iterator, _CHUNK)):
        yield chunk


def _listed(encoder: msgspec.json.Encoder, name: str, chunks: Iterable[list[Any]]) -> list[bytes]:
    """One list of the document. JSON strings hold no raw newline: each one ends a record."""
    lines = [encoder.encode_lines(chunk).replace(b"\n", _SEPARATOR) for chunk in chunks]
    start = b',\n"%b":[' % name.encode()
    if not lines:
        return [start, b"]"]
    lines[-1] = lines[-1].removesuffix(_SEPARATOR)
    return [start, b"\n", *lines, b"\n]"]


def decode(data: bytes) -> Graph:
    """The graph in a JSON document.

    Raises:
        FormatError: the text is not JSON, not GIR, of a version that cannot be read, or breaks a rule of the IR.
    """
    data = _without_mark(_text(data))
    with paused_gc():
        return _decode_by_lines(data) or _decode_whole(data)


def _decode_by_lines(data: bytes) -> Graph | None:
    """The graph in a document that has one node a line, as gradir writes it; nothing when there is anything wrong."""
    found = _Lines.of(data)
    if found is None or needs_steps("json", Version.parse(found.head.version) or NEWEST):
        return None
    gathered = Gathered()
    for nodes in found.nodes():
        if not gathered.add(nodes):
            return None
    if not found.complete or not gathered.whole():
        return None
    version = _version_of(found.head)
    return graph_of(gathered.nodes, found.head.beside(), version, unknown="")


def _decode_whole(data: bytes) -> Graph:
    if is_too_deep(data):
        raise broken(TOO_DEEP)
    surplus = None
    try:
        try:
            document = _decoder().decode(data)
        except msgspec.ValidationError as error:
            document = known(msgspec.json.decode(data, type=tolerant(Document)), Document)
            surplus = error
    except _BROKEN as error:
        return _decode_plain(data, error)
    version = _version_of(document)
    if needs_steps("json", version):
        return _decode_plain(data)
    return _graph(document, version, surplus)


def survey(data: bytes) -> Survey:
    """What is in a JSON document, read a piece at a time where it has one node a line, as gradir writes it.

    Raises:
        FormatError: see `decode`. What only the whole graph shows, such as an id that occurs twice, goes unnoticed.
    """
    data = _without_mark(_text(data))
    with paused_gc():
        return _survey_by_lines(data) or _survey_whole(data)


def _survey_by_lines(data: bytes) -> Survey | None:
    found = _Lines.of(data)
    if found is None:
        return None
    from gradir.codecs.surveyor import Surveyor

    surveyor = Surveyor()
    for nodes in found.nodes():
        surveyor.add(nodes)
    if not found.complete:
        return None
    return surveyor.survey(
        encoding="json",
        version=str(_version_of(found.head)),
        producer=found.head.producer,
        rank=found.head.rank,
        collectives=len(found.head.collectives),
        scopes=len(found.head.scopes),
        cuts=found.head.cuts,
    )


def _survey_whole(data: bytes) -> Survey:
    from gradir.codecs.surveyor import survey_graph

    graph = _decode_whole(data)
    return survey_graph(graph, "json", msgspec.json.decode(data, type=_Versioned).version)


def _version_of(document: Document) -> Version:
    return check_head({"format": document.format, "version": document.version, "requires": document.requires})


def _text(data: bytes) -> bytes:
    # A decoder does not look into keys and values that it does not know, and a damaged key is one of these.
    if data.isascii():
        return data
    view, at = memoryview(data), 0
    try:
        while at < len(data):
            at += utf_8_decode(view[at : at + _PIECE], "strict", at + _PIECE >= len(data))[1]
    except UnicodeDecodeError as error:
        from gradir.codecs.json_syntax import fault_of

        raise fault_of(data, error) from error
    return data


def _without_mark(data: bytes) -> bytes:
    # White space in place of the mark leaves every byte with its number.
    return b" " * len(BOM) + data[len(BOM) :] if data.startswith(BOM) else data


class _Lines:
    """A document with one node a line, read some lines at a time."""

    def __init__(self, head: Document, data: bytes, start: int) -> None:
        self.head = head
        self.complete = False
        """Whether every node was read; until then it may well be no document."""
        self._data = data
        self._start = start

    @classmethod
    def of(cls, data: bytes) -> _Lines | None:
        """The document, if all that surrounds its nodes is as it should be."""
        start = data.find(_NODES) + len(_NODES)
        if start < len(_NODES) or not data.endswith(_END):
            return None
        head = data[:start] + b"]}"
        if is_too_deep(head):
            return None
        try:
            # That this is a document shows that the list is that of its nodes.
            return cls(_decoder().decode(head), data, start)
        except _BROKEN:
            return None

    def nodes(self) -> Iterator[tuple[Node, ...]]:
        """The nodes, some at a time, up to where they are broken."""
        decoder = msgspec.json.Decoder(tuple[Node, ...])
        view = memoryview(self._data)
        start, stop = self._start, len(self._data) - len(_END)
        while start <= stop:
            end = self._data.find(_SEPARATOR, start + _PIECE, stop)
            end = stop if end < 0 else end
            piece = b"".join((b"[", view[start:end], b"]"))
            if is_too_deep(piece):
                return
            try:
                nodes = decoder.decode(piece)
            except _BROKEN:
                return
            if not nodes:
                return
            yield nodes
            start = end + len(_SEPARATOR)
        self.complete = True


def _decode_plain(data: bytes, error: Exception | None = None) -> Graph:
    """Decode a document that the newest records do not fit: an old one, or a broken one."""
    try:
        head = msgspec.json.decode(data)
    except msgspec.ValidationError as strange:
        # A number of any size is JSON, and one that does not fit is read by nobody; who knows the keys names its place.
        raise broken(*mismatched(error if isinstance(error, msgspec.ValidationError) else strange)) from error
    except _BROKEN as syntax:
        from gradir.codecs.json_syntax import fault_of

        raise fault_of(data, syntax) from error
    version = check_head(head)
    if error is not None and not needs_steps("json", version):
        raise broken(*mismatched(error)) from error
    try:
        document, surplus = converted(upgrade("json", head, version), Document)
    except msgspec.ValidationError as mismatch:
        problem, place = mismatched(mismatch)
        raise broken(f"after its upgrade from GIR {version}: {problem}", place) from mismatch
    return _graph(document, version, surplus)


def _graph(document: Document, version: Version, surplus: Exception | None) -> Graph:
    """The graph of a document; ``surplus`` is the error that it is to have what nobody knows."""
    unknown = "" if surplus is None else placed(*mismatched(surplus))
    return to_graph(document.nodes, document.beside(), version, unknown=unknown)


@lru_cache(maxsize=1)
def _decoder() -> msgspec.json.Decoder[Document]:
    return msgspec.json.Decoder(Document)
