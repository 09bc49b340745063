"""The example of a GPT, as it is and edited in one layer: what the layers hold, and what git shows of an edit."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from tools import require

pytest.importorskip("torch")

from example_files import GPT_SPECS, attribute, capture_example, ids

import gradir

LAYER = {
    "accumulate_grad": 12,
    "native_layer_norm": 2,
    "addmm": 4,
    "split": 1,
    "bmm": 2,
    "div": 1,
    "masked_fill": 1,
    "softmax": 1,
    "gelu": 1,
    "add": 2,
}
LAYOUT = {"clone", "expand", "t", "transpose", "unsafe_view", "view"}
ADAPTER = {"accumulate_grad": 4, "addmm": 2, "relu": 1, "add": 1}


def layer_of(node: gradir.Node) -> int | None:
    match = re.match(r"h\.(\d+)(\.|$)", node.scope)
    return int(match[1]) if match else None


@pytest.mark.parametrize("spec", GPT_SPECS)
def test_gpt_layers(spec: str) -> None:
    graph = capture_example(spec)
    assert len(ids(graph, "function")) >= 500
    counts: dict[int | None, Counter[str]] = {layer: Counter() for layer in (None, *range(12))}
    for node in graph.nodes.values():
        if node.role == "function" and node.op not in LAYOUT:
            counts[layer_of(node)][node.op] += 1
    around = {"embedding": 2, "add": 1, "native_layer_norm": 1, "mm": 1, "log_softmax": 1, "nll_loss": 1}
    assert counts[None] == {**around, "accumulate_grad": 4}
    for layer in range(12):
        expected = Counter(LAYER)
        if layer == 3 and spec == "gpt.py:edited":
            expected += Counter(ADAPTER)
        if layer == 3 and spec == "gpt.py:swapped":
            expected = expected - Counter(["gelu"]) + Counter(["relu"])
        assert counts[layer] == expected


@pytest.mark.parametrize("spec", GPT_SPECS)
def test_gpt_layers_meet_in_the_residual_stream_only(spec: str) -> None:
    graph = capture_example(spec)
    crossing = {
        (edge.src, edge.dst)
        for edge in graph.edges
        if layer_of(graph.nodes[edge.src]) != layer_of(graph.nodes[edge.dst])
    }
    expected = {("h.11/add:2", "ln_f/native_layer_norm:1")}
    for layer in range(12):
        stream = f"h.{layer - 1}/add:2" if layer else "add:1"
        expected |= {(stream, f"h.{layer}.ln_1/native_layer_norm:1"), (stream, f"h.{layer}/add:1")}
    assert crossing == expected


def test_gpt_ties_its_head_to_its_embedding() -> None:
    graph = capture_example("gpt.py:loss")
    model, _ = attribute("gpt.py:loss")()
    assert sorted(ids(graph, "parameter")) == sorted(name for name, _ in model.named_parameters())
    assert graph.nodes["wte.weight"].names == ("wte.weight", "lm_head.weight")
    users = [edge.dst for edge in graph.edges if edge.src == "wte.weight/accumulate_grad:1"]
    assert users == ["wte/embedding:1", "lm_head/t:1"]


def changed_records(spec: str, tmp_path: Path) -> list[str]:
    """The id or path of every line that git shows as changed between the GPT example and another."""
    git = require("git")
    for name, file in (("gpt.py:loss", "before.gir"), (spec, "after.gir")):
        capture_example(name).save(tmp_path / file)
    line = [git, "diff", "--no-index", "--no-ext-diff", "--no-color", "-U0", "before.gir", "after.gir"]
    text = subprocess.run(line, cwd=tmp_path, capture_output=True, check=False).stdout.decode()
    body = [line for line in text.splitlines() if re.match(r"[+-](?![+-]{2} )", line)]
    found = [re.match(r'[+-]\{"(?:id|path)":"([^"]*)"', line) for line in body]
    assert body
    assert all(found), body
    return [match[1] for match in found if match]


def test_an_activation_swapped_in_one_layer_changes_that_layers_lines_only(tmp_path: Path) -> None:
    assert sorted(set(changed_records("gpt.py:swapped", tmp_path))) == [
        "h.3.mlp.act",
        "h.3.mlp.act/gelu:1",
        "h.3.mlp.act/relu:1",
        "h.3.mlp.c_proj/addmm:1",
        "h.3.mlp.c_proj/view:1",
    ]


def test_an_adapter_in_one_layer_changes_that_layers_lines_and_the_totals_above_it(tmp_path: Path) -> None:
    changed = changed_records("gpt.py:edited", tmp_path)
    outside = [record for record in changed if not record.startswith("h.3")]
    # The two scopes that hold layer 3 have more parameters below them.
    assert sorted(outside) == ["", "", "h", "h"]
    inside = {record for record in changed if not record.startswith("h.3.mlp.adapter")} - set(outside)
    assert inside == {"h.3", "h.3.mlp", "h.3.mlp/add:1", "h.3/add:2"}
