"""Joint graphs of forward and backward, beside the autograd graph of the same model."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

from exported_models import MODELS, exported  # noqa: E402

import gradir  # noqa: E402
from gradir.cli import main  # noqa: E402
from gradir.errors import CaptureError  # noqa: E402

NAMES = ("mlp", "tied", "written", "gpt", "unet")


@cache
def joint(name: str) -> gradir.Graph:
    model, inputs = MODELS[name]()
    return gradir.capture(model, *inputs, graph="joint")


def reached(graph: gradir.Graph) -> set[str]:
    return {each.names[0] for each in graph.nodes.values() if each.role == "parameter"}


@pytest.mark.parametrize("name", NAMES)
def test_gradients_come_to_the_parameters_of_the_autograd_graph(name):
    model, inputs = MODELS[name]()
    eager = gradir.capture(model, *inputs)
    gradients = {each.id.partition(".")[2] for each in joint(name).outputs if each.id.startswith("output:grad.")}
    assert gradients == reached(eager)
    assert {cut.names[0] for cut in joint(name).cuts} == {cut.names[0] for cut in eager.cuts}
    assert gradir.loads(gradir.dumps(joint(name))) == joint(name)


@pytest.mark.parametrize("name", NAMES)
def test_what_runs_in_the_backward_says_what_it_differentiates_in_the_same_module(name):
    nodes = joint(name).nodes
    backward = [each for each in nodes.values() if each.ext.get("phase") == "backward"]
    assert backward
    told = [each for each in backward if "differentiates" in each.ext]
    assert told
    for each in told:
        forward = nodes[each.ext["differentiates"]]
        assert forward.scope == each.scope
        assert "phase" not in forward.ext


def test_what_is_kept_for_the_backward_is_told_by_bytes_and_what_is_computed_anew():
    slots = [(node.id, slot) for node in joint("mlp").nodes.values() for slot in node.saved]
    held = {name: slot.bytes for name, slot in slots if slot.state == "held" and not slot.storage}
    assert held == {"layers.1/relu:1": 96, "layers.3/relu:1": 96}
    assert {name for name, slot in slots if slot.state == "recomputed"} == {"layers.1/detach:1", "layers.3/detach:1"}
    assert "saved for backward: 192 bytes" in gradir.export(joint("mlp"), "summary")


def test_a_program_that_was_exported_has_a_joint_graph_on_its_example_inputs():
    assert reached(gradir.capture(exported("mlp"), graph="joint")) == reached(joint("mlp"))


def test_the_command_traces_a_class_of_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import exported_models

    monkeypatch.chdir(tmp_path)
    arguments = ["capture", f"{exported_models.__file__}:Mlp", "--input", "float32[3,4]", "--graph", "joint"]
    assert main([*arguments, "-o", "joint.gir"]) == 0
    assert gradir.load("joint.gir").nodes.keys() == joint("mlp").nodes.keys()
    for exporter in ("html", "dot", "mermaid", "tree"):
        assert gradir.export(gradir.load("joint.gir"), exporter)


def test_what_has_no_joint_graph_is_refused_in_one_line():
    with pytest.raises(CaptureError, match="a joint graph is traced of a module and its inputs"):
        gradir.capture(torch.ones(2, requires_grad=True).exp(), graph="joint")
    with pytest.raises(CaptureError, match="needs a module and its inputs, and Mlp has none"):
        gradir.capture(torch.fx.symbolic_trace(MODELS["mlp"]()[0]), graph="joint")


def test_a_check_captures_what_the_file_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    import exported_models

    monkeypatch.chdir(tmp_path)
    program = [f"{exported_models.__file__}:Mlp", "--input", "float32[3,4]"]
    assert main(["capture", *program, "--graph", "joint", "-o", "joint.gir"]) == 0
    assert main(["check", *program, "--against", "joint.gir"]) == 0
    assert main(["capture", *program, "--graph", "joint", "--verify"]) == 2
    assert "verifying needs an autograd graph, which --graph joint does not capture" in capsys.readouterr().err
