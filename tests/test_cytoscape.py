"""The cytoscape exporter: golden files, what Cytoscape.js makes of the output, its schema, properties, hostile text."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from gradir_exporters.cytoscape import CytoscapeExporter, CytoscapeOptions
from hostile_texts import HOSTILE_TEXTS, any_text, graph_of
from hypothesis import given
from jsonschema import Draft202012Validator
from node_programs import ask
from samples import chain, everything, hostile
from strategies import graphs

import gradir
from gradir.ir import Graph, Node, Ref, Scope

DETAILS = ("names", "dtype", "shape", "outputs", "attrs", "saved", "base", "ext")

# https://js.cytoscape.org/#notation/elements-json, for elements grouped by key.
ID = {"type": "string", "minLength": 1}
SCHEMA = {
    "type": "object",
    "required": ["data", "elements"],
    "additionalProperties": False,
    "properties": {
        "data": {"type": "object"},
        "elements": {
            "type": "object",
            "required": ["nodes", "edges"],
            "additionalProperties": False,
            "properties": {
                "nodes": {"type": "array", "items": {"$ref": "#/$defs/node"}},
                "edges": {"type": "array", "items": {"$ref": "#/$defs/edge"}},
            },
        },
    },
    "$defs": {
        "node": {
            "type": "object",
            "required": ["data", "classes"],
            "additionalProperties": False,
            "properties": {
                "classes": {"type": "string", "pattern": "^[A-Za-z0-9_-]*$"},
                "data": {
                    "type": "object",
                    "required": ["id", "label", "role", "scope"],
                    "properties": {
                        "id": ID,
                        "parent": ID,
                        "label": {"type": "string"},
                        "source": False,
                        "target": False,
                    },
                },
            },
        },
        "edge": {
            "type": "object",
            "required": ["data", "classes"],
            "additionalProperties": False,
            "properties": {
                "classes": {"enum": ["data", "view"]},
                "data": {
                    "type": "object",
                    "required": ["id", "source", "target", "output_nr", "input_nr", "kind"],
                    "additionalProperties": False,
                    "properties": {
                        "id": ID,
                        "source": ID,
                        "target": ID,
                        "output_nr": {"type": "integer", "minimum": 0},
                        "input_nr": {"type": "integer", "minimum": -1},
                        "kind": {"enum": ["data", "view"]},
                    },
                },
            },
        },
    },
}
# Each example starts a process: shrinking one takes minutes.
VALIDATOR = Draft202012Validator(SCHEMA)


def export(graph: Graph, **options: Any) -> str:
    return CytoscapeExporter().export(graph, CytoscapeOptions(**options))


def draw(node: str, texts: list[str]) -> list[dict[str, Any]]:
    """What Cytoscape.js made of each text; it must take all of them without a warning."""
    made: list[dict[str, Any]] = ask(node, "cytoscape.mjs", texts, parse_int=float)
    assert [drawn["warnings"] for drawn in made] == [[] for _ in texts]
    return made


def plain(value: object, integer: type) -> Any:
    return json.loads(json.dumps(msgspec.to_builtins(value)), parse_int=integer)


def facts(node: Node, integer: type) -> dict[str, Any]:
    """All that Cytoscape.js should know of a node, its place among the modules excepted."""
    found = {key: getattr(node, key) for key in ("id", "label", "role", "op", "native", "scope")}
    details = {key: getattr(node, key) for key in DETAILS}
    found |= {key: value for key, value in details.items() if key == "shape" or value not in (None, (), {})}
    found = {key: value for key, value in found.items() if value is not None}
    if node.inputs:
        found["slots"] = len(node.inputs)
    if node.opaque:
        found["opaque"] = True
    if node.source is not None:
        found["location"] = node.source
    return dict(plain(found, integer))


def check(graph: Graph, made: dict[str, Any], integer: type = int) -> None:
    """The same nodes with all their facts, each within the modules of its scope, and the same edges.

    JavaScript has one type of numbers: with ``float`` for ``integer``, integers are equal when they are the same there.
    """
    data = {element["data"]["id"]: dict(element["data"]) for element in made["nodes"]}
    assert len(data) == len(made["nodes"])
    outer = {id_: element.pop("parent", None) for id_, element in data.items()}
    assert set(outer.values()) - {None} == set(data) - set(graph.nodes)
    for id_, node in graph.nodes.items():
        assert data[id_] == facts(node, integer)
        assert paths_around(id_, outer, data) == paths_of(node.scope)
    edges = [element["data"] for element in made["edges"]]
    assert [(e["source"], e["output_nr"], e["target"], e["input_nr"], e["kind"]) for e in edges] == [*graph.edges]
    assert len({*data, *(edge["id"] for edge in edges)}) == len(data) + len(edges)
    about = {"producer": graph.producer, "scopes": list(graph.scopes.values()), "cuts": graph.cuts}
    assert made["data"] == plain(about, integer)


def paths_around(id_: str, outer: dict[str, Any], data: dict[str, dict[str, Any]]) -> list[str]:
    paths: list[str] = []
    parent = outer[id_]
    while parent is not None:
        paths.insert(0, data[parent]["scope"])
        parent = outer[parent]
    return paths


def paths_of(scope: str) -> list[str]:
    parts = scope.split(".")
    return [".".join(parts[: end + 1]) for end in range(len(parts))] if scope else []


def parsed(text: str) -> dict[str, Any]:
    """The text as the elements that Cytoscape.js would hold, after the schema's check."""
    document = json.loads(text)
    VALIDATOR.validate(document)
    return {"data": document["data"], **document["elements"]}


