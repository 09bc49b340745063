"""What exporters, passes and files make of a graph of a forward, in which edges are of more kinds than data."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from dot_pictures import run_dot
from samples import forward

import gradir
from gradir.exporting import apply_passes, plan_passes
from gradir.ir.validate import problems

EXPORTS = {
    "cytoscape": "cyjs",
    "dot": "dot",
    "graphml": "graphml",
    "mermaid": "mmd",
    "model-explorer": "json",
    "modules": "txt",
    "nodelink": "json",
    "plain": "txt",
    "summary": "txt",
    "tree": "txt",
}
PASSES: list[dict[str, Any]] = [
    {"rollup": True},
    {"depth": 1},
    {"hide_shape_ops": True},
    {"focus": "add_:1", "hops": 1},
    {"ancestors": "argmax:1"},
    {"descendants": "fc.weight"},
]


@pytest.mark.parametrize("exporter", EXPORTS)
def test_golden(exporter: str, golden: Callable[[str, str], None]) -> None:
    golden(f"{exporter}/forward.{EXPORTS[exporter]}", forward().to(exporter))


def test_the_legend_of_a_picture_counts_omitted_nodes(golden: Callable[[str, str], None], dot_program: str) -> None:
    source = forward().to("dot", legend=True)
    golden("dot/forward-legend.dot", source)
    assert run_dot(dot_program, source, "canon")
    (legend,) = re.findall(r"^\tlabel=<(.*)>$", source, re.MULTILINE)
    assert all(f">{words}<" in legend for words in ("input", "══♦ to what writes to it", "· · ► to its view"))


def test_a_tree_shows_in_place_writes_and_views() -> None:
    down, up = forward().to("tree"), forward().to("tree", start="leaves")
    assert "└─ view of .weight parameter" in down
    assert "├─ writes to fc/mm:1" in down
    assert "written by add_:1" in up
    assert "base of ./t:1" in up


def test_a_model_explorer_graph_has_the_slots_of_all_inputs() -> None:
    text = forward().to("model-explorer")
    assert '{"sourceNodeId":"fc/mm:1","sourceNodeOutputId":"0","targetNodeInputId":"0"}' in text.replace(" ", "")


def test_a_file_keeps_it() -> None:
    for form in ("json", "msgpack"):
        assert gradir.loads(gradir.dumps(forward(), format=form)) == forward()


def test_it_is_valid_and_its_faults_are_reported() -> None:
    assert list(problems(forward())) == []
    nodes = [node for node in forward().nodes.values() if node.id != "leaf:1" and node.id != "fc/mm:1"]
    said = [str(problem) for problem in problems(gradir.Graph.of(nodes))]
    assert any("add_:1" in line and "input 0" in line for line in said), said


@pytest.mark.parametrize("options", PASSES, ids=str)
def test_passes_keep_the_kinds_of_edges(options: dict[str, Any]) -> None:
    made = apply_passes(plan_passes(options), forward())
    assert list(problems(made)) == []
    kinds = {(edge.dst, edge.input_nr): edge.kind for edge in forward().edges}
    for edge in made.edges:
        assert edge.kind == kinds.get((edge.dst, edge.input_nr), "data")


def test_an_in_place_write_inside_a_folded_module_is_an_output_of_it() -> None:
    made = apply_passes(plan_passes({"rollup": True, "depth": 1}), forward())
    (written,) = (edge for edge in made.edges if edge.dst == "add_:1" and edge.input_nr == 0)
    assert (made.nodes[written.src].role, written.kind) == ("module", "inplace")
    assert [str(tensor) for tensor in made.nodes[written.src].outputs] == ["float32[3, 4]", "float32[2, 4]"]


def as_fields(node: Any) -> dict[str, Any]:
    return {name: getattr(node, name) for name in node.__struct_fields__}


def test_a_diff_of_two_sees_that_an_operation_writes_in_place_no_more() -> None:
    nodes = [
        gradir.Node(**{**as_fields(node), "kinds": ()}) if node.id == "add_:1" else node
        for node in forward().nodes.values()
    ]
    after = gradir.Graph.of(nodes, forward().scopes.values(), producer=forward().producer)
    change = gradir.diff(forward(), after)
    assert "kinds" in str(change)
    assert gradir.patch(forward(), change) == after
    assert change.to("markdown")
