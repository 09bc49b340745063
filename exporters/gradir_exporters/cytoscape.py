"""Cytoscape.js elements JSON, for ``cytoscape({...JSON.parse(text), style, layout})``.

Modules are compound nodes. Their ids and those of edges have a space, which no id of gradir has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Annotated, Any, ClassVar, Final

import msgspec
from msgspec import UNSET, UnsetType

from gradir.ir import Graph, Scope
from gradir.ir.jsontext import json_lines
from gradir.ir.memo import Memo
from gradir.protocols import Options
from gradir_exporters._flat_json import DetailOptions, FlatNodes, graph_facts

_MAX_NESTING: Final = 64
_NO_CLASS: Final = re.compile(r"[^A-Za-z0-9_]+")


class CytoscapeOptions(DetailOptions, frozen=True, kw_only=True):
    """Whether modules enclose their nodes, and what is written of each node."""

    modules: Annotated[bool, msgspec.Meta(description="make each module a compound node")] = True


class CytoscapeExporter:
    """Cytoscape.js elements JSON, with modules as compound nodes."""

    suffix: ClassVar[str] = ".cyjs"
    options: ClassVar[type[Options]] = CytoscapeOptions

    def export(self, graph: Graph, options: CytoscapeOptions) -> str:
        """Return one JSON object, with one element a line."""
        return "".join(_pieces(graph, options))


class _ScopeData(msgspec.Struct, gc=False):
    id: str
    label: str
    role: str
    scope: str
    parent: str | UnsetType = UNSET
    class_name: str | UnsetType = UNSET
    detail: str | UnsetType = UNSET


class _EdgeData(msgspec.Struct, gc=False):
    id: str
    source: str
    target: str
    output_nr: int
    input_nr: int
    kind: str


class _Element(msgspec.Struct, gc=False):
    classes: str
    data: Any


def _pieces(graph: Graph, options: CytoscapeOptions) -> Iterator[str]:
    ids: dict[str, str] = {}
    modules = [*_modules(graph, ids)] if options.modules else []
    yield '{"data":{'
    yield from graph_facts(graph)
    yield '},\n"elements":{"nodes":['
    yield from json_lines(chain(modules, _nodes(graph, options, ids)))
    yield '],\n"edges":['
    yield from json_lines(_edges(graph))
    yield "]}}\n"


def _modules(graph: Graph, ids: dict[str, str]) -> Iterator[_Element]:
    for scope in dict.fromkeys(node.scope for node in graph.nodes.values() if node.scope):
        path, parent = "", ""
        for part in scope.split(".", _MAX_NESTING - 1):
            path = f"{path}.{part}" if parent else part
            if path not in ids:
                ids[path] = _unique_id(graph, "scope", path)
                known = graph.scopes.get(path, Scope(path))
                words = (text or UNSET for text in (parent, known.class_name, known.detail))
                yield _Element("scope", _ScopeData(ids[path], part, "scope", path, *words))
            parent = ids[path]


def _nodes(graph: Graph, options: CytoscapeOptions, scopes: Mapping[str, str]) -> Iterator[_Element]:
    # Selectors cannot look into outputs, and in Cytoscape.js ``source`` is the start of an edge.
    data = FlatNodes(options, "dtype", "shape", source="location")
    # A selector can only name classes of one word.
    classes = Memo[str, str](lambda role: _NO_CLASS.sub("-", role))
    for node in graph.nodes.values():
        yield _Element(classes[node.role], data(node, scopes.get(node.scope, UNSET) if node.scope else UNSET))


def _edges(graph: Graph) -> Iterator[_Element]:
    for src, output_nr, dst, input_nr, kind in graph.edges:
        id_ = _unique_id(graph, "edge", f"{input_nr} {dst}")
        yield _Element(kind, _EdgeData(id_, src, dst, output_nr, input_nr, kind))


def _unique_id(graph: Graph, kind: str, name: str) -> str:
    # gradir writes no id with a space, but a file may have one.
    while f"{kind} {name}" in graph.nodes:
        kind += "*"
    return f"{kind} {name}"
