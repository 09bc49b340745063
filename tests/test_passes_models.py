"""The passes on real models."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

pytest.importorskip("torch")

from example_files import GRAPHS, attribute, live

import gradir
from gradir.ir import Graph
from gradir.ir.validate import check
from gradir.passes import ancestors, between, drop, fold, hide_shape_ops, rollup


@cache
def captured(spec: str) -> Graph:
    return live(attribute(spec)).graph


def stacks(graph: Graph) -> list[str]:
    return [f"{scope.path} {scope.class_name}" for scope in graph.scopes.values() if "×" in scope.class_name]


def test_the_layers_of_a_transformer_are_shown_once() -> None:
    graph = captured("gpt.py:loss")
    rolled = rollup(graph)
    check(rolled)
    assert stacks(rolled) == ["h.0-11 Block ×12"]
    layer = [node for node in rolled.nodes.values() if "times" in node.ext]
    assert {node.ext["times"] for node in layer} == {12}
    per_layer = sum(node.scope.startswith("h.0.") or node.scope == "h.0" for node in graph.nodes.values())
    assert len(layer) == per_layer
    assert len(rolled.nodes) == len(graph.nodes) - 11 * per_layer
    carried = {(node.id, node.ext["carried_inputs"]) for node in layer if "carried_inputs" in node.ext}
    assert carried == {("h.0-11.ln_1/native_layer_norm:1", (0,)), ("h.0-11/add:1", (0,))}
    assert rolled.nodes["ln_f/native_layer_norm:1"].inputs[0] == gradir.Ref("h.0-11/add:2", 0)
    assert rolled.scopes["h.0-11"].total == sum(graph.scopes[f"h.{layer}"].total for layer in range(12))


@pytest.mark.parametrize("spec", ["gpt.py:edited", "gpt.py:swapped"])
def test_an_edited_layer_is_highlighted(spec: str) -> None:
    assert stacks(rollup(captured(spec))) == ["h.0-2 Block ×3", "h.4-11 Block ×8"]


def test_a_residual_network_has_one_stage_of_equal_blocks() -> None:
    # In the other stages the first block projects its input.
    assert stacks(rollup(captured("resnet.py:loss"))) == ["layer1.0-1 BasicBlock ×2"]


@pytest.mark.parametrize("spec", GRAPHS)
def test_every_example_stays_valid(spec: str) -> None:
    graph = captured(spec)
    small = rollup(hide_shape_ops(drop(graph, ["accumulate_grad", "buffer", "saved", "views"])))
    check(small)
    ops = Counter(node.op for node in small.nodes.values())
    assert not {"accumulate_grad", "view", "t", "transpose", "expand", "unsafe_view"} & set(ops)
    # Each leaf feeds what its accumulator fed, and nothing was left without a source.
    assert not any("elided_inputs" in node.ext for node in small.nodes.values())
    check(fold(small, 1))


def test_a_leaf_feeds_what_its_accumulator_fed() -> None:
    graph = captured("gpt.py:loss")
    dropped = drop(graph, ["accumulate_grad"])
    fed = {(edge.src.removesuffix("/accumulate_grad:1"), edge.dst, edge.input_nr) for edge in graph.edges}
    own = {edge for edge in fed if not edge[1].endswith("accumulate_grad:1")}
    assert {(edge.src, edge.dst, edge.input_nr) for edge in dropped.edges} == own


def test_the_paths_from_a_weight_run_through_later_layers_only() -> None:
    graph = captured("gpt.py:loss")
    paths = between(graph, "h.5.mlp.c_fc.weight", "output")
    layers = {int(key.split(".")[1].split("/")[0]) for key in paths.nodes if key.startswith("h.")}
    assert layers == set(range(5, 12))
    assert set(paths.nodes) < set(ancestors(graph, "output").nodes)
