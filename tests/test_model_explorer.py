"""The model-explorer exporter: golden files, the viewer's structure, properties, and hostile text."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import pytest
from gradir_exporters.model_explorer import ModelExplorerExporter, ModelExplorerOptions
from hostile_texts import HOSTILE_TEXTS, any_text, graph_of
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from samples import chain, everything, hostile
from strategies import graphs

import gradir
from gradir.ir import Builder, Graph, Node, Ref, Saved, Scope, TensorMeta
from gradir.ir.text import tensor_text


def record(**properties: Any) -> dict[str, Any]:
    """An object with these keys and no others; those whose name ends in ``_`` may be absent."""
    return {
        "type": "object",
        "properties": {name.rstrip("_"): schema for name, schema in properties.items()},
        "required": [name for name in properties if not name.endswith("_")],
        "additionalProperties": False,
    }


def many(schema: dict[str, Any], at_least: int = 0) -> dict[str, Any]:
    return {"type": "array", "items": schema, "minItems": at_least}


# The data classes of ai-edge-model-explorer 0.1.34 (model_explorer/graph_builder.py), as far as they are written here.
TEXT = {"type": "string"}
ID = {"type": "string", "minLength": 1}
PAIRS = many(record(key=TEXT, value=TEXT), at_least=1)
METADATA = many(record(id=ID, attrs=PAIRS), at_least=1)
NODE = record(
    id=ID,
    label=ID,
    namespace={"type": "string", "pattern": "^([^/;\\\\]+(/[^/;\\\\]+)*)?$"},
    attrs=PAIRS,
    incomingEdges_=many(record(sourceNodeId=ID, sourceNodeOutputId=ID, targetNodeInputId=ID), at_least=1),
    inputsMetadata_=METADATA,
    outputsMetadata_=METADATA,
)
GROUPS = {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": TEXT}}
SCHEMA = record(label=ID, graphs=many(record(id=ID, nodes=many(NODE), groupNodeAttributes=GROUPS), at_least=1))
VALIDATOR = Draft202012Validator(SCHEMA)


def export(graph: Graph, **options: Any) -> str:
    return ModelExplorerExporter().export(graph, ModelExplorerOptions(**options))


def read(text: str) -> dict[str, Any]:
    """The graph in the text, after the schema's check."""
    document = json.loads(text)
    VALIDATOR.validate(document)
    (graph,) = document["graphs"]
    assert document["label"] == graph["id"]
    return dict(graph)


def pairs(items: list[dict[str, str]]) -> dict[str, str]:
    """The attributes by key, as the viewer keeps them: a key that occurs twice would be lost."""
    found = {item["key"]: item["value"] for item in items}
    assert len(found) == len(items)
    return found


def layers(namespace: str) -> list[str]:
    """The nested layers that the viewer makes of a namespace, their names decoded."""
    shown = [part for part in namespace.rsplit(";", maxsplit=1)[-1].split("/") if part]
    return ["" if part == "%" else unquote(part, errors="surrogatepass") for part in shown]


def tensors(items: list[dict[str, Any]]) -> dict[str, str]:
    """By id, the shape that the viewer shows on an edge."""
    found = {item["id"]: pairs(item["attrs"]).get("tensor_shape", "none") for item in items}
    assert len(found) == len(items)
    return found


def check(graph: Graph, made: dict[str, Any]) -> None:
    """The same nodes in the same order, layers of scopes, and edges with both numbers and both shapes."""
    assert [node["id"] for node in made["nodes"]] == list(graph.nodes)
    for node, found in zip(graph.nodes.values(), made["nodes"], strict=True):
        assert layers(found["namespace"]) == (node.scope.split(".") if node.scope else [])
        outputs = tensors(found.get("outputsMetadata", []))
        assert outputs == {str(number): tensor_text(tensor) for number, tensor in enumerate(node.outputs)}
        attrs = pairs(found["attrs"])
        assert [attrs.get(key, "") for key in ("role", "op", "native")] == [node.role, node.op, node.native]
        assert {key for key in attrs if key.startswith("attr ")} == {f"attr {key}" for key in node.attrs}
        assert sum(key.startswith("saved ") for key in attrs) == len(node.saved)
        assert [attrs[key] for key in attrs if key.split()[0] == "name"] == list(node.names)
        check_edges(graph, node, found)


def check_edges(graph: Graph, node: Node, found: dict[str, Any]) -> None:
    edges = [
        (e["sourceNodeId"], e["sourceNodeOutputId"], e["targetNodeInputId"]) for e in found.get("incomingEdges", [])
    ]
    wanted = [(ref.id, str(ref.output_nr), str(slot)) for slot, ref in enumerate(node.inputs) if ref is not None]
    assert edges == wanted + ([] if node.base is None else [(node.base, "0", "view")])
    inputs = tensors(found.get("inputsMetadata", []))
    assert list(inputs) == [str(slot) for slot in range(len(node.inputs))]
    for slot, ref in enumerate(node.inputs):
        taken = None if ref is None else graph.nodes[ref.id].outputs
        shape = "none" if ref is None else tensor_text(taken[ref.output_nr]) if taken else "?[?]"
        assert inputs[str(slot)] == shape


@pytest.mark.parametrize("sample", [everything, hostile])
def test_the_samples_have_goldens(golden: Callable[[str, str], None], sample: Callable[[], Graph]) -> None:
    golden(f"model-explorer/{sample.__name__}.json", export(sample()))


@pytest.mark.parametrize("graph", [everything(), hostile(), Graph.of([])], ids=["everything", "hostile", "empty"])
def test_the_viewer_accepts_the_samples(graph: Graph) -> None:
    check(graph, read(export(graph)))


