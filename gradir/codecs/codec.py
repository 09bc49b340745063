"""Write and read documents in any encoding and compression, also old and broken ones, or with unknown keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from gradir.codecs.compression import compress, compression_of, open_decompressed, size_limit
from gradir.codecs.document import (
    JSON,
    NEWEST,
    UNREADABLE,
    Document,
    Encoding,
    Version,
    check_head,
    needs_steps,
    read_record,
    recognize,
    sections_of,
    to_graph,
    upgrade,
)
from gradir.codecs.faults import invalid_error, split_message
from gradir.errors import FormatError
from gradir.gcpause import pause_gc
from gradir.ir import Graph
from gradir.ir.json_documents import convert_tolerantly, make_twin
from gradir.progress import stage

if TYPE_CHECKING:
    from gradir.codecs.surveyor import Survey

# Encoding few records at a time keeps their text in the processor's cache.
_CHUNK: Final = 512
# The keys of the first line of JSON.
_HEAD: Final = ("format", "version", "requires")
_SEPARATOR: Final = b",\n"


def to_json(graph: Graph) -> bytes:
    """Return the canonical JSON of a graph: fixed key order, defaults omitted, one record a line, a newline at the end.

    >>> from gradir.ir import Node
    >>> print(to_json(Graph.of([Node("x", role="leaf")])).decode(), end="")
    {"format":"gir","version":"1.0","requires":[],
    "producer":{},
    "scopes":[],
    "cuts":[],
    "nodes":[
    {"id":"x","role":"leaf"}
    ]}
    """
    sections = sections_of(graph)
    encoder = msgspec.json.Encoder(order="deterministic")
    head = [encoder.encode(key) + b":" + encoder.encode(sections.pop(key)) for key in _HEAD]
    lines = [b"{", b",".join(head)]
    for key, value in sections.items():
        lines += [_SEPARATOR, encoder.encode(key), b":"]
        if value and isinstance(value, (list, tuple)):
            chunks = [value[start : start + _CHUNK] for start in range(0, len(value), _CHUNK)]
            # JSON strings contain no raw newline, so each one ends a record.
            records = [encoder.encode_lines(chunk).replace(b"\n", _SEPARATOR) for chunk in chunks]
            lines += [b"[\n", *records[:-1], records[-1].removesuffix(_SEPARATOR), b"\n]"]
        else:
            lines.append(encoder.encode(value))
    return b"".join([*lines, b"}\n"])


def to_msgpack(graph: Graph) -> bytes:
    """Return canonical MessagePack: keys in order, defaults omitted, each value in its shortest form."""
    encoder = msgspec.msgpack.Encoder(order="deterministic")
    # A deterministic encoder would sort the keys of the document too.
    return msgspec.msgpack.encode({key: msgspec.Raw(encoder.encode(part)) for key, part in sections_of(graph).items()})


ENCODINGS: Final[Mapping[str, Callable[[Graph], bytes]]] = {"json": to_json, "msgpack": to_msgpack}


def encode(graph: Graph, encoding: str = "json", compression: str | None = None, *, lossy: bool = False) -> bytes:
    """Return the bytes of a document in an encoding and a compression.

    Raises:
        FormatError: the encoding or compression is unknown, the graph breaks a rule of the IR or has a value that no
            file can contain, or a reader would refuse the compressed file as a bomb. Without ``lossy``, also if the
            graph was read from a newer version of the format or with unknown keys, which would be lost.
        GradirError: the library of the compression is not installed.
        TypeError: ``graph`` is not a graph.
    """
    if not isinstance(graph, Graph):
        raise TypeError(f"expected a gradir.Graph, got {type(graph).__name__}")
    if encoding not in ENCODINGS:
        raise FormatError(f"unknown format {encoding!r}: choose from {', '.join(ENCODINGS)}")
    if graph.read_from and not lossy:
        raise FormatError(
            f"the graph was read from GIR {graph.read_from}, newer than {NEWEST}: writing it would lose fields that "
            f"this gradir does not know; upgrade gradir, or ask for a lossy copy"
        )
    if graph.unknown and not lossy:
        raise FormatError(
            f"the graph was read from a file with a field that this gradir does not know, which would be lost: "
            f"{graph.unknown}; correct the file, or ask for a lossy copy"
        )
    with stage("writing the graph"):
        data = ENCODINGS[encoding](graph)
        if compression is None:
            return data
        packed = compress(data, compression)
    if len(data) > size_limit(len(packed)):
        raise FormatError(
            f"{compression} makes {len(packed):,} bytes of {len(data):,}, which readers refuse as a bomb",
            advice="write it without compression",
        )
    return packed


def decode(data: bytes) -> Graph:
    """Return the graph in a document of any encoding, compressed or not.

    Raises:
        FormatError: the bytes are not a GIR document, or one of a version that this release cannot read.
        GradirError: the library of the compression is not installed.
    """
    # Records form no cycles, so a garbage collection would find nothing.
    with stage("reading the graph"), open_decompressed(data) as inner, pause_gc():
        document, version, surplus = _read(*recognize(inner))
        problem, place = ("", "") if surplus is None else split_message(surplus)
        return to_graph(document, version, unknown=f"{place or '$'}: {problem}" if problem else "")


def survey(data: bytes) -> Survey:
    """Return the head and the counts of a document, without making a graph."""
    from gradir.codecs.surveyor import survey_of

    with open_decompressed(data) as inner, pause_gc():
        encoding, content = recognize(inner)
        document, version, _ = _read(encoding, content)
        found = survey_of(encoding.name, version, document)
    return replace(found, compression=compression_of(data))


class _Versioned(msgspec.Struct):
    version: str


def version_in(document: bytes) -> Version | None:
    """Return the version in the head of a document."""
    return Version.parse(read_record(*recognize(document), _Versioned).version)


def check_known(data: bytes) -> None:
    """Raise FormatError for the first key or entry of a document of a known version that reading ignores."""
    with open_decompressed(data) as document:
        version = version_in(document) or NEWEST
        if version > NEWEST or needs_steps(version):
            return
        try:
            read_record(*recognize(document), make_twin(Document, is_tolerant=False))
        except FormatError as error:
            raise FormatError(error.problem, place=error.place or "$", advice="correct it, or leave it out") from error


def _read(encoding: Encoding, data: bytes) -> tuple[Document, Version, Exception | None]:
    """Return the records of a document, its version, and the error about its first unknown key, if any."""
    surplus = None
    try:
        # The depth of the records is limited, and msgspec refuses a length beyond the data.
        document: Document = _decoder(encoding).decode(data)
    except UNREADABLE as error:
        encoding.syntax.guard(data)
        if not isinstance(error, msgspec.ValidationError):
            return _read_old(encoding, data, error)
        encoding.syntax.inspect(data)
        surplus = error
        try:
            # Bytes take less memory than the tolerant twins beside the records.
            known = msgspec.msgpack.encode(encoding.decode(data, type=make_twin(Document, is_tolerant=True)))
            document = msgspec.msgpack.decode(known, type=Document)
        except UNREADABLE as mismatch:
            return _read_old(encoding, data, mismatch)
    if needs_steps(Version.parse(document.version) or _version_of(document)):
        encoding.syntax.guard(data)
        return _read_old(encoding, data)
    return document, _version_of(document), surplus


def _read_old(
    encoding: Encoding, data: bytes, error: Exception | None = None
) -> tuple[Document, Version, Exception | None]:
    """Read a document that does not fit the newest records: an old one, or a broken one."""
    try:
        plain = encoding.decode(data)
    except msgspec.ValidationError as untyped:
        # Without types, msgspec refuses an integer beyond 64 bits. The error of the typed reader names its place.
        raise invalid_error(*split_message(error if isinstance(error, msgspec.ValidationError) else untyped)) from error
    except UNREADABLE as syntax:
        raise encoding.syntax.fault_of(data, syntax) from error
    version = check_head(plain)
    if error is not None and not needs_steps(version):
        raise invalid_error(*split_message(error)) from error
    try:
        document, surplus = convert_tolerantly(upgrade(plain, version), Document)
    except msgspec.ValidationError as mismatch:
        problem, place = split_message(mismatch)
        raise invalid_error(f"after its upgrade from GIR {version}: {problem}", place) from mismatch
    return document, version, surplus


@cache
def _decoder(encoding: Encoding) -> Any:
    # Making a decoder of the records takes longer than reading a small document.
    library = msgspec.json if encoding == JSON else msgspec.msgpack
    return library.Decoder(Document)


def _version_of(document: Document) -> Version:
    return check_head({"format": document.format, "version": document.version, "requires": document.requires})
