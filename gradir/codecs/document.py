"""The encodings, the head, the layout and the versions of a document.

A minor version adds an optional field or a new term of an open vocabulary. So documents of an older minor version are
valid in a newer one. Any other change needs a major version, and a step that rewrites documents of the version before.
Steps work on plain data, since gradir has only the newest records.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from itertools import chain, pairwise
from typing import Any, Final, NamedTuple, TypeVar, cast

import msgspec
from msgspec.structs import replace

from gradir.codecs.faults import conflict, damage, foreign_error, invalid_error, newer_error, split_message
from gradir.errors import FormatError, GraphError, warn
from gradir.ir import Graph, Node, Scope
from gradir.ir.fields import fields_of, is_list, records_in
from gradir.ir.head import Head
from gradir.ir.model import Record
from gradir.ir.text import excerpt, shorten
from gradir.ir.validate import check, check_all, index_by_id, mark_valid

# Few digits, since int() of a long number takes quadratic time.
_PATTERN: Final = re.compile(r"(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})")


class Version(NamedTuple):
    """A version of the format."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    @classmethod
    def parse(cls, text: object) -> Version | None:
        """Return the version in a text, or ``None``."""
        match = _PATTERN.fullmatch(text) if isinstance(text, str) else None
        return None if match is None else cls(int(match[1]), int(match[2]))


Step = Callable[[dict[str, Any]], dict[str, Any]]
# Every version, oldest first.
RELEASED: Final = (Version(1, 0),)
NEWEST: Final = RELEASED[-1]
# The function by version that rewrites a document for the next version. Versions without one need no change.
STEPS: Final[Mapping[Version, Step]] = {}


def lowest_for(graph: Graph) -> Version:
    """Return the lowest version that can express a graph, which writers state."""
    # Documents of a version that needs steps are read, and not written.
    first = next(version for version in RELEASED if not needs_steps(version))
    records: tuple[tuple[type[Record], Iterable[Record]], ...] = (
        (Node, graph.nodes.values()),
        (Scope, graph.scopes.values()),
        (Head, (graph,)),
    )
    return max([first, *(since for kind, group in records for since in _newer_versions(kind, group, first))])


def _newer_versions(kind: type[Record], records: Iterable[Record], first: Version) -> Iterator[Version]:
    """Yield the versions of used fields that are newer than the first."""
    for field in fields_of(kind):
        since = Version(*field.about.since)
        inner = records_in(field)
        if since > first and any(getattr(record, field.name) != field.default for record in records):
            yield since
        if inner is not None and _is_recent(inner, first):
            values = (getattr(record, field.name) for record in records)
            lists = (value if isinstance(value, tuple) else (value,) for value in values if value)
            yield from _newer_versions(inner, [*chain.from_iterable(lists)], first)


@cache
def _is_recent(kind: type[Record], first: Version) -> bool:
    """Return whether a record of this kind, or a record in it, has a field that the first version lacks."""
    return any(
        field.about.since > first or ((inner := records_in(field)) is not None and _is_recent(inner, first))
        for field in fields_of(kind)
    )


def needs_steps(version: Version) -> bool:
    """Return whether gradir must rewrite a document of this version before the newest records fit."""
    return any(version <= changed < NEWEST for changed in STEPS)


def upgrade(document: dict[str, Any], version: Version) -> dict[str, Any]:
    """Rewrite a document as plain data from its version to the newest, one version at a time."""
    for older, newer in pairwise(RELEASED):
        if older >= version:
            document = {**STEPS.get(older, dict)(document), "version": str(newer)}
    return document


FORMAT: Final = "gir"

BOM: Final = b"\xef\xbb\xbf"
# These bytes may precede a JSON document.
WHITESPACE: Final = b" \t\r\n"
_JSON: Final = re.compile(rb"(?:%b)?[%b]*\{" % (BOM, WHITESPACE))
# A map whose first key is text. No UTF-8 text, and so no JSON, starts with the byte of a map.
_MSGPACK: Final = re.compile(rb"(?:[\x81-\x8f]|\xde..|\xdf....)[\xa0-\xbf\xd9-\xdb]", re.DOTALL)
_COLUMNS: Final = b"\x89GIR"
# The names in ``requires`` that this release supports.
FEATURES: Final[frozenset[str]] = frozenset()
# The fields of the head that a document always has, even with their default value.
_ALWAYS: Final = frozenset({"producer", "cuts"})


class Document(Head, frozen=True, kw_only=True):
    """A whole document in the order of its keys."""

    format: str
    version: str
    requires: tuple[str, ...] = ()
    scopes: tuple[Scope, ...] = ()
    nodes: tuple[Node, ...]


@cache
def layout() -> tuple[str, ...]:
    """Return the keys of a document in canonical order."""
    values, lists = ([field.key for field in fields_of(Head) if is_list(field) is wanted] for wanted in (False, True))
    return ("format", "version", "requires", *values, "scopes", *lists, "nodes")