@given(graphs())
def test_the_viewer_accepts_every_graph(graph: Graph) -> None:
    text = export(graph)
    check(graph, read(text))
    assert text == export(graph)
    assert text.replace("\n", "").isprintable()


@pytest.mark.parametrize("text", HOSTILE_TEXTS.values(), ids=HOSTILE_TEXTS.keys())
def test_the_viewer_accepts_hostile_text(text: str) -> None:
    graph = graph_of(text)
    exported = export(graph, title=text)
    check(graph, read(exported))
    assert exported.replace("\n", "").isprintable()
    assert "<" not in exported


@given(any_text)
def test_the_viewer_accepts_any_text(text: str) -> None:
    graph = graph_of(text)
    check(graph, read(export(graph)))


@given(st.lists(any_text, min_size=2, max_size=4, unique=True))
def test_different_scopes_have_different_layers(scopes: list[str]) -> None:
    nodes = read(export(Graph.of([Node(f"n{number}", scope=scope) for number, scope in enumerate(scopes)])))["nodes"]
    assert len({node["namespace"] for node in nodes}) == len(scopes)


def test_a_layer_shows_the_facts_of_its_module() -> None:
    scope = Scope("a.b c", "Linear", "in=1", 2, 3, 4, 5, training=False)
    made = read(export(Graph.of([Node("x", scope="a.b c")], [scope])))
    facts = {
        "class": "Linear",
        "detail": "in=1",
        "calls": "2",
        "own": "3",
        "total": "4",
        "trainable": "5",
        "mode": "eval",
    }
    assert made["nodes"][0]["namespace"] == "a/b%20c"
    assert made["groupNodeAttributes"] == {"": {}, "a/b%20c": facts}


def test_the_graph_says_what_made_it_and_where_it_is_cut() -> None:
    assert read(export(everything()))["groupNodeAttributes"][""] == {
        "gradir": "0.1.0",
        "torch": "2.13.0",
        "option scopes": "true",
        "cut 0": "unreached norm.bias float32[4]",
        "class": "Model",
        "calls": "1",
        "total": "16",
        "trainable": "16",
        "mode": "train",
    }


def test_a_node_says_all_that_it_holds() -> None:
    nodes = {node["id"]: pairs(node["attrs"]) for node in read(export(everything()))["nodes"]}
    assert nodes["fc/addmm:1"] == {
        "role": "function",
        "op": "addmm",
        "native": "AddmmBackward0",
        "attr alpha": "1",
        "attr beta": "1",
        "attr mat1_sym_sizes": "[2, 3]",
        "saved mat1": "float32[2, 3], 24 bytes, of x, storage x, held",
        "saved mat2": "float32[3, 4], 48 bytes, of fc/t:1, storage fc.weight, held",
        "source": "model.py:12 in forward",
    }
    assert nodes["norm/native_batch_norm:1"]["saved result2"] == "?[?], freed"
    assert nodes["output:0"] == {"role": "output", "view of": "mul:1"}


def test_slots_of_one_name_are_numbered() -> None:
    saved = (Saved("a", bytes=1), Saved("a", bytes=2), Saved("b"), Saved("a (2)"))
    attrs = pairs(read(export(Graph.of([Node("x", saved=saved)])))["nodes"][0]["attrs"])
    assert [key for key in attrs if key.startswith("saved")] == ["saved a", "saved a (2)", "saved b", "saved a (2) (2)"]


def test_the_options() -> None:
    b = Builder()
    x = b.tensor("x", TensorMeta("float32", (2,), "cuda:0", "sparse_coo"))
    b.output(b.function("exp", [x], [TensorMeta()], native="ExpBackward0", names=["y\nz"], attrs={"n": 1}))
    graph = b.build()
    for label, shown in (("op", "exp"), ("native", "ExpBackward0"), ("name", "y\\nz")):
        assert [node["label"] for node in read(export(graph, label=label))["nodes"]] == ["x", shown, "output"]
    bare = read(export(everything(), title="two words", attrs=False, saved=False))
    assert bare["id"] == "two words"
    assert not any(key.startswith(("attr ", "saved ")) for node in bare["nodes"] for key in pairs(node["attrs"]))
    (leaf, *_) = read(export(graph))["nodes"]
    expected = {"tensor_shape": "float32[2]", "device": "cuda:0", "layout": "sparse_coo"}
    assert pairs(leaf["outputsMetadata"][0]["attrs"]) == expected


def test_a_label_is_short_and_never_empty() -> None:
    nodes = [Node("x", names=("y" * 10_000,)), Node("z", names=("",)), Node("w", op="a\x00b")]
    labels = [node["label"] for node in read(export(Graph.of(nodes)))["nodes"]]
    assert labels == ["y" * 120 + "…", "z", "a\\x00b"]


def test_a_node_without_known_outputs_gives_an_unknown_tensor() -> None:
    graph = Graph.of([Node("x"), Node("f:1", inputs=(Ref("x", 3), None))])
    assert tensors(read(export(graph))["nodes"][1]["inputsMetadata"]) == {"0": "?[?]", "1": "none"}


def test_it_is_registered_with_its_options() -> None:
    graph = everything()
    assert gradir.export(graph, "model-explorer") == export(graph)
    assert gradir.export(graph, "model-explorer", label="native", saved="false") == export(
        graph, label="native", saved=False
    )
    with pytest.raises(gradir.ExportError, match="title"):
        gradir.export(graph, "model-explorer", title="")


def test_a_long_chain_takes_one_line_a_node() -> None:
    sizes = [export(chain(length)).count("\n") for length in (10, 20_000)]
    assert sizes[1] - sizes[0] == 19_990
