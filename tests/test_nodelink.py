"""The nodelink exporter: golden files, what networkx makes of the output, properties, and hostile text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import networkx as nx
import pytest
from gradir_exporters.nodelink import NodelinkExporter, NodelinkOptions
from hostile_texts import HOSTILE_TEXTS, any_text, graph_of
from hypothesis import given
from samples import chain, everything, hostile
from strategies import graphs

import gradir
from gradir.ir import Graph, Node

DETAILS = ("names", "outputs", "attrs", "saved", "base", "opaque", "source", "ext")


def export(graph: Graph, **options: Any) -> str:
    return NodelinkExporter().export(graph, NodelinkOptions(**options))


def read(text: str, edges: str = "edges") -> nx.MultiDiGraph:
    made = nx.node_link_graph(json.loads(text), edges=edges)
    assert type(made) is nx.MultiDiGraph
    return made


def facts(node: Node) -> dict[str, Any]:
    """All that networkx should know of a node."""
    found = {"label": node.label, **{key: getattr(node, key) for key in ("role", "op", "native", "scope")}}
    plain = msgspec.to_builtins({key: getattr(node, key) for key in DETAILS})
    found |= {key: value for key, value in plain.items() if value not in (None, False, (), [], {})}
    if node.base is not None:
        found["base"] = node.base
    return json.loads(json.dumps(found | ({"slots": len(node.inputs)} if node.inputs else {})))


def check(graph: Graph, made: nx.MultiDiGraph) -> None:
    """The same nodes in the same order with all their facts, and the same edges."""
    assert list(made.nodes) == list(graph.nodes)
    for id_, node in graph.nodes.items():
        assert made.nodes[id_] == facts(node)
    edges = Counter(
        (src, dst, key, data["output_nr"], data["input_nr"], data["kind"])
        for src, dst, key, data in made.edges(data=True, keys=True)
    )
    assert edges == Counter((e.src, e.dst, e.input_nr, e.output_nr, e.input_nr, e.kind) for e in graph.edges)
    assert set(edges.values()) <= {1}
    about = msgspec.to_builtins([graph.producer, list(graph.scopes.values()), graph.cuts])
    assert [made.graph[key] for key in ("producer", "scopes", "cuts")] == json.loads(json.dumps(about))


@pytest.mark.parametrize("sample", [everything, hostile])
def test_the_samples_have_goldens(golden: Callable[[str, str], None], sample: Callable[[], Graph]) -> None:
    golden(f"nodelink/{sample.__name__}.json", export(sample()))


@pytest.mark.parametrize("graph", [everything(), hostile(), Graph.of([])], ids=["everything", "hostile", "empty"])
def test_networkx_reads_the_samples_back(graph: Graph) -> None:
    check(graph, read(export(graph)))


@given(graphs())
def test_networkx_reads_every_graph_back(graph: Graph) -> None:
    text = export(graph)
    check(graph, read(text))
    assert text == export(graph)
    assert text.replace("\n", "").isprintable()


def test_it_is_registered_with_its_options() -> None:
    graph = everything()
    assert gradir.export(graph, "nodelink") == export(graph)
    assert gradir.export(graph, "nodelink", attrs="false", saved="false") == export(graph, attrs=False, saved=False)
    with pytest.raises(gradir.ExportError, match=r"option edges: expected edges\|links"):
        gradir.export(graph, "nodelink", edges="lines")


def test_what_the_options_leave_out_is_all_that_is_missing() -> None:
    graph = everything()
    full, bare = read(export(graph)), read(export(graph, attrs=False, saved=False))
    assert [dict(bare.nodes[id_]) for id_ in bare] == [
        {key: value for key, value in full.nodes[id_].items() if key not in {"attrs", "saved"}} for id_ in full
    ]
    assert any("attrs" in full.nodes[id_] for id_ in full)
    check(graph, read(export(graph, edges="links"), edges="links"))


def test_one_line_a_record() -> None:
    graph = everything()
    records = [*graph.scopes.values(), *graph.cuts, *graph.nodes.values(), *graph.edges]
    lines = export(graph).splitlines()
    assert len(lines) == len(records) + 10
    assert sum(line.startswith('{"id":"') for line in lines) == len(graph.nodes)


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS.keys())
def test_hostile_text_survives_exactly(text: str) -> None:
    graph = graph_of(text)
    exported = export(graph)
    check(graph, read(exported))
    assert exported.replace("\n", "").isprintable()
    assert "<" not in exported
    exported.encode()


@given(any_text)
def test_any_text_survives_exactly(text: str) -> None:
    graph = graph_of(text)
    check(graph, read(export(graph)))


def test_a_long_chain_takes_one_line_a_node_and_an_edge() -> None:
    assert export(chain(20_000)).count("\n") == 20_002 + 20_001 + 8
