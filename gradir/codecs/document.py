"""How a document starts, its head, and what its version allows."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

from msgspec.structs import replace

from gradir.codecs.faults import broken, conflict, damaged, foreign, too_new
from gradir.codecs.versions import NEWEST, RELEASED, Version, lowest_for
from gradir.errors import FormatError, GraphError, warn
from gradir.ir import Graph, Node, Scope
from gradir.ir.excerpt import excerpt, shortened
from gradir.ir.fields import fields_of, is_list
from gradir.ir.head import Head
from gradir.ir.validate import by_id, check, check_all, vouch

FORMAT: Final = "gir"

BOM: Final = b"\xef\xbb\xbf"
# These bytes may stand before a JSON document.
WHITESPACE: Final = b" \t\r\n"
_JSON: Final = re.compile(rb"(?:%b)?[%b]*\{" % (BOM, WHITESPACE))
# A map whose first key is text. No UTF-8 text, and so no JSON, starts with the byte of a map.
_MSGPACK: Final = re.compile(rb"(?:[\x81-\x8f]|\xde..|\xdf....)[\xa0-\xbf\xd9-\xdb]", re.DOTALL)
_COLUMNS: Final = b"\x89GIR"
# The names that ``requires`` may hold for this release to read the document.
FEATURES: Final[frozenset[str]] = frozenset()
# The fields of the head that are written even with their default value.
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
    """Return the keys of a document in the order in which they are written."""
    values, lists = ([field.key for field in fields_of(Head) if is_list(field) is wanted] for wanted in (False, True))
    return ("format", "version", "requires", *values, "scopes", *lists, "nodes")


def encoding_of(data: bytes) -> str:
    """Return the name of the encoding of an uncompressed document by its first bytes."""
    if not data:
        raise damaged("the file is empty")
    if _JSON.match(data):
        return "json"
    if data.startswith(_COLUMNS):
        raise FormatError("MessagePack in columns, which no release of gradir wrote", advice="capture the graph again")
    if _MSGPACK.match(data):
        return "msgpack"
    if data.startswith(b"PK\x03\x04"):
        raise FormatError("a zip archive, not a GIR document", advice="gradir capture writes one of a .pt2 file")
    raise conflict(data) or foreign("not a GIR document: it starts with neither '{' nor a map of MessagePack")


def sections_of(graph: Graph) -> dict[str, Any]:
    """Return the values of a document by key, in the order in which every encoding writes them."""
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


def to_graph(document: Document, version: Version, *, unknown: str) -> Graph:
    """Return the graph that a document describes, of a known version with its first unknown key."""
    # The fast check gives no reason. If it fails, the slow one raises with the broken rule.
    nodes = by_id(document.nodes)
    try:
        graph = Graph.of(
            document.nodes if nodes is None else (),
            document.scopes,
            # `read_from` says enough of a newer document, whose unknown keys are expected.
            read_from=str(version) if version > NEWEST else "",
            unknown="" if version > NEWEST else unknown,
            **{name: getattr(document, name) for name in Head.__struct_fields__},
        )
        if nodes is None:
            check(graph)
    except GraphError as error:
        raise broken(shortened(str(error))) from error
    graph = graph if nodes is None else replace(graph, nodes=nodes)
    vouch(graph)
    return graph