@pytest.mark.parametrize(
    ("name", "options"), [("everything", {}), ("everything-flat", {"modules": False, "attrs": False, "saved": False})]
)
def test_everything_has_a_golden(golden: Callable[[str, str], None], name: str, options: dict[str, Any]) -> None:
    golden(f"cytoscape/{name}.cyjs", export(everything(), **options))


def test_hostile_has_a_golden(golden: Callable[[str, str], None]) -> None:
    golden("cytoscape/hostile.cyjs", export(hostile()))


def test_cytoscape_draws_the_samples(cytoscape_node: str) -> None:
    samples = [everything(), hostile(), Graph.of([]), chain(100), *map(graph_of, HOSTILE_TEXTS.values())]
    for graph, made in zip(samples, draw(cytoscape_node, [export(graph) for graph in samples]), strict=True):
        check(graph, made, float)


@given(graphs())
def test_cytoscape_draws_every_graph(cytoscape_node: str, graph: Graph) -> None:
    (made,) = draw(cytoscape_node, [export(graph)])
    check(graph, made, float)


def test_selectors_find_roles_and_kinds(cytoscape_node: str) -> None:
    (made,) = draw(cytoscape_node, [export(everything())])
    assert made["selected"] == {
        "node.scope": 2,
        "node.parameter": 1,
        "node.function": 5,
        "edge.view": 1,
        "edge[output_nr > 0]": 1,
    }
    assert [element["data"]["scope"] for element in made["nodes"] if element["isParent"]] == ["fc", "norm"]


@given(graphs())
def test_every_graph_is_in_the_elements(graph: Graph) -> None:
    text = export(graph)
    check(graph, parsed(text))
    assert text == export(graph)
    assert text.replace("\n", "").isprintable()


@given(any_text)
def test_any_text_is_in_the_elements(text: str) -> None:
    graph = graph_of(text)
    exported = export(graph)
    check(graph, parsed(exported))
    assert "<" not in exported


def test_a_module_encloses_its_nodes_and_shows_its_class() -> None:
    graph = Graph.of(
        [Node("w", scope="a.b.c"), Node("x", scope="a"), Node("y")],
        [Scope("a.b", "Block", "n=1"), Scope("z", "Unused")],
    )
    nodes = [element["data"] for element in parsed(export(graph))["nodes"]]
    assert nodes[:3] == [
        {"id": "scope a", "label": "a", "role": "scope", "scope": "a"},
        {"id": "scope a.b", "label": "b", "role": "scope", "scope": "a.b", "parent": "scope a", "class_name": "Block"}
        | {"detail": "n=1"},
        {"id": "scope a.b.c", "label": "c", "role": "scope", "scope": "a.b.c", "parent": "scope a.b"},
    ]
    assert [node.get("parent") for node in nodes[3:]] == ["scope a.b.c", "scope a", None]


def test_without_modules_there_are_nodes_only() -> None:
    graph = everything()
    flat = parsed(export(graph, modules=False, attrs=False, saved=False))["nodes"]
    assert [element["data"]["id"] for element in flat] == list(graph.nodes)
    assert not any({"parent", "attrs", "saved"} & set(element["data"]) for element in flat)


def test_an_id_that_looks_like_a_module_or_an_edge_stays_a_node() -> None:
    nodes = [Node("scope a", scope="a"), Node("scope* a"), Node("edge 0 f"), Node("f", inputs=(Ref("edge 0 f", 0),))]
    elements = parsed(export(Graph.of(nodes)))
    assert [element["data"]["id"] for element in elements["nodes"]] == ["scope** a", *(node.id for node in nodes)]
    assert [element["data"]["id"] for element in elements["edges"]] == ["edge* 0 f"]


def test_a_scope_is_nested_to_a_bounded_depth() -> None:
    nodes = parsed(export(Graph.of([Node("x", scope=".".join(["a"] * 5_000))])))["nodes"]
    assert len(nodes) == 65
    assert nodes[-1]["data"]["parent"] == f"scope {nodes[-1]['data']['scope']}"


def test_it_is_registered_with_its_options() -> None:
    graph = everything()
    assert gradir.export(graph, "cytoscape") == export(graph)
    assert gradir.export(graph, "cytoscape", modules="false") == export(graph, modules=False)
    with pytest.raises(gradir.ExportError, match=r"option modules: expected true\|false"):
        gradir.export(graph, "cytoscape", modules="some")


def test_a_long_chain_takes_one_line_a_node_and_an_edge() -> None:
    sizes = [export(chain(length)).count("\n") for length in (10, 20_000)]
    assert sizes[1] - sizes[0] == 2 * 19_990