def encoding_of(data: bytes) -> str:
    """Return the name of the encoding of an uncompressed document by its first bytes."""
    if not data:
        raise damage("the file is empty")
    if _JSON.match(data):
        return "json"
    if data.startswith(_COLUMNS):
        raise FormatError("MessagePack in columns, which no release of gradir wrote", advice="capture the graph again")
    if _MSGPACK.match(data):
        return "msgpack"
    if data.startswith(b"PK\x03\x04"):
        raise FormatError("a zip archive, not a GIR document", advice="gradir capture writes one of a .pt2 file")
    raise conflict(data) or foreign_error("not a GIR document: it starts with neither '{' nor a map of MessagePack")


def sections_of(graph: Graph) -> dict[str, Any]:
    """Return the values of a document by key, in canonical order."""
    try:
        check_all(graph)
    except GraphError as error:
        raise FormatError(str(error)) from error
    sections: dict[str, Any] = {
        "format": FORMAT,
        "version": str(lowest_for(graph)),
        "requires": [],
        "scopes": list(graph.scopes.values()),
        "nodes": list(graph.nodes.values()),
    }
    for field in fields_of(Head):
        value = getattr(graph, field.name)
        if field.name in _ALWAYS or value != field.default:
            sections[field.key] = value
    return {key: sections[key] for key in layout() if key in sections}


def check_head(head: object) -> Version:
    """Return the version in the head of a document as plain data."""
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise foreign_error(f'not a GIR document: its head has no "format": "{FORMAT}"')
    if "version" not in head:
        raise invalid_error('no "version"', "$")
    version = Version.parse(head["version"])
    if version is None:
        problem = f'the version is {excerpt(head["version"])}; expected MAJOR.MINOR such as "1.0"'
        raise invalid_error(problem, "$.version")
    if version.major > NEWEST.major:
        raise newer_error(f"GIR version {version} is newer than {NEWEST}, the newest this gradir reads", "$.version")
    if version < NEWEST and version not in RELEASED:
        raise invalid_error(
            f"unknown GIR version {version}; expected one of {', '.join(map(str, RELEASED))}", "$.version"
        )
    requires = head.get("requires", ())
    if not isinstance(requires, (list, tuple)) or not all(isinstance(name, str) for name in requires):
        raise invalid_error("not a list of names", "$.requires")
    missing = [name for name in requires if name not in FEATURES]
    if missing:
        names = shorten(", ".join(map(excerpt, missing)))
        raise newer_error(f"the document requires {names}, unknown to this gradir", "$.requires")
    if version > NEWEST:
        warn(f"GIR version {version} is newer than {NEWEST}; gradir ignores fields that it does not know")
    return version


def to_graph(document: Document, version: Version, *, unknown: str) -> Graph:
    """Return the graph in a document of a known version, with its first unknown key."""
    # The fast check gives no reason. If it fails, the slow one raises an error with the broken rule.
    nodes = index_by_id(document.nodes)
    try:
        graph = Graph.of(
            document.nodes if nodes is None else (),
            document.scopes,
            # A newer document may have unknown keys, and `read_from` has its version.
            read_from=str(version) if version > NEWEST else "",
            unknown="" if version > NEWEST else unknown,
            **{name: getattr(document, name) for name in Head.__struct_fields__},
        )
        if nodes is None:
            check(graph)
    except GraphError as error:
        raise invalid_error(shorten(str(error))) from error
    graph = graph if nodes is None else replace(graph, nodes=nodes)
    mark_valid(graph)
    return graph


T = TypeVar("T")
# msgspec raises these for bytes that it cannot read.
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Encoding(NamedTuple):
    """One encoding, with its reader and the name of the module that knows its syntax."""

    name: str
    decode: Callable[..., Any]
    module: str

    @property
    def syntax(self) -> Any:
        """Import and return the module.

        ``guard`` refuses data that would exhaust the stack or the memory of ``decode``. ``inspect`` refuses broken
        values of unknown keys, which ``decode`` skips. ``fault_of`` adds the place to an error of ``decode``.
        """
        return import_module(self.module)


JSON: Final = Encoding("json", msgspec.json.decode, "gradir.codecs.json_syntax")
MSGPACK: Final = Encoding("msgpack", msgspec.msgpack.decode, "gradir.codecs.msgpack_syntax")


def recognize(data: bytes) -> tuple[Encoding, bytes]:
    r"""Return the encoding of an uncompressed document, and its bytes with spaces for a byte order mark.

    Spaces do not move the other bytes, so an error names the byte of the file.

    >>> encoding, document = recognize(b"\xef\xbb\xbf{}")
    >>> encoding.name, document
    ('json', b'   {}')
    """
    encoding = JSON if encoding_of(data) == JSON.name else MSGPACK
    return encoding, b" " * len(BOM) + data[len(BOM) :] if data.startswith(BOM) else data


def read_record(encoding: Encoding, data: bytes, kind: type[T]) -> T:
    """Return the parts of a document that a record declares."""
    encoding.syntax.guard(data)
    try:
        return cast("T", encoding.decode(data, type=kind))
    except msgspec.ValidationError as error:
        encoding.syntax.inspect(data)
        raise invalid_error(*split_message(error)) from error
    except UNREADABLE as error:
        raise encoding.syntax.fault_of(data, error) from error
