"""The graphml exporter: golden files, what networkx makes of the output, properties, and hostile text."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import networkx as nx
import pytest
from gradir_exporters.graphml import GraphmlExporter, GraphmlOptions
from hostile_texts import HOSTILE_TEXTS, any_text, graph_of
from hypothesis import given
from hypothesis import strategies as st
from samples import chain, everything, hostile
from strategies import graphs
from tools import require

import gradir
from gradir.ir import Graph, Node

NAMESPACE = "{http://graphml.graphdrawing.org/xmlns}"
UNHOLDABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
JSON_DETAILS = ("names", "outputs", "attrs", "saved", "source", "ext")


def export(graph: Graph, **options: Any) -> str:
    return GraphmlExporter().export(graph, GraphmlOptions(**options))


def read(text: str) -> nx.MultiDiGraph:
    # Bytes, as in a file: an XML parser is stricter with them.
    made = nx.GraphMLReader(force_multigraph=True)(string=text.encode())
    (graph,) = made
    assert type(graph) is nx.MultiDiGraph
    return graph


def held(text: str) -> str:
    """The text as XML can hold it."""
    return UNHOLDABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def facts(node: Node) -> dict[str, Any]:
    """All that networkx should know of a node, its JSON texts decoded."""
    found: dict[str, Any] = {"label": node.label, "base": node.base or ""}
    found |= {key: getattr(node, key) for key in ("role", "op", "native", "scope")}
    found = {key: held(text) for key, text in found.items() if text}
    plain = msgspec.to_builtins({key: getattr(node, key) for key in JSON_DETAILS})
    found |= {key: value for key, value in plain.items() if value not in (None, (), [], {})}
    if node.dtype:
        found["dtype"] = held(node.dtype)
    if node.shape is not None:
        found["shape"] = list(node.shape)
    if node.inputs:
        found["slots"] = len(node.inputs)
    if node.opaque:
        found["opaque"] = True
    return json.loads(json.dumps(found))


def decoded(data: dict[str, Any]) -> dict[str, Any]:
    return {key: json.loads(text) if key in {*JSON_DETAILS, "shape"} else text for key, text in data.items()}


def check(graph: Graph, made: nx.MultiDiGraph) -> None:
    """The same nodes in the same order with all their facts, and the same edges."""
    assert list(made.nodes) == list(graph.nodes)
    for id_, node in graph.nodes.items():
        assert decoded(made.nodes[id_]) == facts(node)
    check_edges(graph, made)
    about = {"producer": graph.producer, "scopes": list(graph.scopes.values()), "cuts": graph.cuts}
    for key, value in about.items():
        expected = json.loads(json.dumps(msgspec.to_builtins(value)))
        assert json.loads(made.graph.get(key, "[]")) == expected


def check_edges(graph: Graph, made: nx.MultiDiGraph) -> None:
    edges = Counter(
        (src, data["output_nr"], dst, data["input_nr"], data["kind"]) for src, dst, data in made.edges(data=True)
    )
    assert edges == Counter(tuple(edge) for edge in graph.edges)


@pytest.mark.parametrize(
    ("name", "options"),
    [("everything", {}), ("everything-numbers", {"ids": "numbers", "attrs": False, "saved": False})],
)
def test_everything_has_a_golden(golden: Callable[[str, str], None], name: str, options: dict[str, Any]) -> None:
    golden(f"graphml/{name}.graphml", export(everything(), **options))


def test_hostile_has_a_golden(golden: Callable[[str, str], None]) -> None:
    golden("graphml/hostile.graphml", export(hostile()))


@pytest.mark.parametrize("graph", [everything(), hostile(), Graph.of([])], ids=["everything", "hostile", "empty"])
def test_networkx_reads_the_samples_back(graph: Graph) -> None:
    check(graph, read(export(graph)))


@given(graphs())
def test_networkx_reads_every_graph_back(graph: Graph) -> None:
    text = export(graph)
    check(graph, read(text))
    assert text == export(graph)


@given(graphs())
def test_numbered_ids_are_name_tokens_and_the_names_are_data(graph: Graph) -> None:
    made = read(export(graph, ids="numbers"))
    assert all(re.fullmatch(r"n\d+", id_) for id_ in made)
    named = nx.relabel_nodes(made, nx.get_node_attributes(made, "gir_id"))
    assert list(named) == list(graph.nodes)
    check_edges(graph, named)


def test_numbered_ids_can_be_laid_out() -> None:
    require("dot")
    made = read(export(everything(), ids="numbers"))
    assert len(nx.nx_pydot.graphviz_layout(made, prog="dot")) == len(everything().nodes)


@given(graphs(), st.booleans(), st.booleans())
def test_every_data_element_is_declared_for_its_owner(graph: Graph, attrs: bool, saved: bool) -> None:
    root = ET.fromstring(export(graph, attrs=attrs, saved=saved))
    declared = {(key.get("id"), key.get("for")): key.get("attr.type") for key in root.iter(f"{NAMESPACE}key")}
    assert set(declared.values()) <= {"string", "int", "boolean"}
    for owner in ("graph", "node", "edge"):
        for element in root.iter(NAMESPACE + owner):
            keys = [data.get("key") for data in element.findall(f"{NAMESPACE}data")]
            assert len(set(keys)) == len(keys)
            assert {(key, owner) for key in keys} <= set(declared)
            assert attrs or "attrs" not in keys
            assert saved or "saved" not in keys
    (made,) = root.findall(f"{NAMESPACE}graph")
    ids = {node.get("id") for node in made.findall(f"{NAMESPACE}node")}
    assert made.get("edgedefault") == "directed"
    assert all({edge.get("source"), edge.get("target")} <= ids for edge in made.findall(f"{NAMESPACE}edge"))


def test_it_is_registered_with_its_options() -> None:
    graph = everything()
    assert gradir.export(graph, "graphml") == export(graph)
    assert gradir.export(graph, "graphml", ids="numbers", saved="false") == export(graph, ids="numbers", saved=False)
    with pytest.raises(gradir.ExportError, match=r"option ids: expected names\|numbers"):
        gradir.export(graph, "graphml", ids="letters")


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS.keys())
def test_hostile_text_survives_as_far_as_xml_can_hold_it(text: str) -> None:
    graph = graph_of(text)
    exported = export(graph)
    check(graph, read(exported))
    assert "]]>" not in exported
    assert UNHOLDABLE.search(exported) is None


@given(any_text)
def test_any_text_survives_as_far_as_xml_can_hold_it(text: str) -> None:
    graph = graph_of(text)
    check(graph, read(export(graph)))


@given(any_text.filter(lambda text: UNHOLDABLE.search(text) is None))
def test_an_id_survives_exactly(id_: str) -> None:
    made = read(export(Graph.of([Node(id_), Node(f"{id_}/exp:1")])))
    assert list(made) == [id_, f"{id_}/exp:1"]


def test_a_long_chain_takes_one_line_a_node_and_an_edge() -> None:
    sizes = [export(chain(length)).count("\n") for length in (10, 20_000)]
    assert sizes[1] - sizes[0] == 2 * 19_990
