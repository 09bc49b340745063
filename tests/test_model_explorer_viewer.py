"""What Model Explorer's own viewer makes of exported files: every node, edge, attribute and layer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from example_files import GRAPHS, attribute, live
from gradir_exporters.model_explorer import ModelExplorerExporter, ModelExplorerOptions
from hostile_texts import HOSTILE_TEXTS, graph_of
from node_programs import ask
from samples import chain, everything, hostile

from gradir.ir import Graph, Node, Ref, Saved, TensorMeta


def load(viewer: tuple[str, Path], graphs: list[Graph]) -> list[dict[str, Any]]:
    """What the viewer makes of each graph; the exported texts stand beside it, under ``text``."""
    texts = [ModelExplorerExporter().export(graph, ModelExplorerOptions()) for graph in graphs]
    node, folder = viewer
    collections = ask(node, "model_explorer.mjs", texts, str(folder))
    assert [len(made) for made in collections] == [1] * len(graphs)
    return [{**made, "text": text} for (made,), text in zip(collections, texts, strict=True)]


def check(graph: Graph, made: dict[str, Any]) -> None:
    """Nothing was lost on the way from the graph to the viewer's own, and all of that has a place in the picture."""
    assert made["errors"] == []
    operations = made["operations"]
    assert [operation["id"] for operation in operations] == list(graph.nodes)
    for node, operation in zip(graph.nodes.values(), operations, strict=True):
        edges = [[ref.id, str(ref.output_nr), str(slot)] for slot, ref in enumerate(node.inputs) if ref is not None]
        assert operation["edges"] == edges + ([] if node.base is None else [[node.base, "0", "view"]])
    (written,) = json.loads(made["text"])["graphs"]
    for node, operation in zip(written["nodes"], operations, strict=True):
        assert (operation["label"], operation["namespace"]) == (node["label"], node["namespace"])
        assert operation["attrs"] == {pair["key"]: shown(pair["value"]) for pair in node["attrs"]}
        assert operation["inputs"] == metadata(node.get("inputsMetadata", []))
        assert operation["outputs"] == metadata(node.get("outputsMetadata", []))
    parts = [node["namespace"].split("/") for node in written["nodes"] if node["namespace"]]
    layers = {"/".join(path[: length + 1]) for path in parts for length in range(len(path))}
    assert sorted(made["layers"]) == sorted(layers)
    assert made["groups"] == written["groupNodeAttributes"]
    assert made["placed"] == len(graph.nodes) + len(layers)


def shown(value: str) -> str:
    """An attribute's value as the viewer shows it, without double quotes."""
    return value.replace('"', "") or "<empty>"


def metadata(items: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    """The viewer's form of it, by id; it takes what it reads of a shape for MLIR's ``tensor<…>``."""
    found = {}
    for item in items:
        facts = found[item["id"]] = {pair["key"]: pair["value"] for pair in item["attrs"]}
        if "tensor_shape" in facts:
            facts["shape"] = facts.pop("tensor_shape").replace("tensor<", "", 1).replace(">", "", 1)
    return found


# The viewer takes a minute for fifty calls in a row, and draws nothing in them that the others do not have.
@pytest.mark.parametrize("spec", [spec for spec in GRAPHS if spec != "recurrent.py:loss"])
def test_the_viewer_loads_every_example(model_explorer_viewer: tuple[str, Path], spec: str) -> None:
    pytest.importorskip("torch")
    graph = live(attribute(spec)).graph
    (made,) = load(model_explorer_viewer, [graph])
    check(graph, made)


def test_the_viewer_loads_the_samples(model_explorer_viewer: tuple[str, Path]) -> None:
    samples = [everything(), hostile(), chain(50), *map(graph_of, HOSTILE_TEXTS.values())]
    for graph, made in zip(samples, load(model_explorer_viewer, samples), strict=True):
        check(graph, made)


def test_a_loss_would_be_noticed(model_explorer_viewer: tuple[str, Path]) -> None:
    graph = Graph.of(
        [
            Node("x", role="leaf", outputs=(TensorMeta("float32", (3,)),)),
            Node("fc/exp:1", op="exp", scope="fc", inputs=(Ref("x", 0),), saved=(Saved("result"),)),
        ]
    )
    (made,) = load(model_explorer_viewer, [graph])
    check(graph, made)
    without_edge = Graph.of([*list(graph.nodes.values())[:1], Node("fc/exp:1", op="exp", scope="fc")])
    without_layer = Graph.of([*list(graph.nodes.values())[:1], Node("fc/exp:1", op="exp", inputs=(Ref("x", 0),))])
    for smaller in (without_edge, without_layer, Graph.of([graph.nodes["x"]])):
        (lost,) = load(model_explorer_viewer, [smaller])
        with pytest.raises(AssertionError):
            check(graph, {**lost, "text": made["text"]})
