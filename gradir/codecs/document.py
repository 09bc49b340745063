"""How a document starts, its head, and what its version allows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from gradir.codecs.faults import broken, byte, conflict, damaged, foreign, too_new
from gradir.codecs.versions import NEWEST, RELEASED, Version
from gradir.errors import GraphError, warn
from gradir.ir import Collective, Cut, Graph, Node, Producer, Rank, Scope
from gradir.ir.excerpt import excerpt, shortened
from gradir.ir.validate import check, vouch

__all__ = [
    "BOM",
    "FEATURES",
    "FORMAT",
    "MAGIC",
    "WHITESPACE",
    "Beside",
    "Document",
    "check_head",
    "encoding_of",
    "graph_of",
    "to_graph",
]

FORMAT: Final = "gir"

MAGIC: Final = b"\x89GIR\r\n\x1a\n"
"""What a compact document starts with. The first byte is in no UTF-8 text, and the line ends show a file that was
transferred as text (as in PNG's)."""

BOM: Final = b"\xef\xbb\xbf"
WHITESPACE: Final = b" \t\r\n"
"""What may stand before a JSON document."""

_SIGN: Final = 4
"""How many bytes of the magic number survive a transfer as text."""

_JSON: Final = re.compile(rb"(?:%b)?[%b]*\{" % (BOM, WHITESPACE))

FEATURES: Final[frozenset[str]] = frozenset()
"""The names that ``requires`` may hold for this release to read the document."""


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole document in the order of its keys."""

    format: str
    version: str
    nodes: tuple[Node, ...]
    requires: tuple[str, ...] = ()
    producer: Producer = Producer()
    scopes: tuple[Scope, ...] = ()
    cuts: tuple[Cut, ...] = ()
    rank: Rank | None = None
    collectives: tuple[Collective, ...] = ()

    def beside(self) -> Beside:
        """What it has beside the nodes."""
        return Beside(self.scopes, self.cuts, self.producer, self.rank, self.collectives)


class Beside(NamedTuple):
    """What a document has beside its nodes."""

    scopes: Sequence[Scope]
    cuts: Sequence[Cut]
    producer: Producer
    rank: Rank | None = None
    collectives: Sequence[Collective] = ()

    def graph(self, nodes: Iterable[Node], version: Version, unknown: str) -> Graph:
        """The graph of these nodes.

        Raises:
            GraphError: two nodes share an id, or two scopes a path.
        """
        # That a newer document has more than is known goes without saying.
        read_from, unknown = (str(version), "") if version > NEWEST else ("", unknown)
        return Graph.of(
            nodes,
            self.scopes,
            self.cuts,
            self.producer,
            read_from=read_from,
            unknown=unknown,
            rank=self.rank,
            collectives=self.collectives,
        )


def encoding_of(data: bytes) -> str:
    """The name of the encoding of a document that is not compressed, from its first bytes.

    Raises:
        FormatError: the bytes are not a GIR document.
    """
    if not data:
        raise damaged("the file is empty")
    if data.startswith(MAGIC):
        return "msgpack"
    if _JSON.match(data):
        return "json"
    if data.startswith(MAGIC[:_SIGN]):
        raise damaged("its first bytes were changed, as by a transfer as text", byte(_SIGN))
    raise conflict(data) or foreign("not a GIR document: it starts with neither '{' nor a known magic number")


def check_head(head: object) -> Version:
    """The version of a document, given as plain data; refuses one that this release must not read.

    Raises:
        FormatError: it is not GIR.
        NewerFormatError: it is of a newer major version, or requires a feature that this release lacks.
    """
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise foreign(f'not a GIR document: its head has no "format": "{FORMAT}"')
    if "version" not in head:
        raise broken('no "version"', "$")
    version = Version.parse(head["version"])
    if version is None:
        problem = f'the version is {excerpt(head["version"])}; expected MAJOR.MINOR such as "1.0"'
        raise broken(problem, "$.version")
    if version.major > NEWEST.major:
        raise too_new(f"GIR version {version} is newer than {NEWEST}, the newest this gradir reads", "$.version")
    if version < NEWEST and version not in RELEASED:
        raise broken(f"there is no GIR version {version}; there are {', '.join(map(str, RELEASED))}", "$.version")
    requires = head.get("requires", ())
    if not isinstance(requires, (list, tuple)) or not all(isinstance(name, str) for name in requires):
        raise broken("not a list of names", "$.requires")
    missing = [name for name in requires if name not in FEATURES]
    if missing:
        names = shortened(", ".join(map(excerpt, missing)))
        raise too_new(f"the document requires {names}, unknown to this gradir", "$.requires")
    if version > NEWEST:
        warn(f"GIR version {version} is newer than {NEWEST}; what this gradir does not know in it is ignored")
    return version


def to_graph(nodes: Sequence[Node], beside: Beside, version: Version, *, unknown: str) -> Graph:
    """The graph that a decoded document describes.

    Raises:
        FormatError: the nodes break a rule of the IR.
    """
    try:
        graph = beside.graph(nodes, version, unknown)
        check(graph)
    except GraphError as error:
        raise broken(shortened(str(error))) from error
    vouch(graph)
    return graph


def graph_of(nodes: Mapping[str, Node], beside: Beside, version: Version, *, unknown: str) -> Graph:
    """The graph of nodes that were checked as they were read.

    Raises:
        FormatError: two scopes share a path.
    """
    try:
        graph = beside.graph((), version, unknown)
    except GraphError as error:
        raise broken(shortened(str(error))) from error
    graph = replace(graph, nodes=nodes)
    vouch(graph)
    return graph
