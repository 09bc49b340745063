"""Choose the encoding and the compression."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from gradir.codecs.compression import compress, compression_of, opened, room
from gradir.codecs.document import encoding_of
from gradir.codecs.forms import recognize
from gradir.codecs.reading import read_graph, read_survey
from gradir.codecs.versions import NEWEST
from gradir.errors import FormatError
from gradir.ir import Graph
from gradir.progress import stage

if TYPE_CHECKING:
    from gradir.codecs.surveyor import Survey

__all__ = ["ENCODINGS", "decode", "encode", "encoding_of", "survey"]

ENCODINGS: Final = {"json": "gradir.codecs.json", "msgpack": "gradir.codecs.msgpack"}
"""The module with ``encode`` of each encoding."""


def encode(graph: Graph, encoding: str = "json", compression: str | None = None, *, lossy: bool = False) -> bytes:
    """The bytes of a document in the named encoding, compressed when a compression is named.

    Raises:
        FormatError: there is no such encoding or compression, the graph holds what it cannot spell, the compressed file
            would be refused as a bomb, or the graph was read from a newer version of the format or has keys that no
            version knows, which would be lost; with ``lossy`` they may.
        GradirError: the library of the compression is not installed.
        TypeError: ``graph`` is none.
    """
    if not isinstance(graph, Graph):
        raise TypeError(f"expected a gradir.Graph, got {type(graph).__name__}")
    if encoding not in ENCODINGS:
        raise FormatError(f"unknown format {encoding!r}: choose from {', '.join(ENCODINGS)}")
    if graph.read_from and not lossy:
        raise FormatError(
            f"the graph was read from GIR {graph.read_from}, newer than {NEWEST}: writing it would lose what this "
            "gradir does not know in it; upgrade gradir, or ask for a lossy copy"
        )
    if graph.unknown and not lossy:
        raise FormatError(
            f"the file that the graph was read from has what this gradir does not know, which would be lost: "
            f"{graph.unknown}; correct the file, or ask for a lossy copy"
        )
    with stage("writing the graph"):
        data: bytes = import_module(ENCODINGS[encoding]).encode(graph)
        if compression is None:
            return data
        packed = compress(data, compression)
    if len(data) > room(len(packed)):
        raise FormatError(
            f"{compression} makes {len(packed):,} bytes of {len(data):,}, which no reader takes for a graph",
            advice="write it without compression",
        )
    return packed


def decode(data: bytes) -> Graph:
    """The graph in a document of any encoding, compressed or not.

    Raises:
        FormatError: the bytes are not a GIR document, or one of a version that this release cannot read.
        GradirError: the library of the compression is not installed.
    """
    with stage("reading the graph"), opened(data) as document:
        return read_graph(*recognize(document))


def survey(data: bytes) -> Survey:
    """What is in a document: its head and its counts, without making a graph of it.

    Raises:
        FormatError: see `decode`. What only the whole graph shows, such as an id that occurs twice, goes unnoticed.
        GradirError: the library of the compression is not installed.
    """
    compression = compression_of(data)
    with opened(data) as document:
        found = read_survey(*recognize(document))
    return found if compression is None else replace(found, compression=compression)
