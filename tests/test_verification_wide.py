"""A sample of `make verification-wide`, and that its oracle would notice what is wrong."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from module_truth import ModuleTruth  # noqa: E402
from msgspec.structs import replace  # noqa: E402
from wide.oracle import disagreements, engine  # noqa: E402
from wide.pool import join_results, results_of  # noqa: E402
from wide.record import document, record, totals  # noqa: E402
from wide.results import PROGRAM, Kept, Result, versions  # noqa: E402
from wide.sample import SAMPLE  # noqa: E402
from wide.shrinking import shrunk  # noqa: E402
from wide.workers import call_isolated, two_workers  # noqa: E402

import gradir  # noqa: E402
from gradir.ir import Graph, Ref  # noqa: E402

nn = torch.nn

DOCS = Path(__file__).resolve().parents[1] / "docs"
RECORD = json.loads((DOCS / "verification-wide.json").read_text("utf-8"))


def test_the_sample_agrees_with_torch() -> None:
    with two_workers() as workers:
        results = {result.key: result for result in results_of(workers, list(SAMPLE))}
    assert sorted(results) == sorted(SAMPLE)
    assert [(key, result.failure, result.detail) for key, result in results.items() if result.failure] == []
    assert {key: result.mismatches for key, result in results.items() if result.mismatches} == {}
    assert all(result.nodes and result.reached and len(result.digests) == 2 for result in results.values())
    if all(RECORD["packages"][package] == versions()[package] for package in ("torch", "transformers")):
        missing = [key for key, result in results.items() if record(result) not in RECORD["results"]]
        assert missing == [], "run `make verification-wide`, which writes the file"


def test_the_record_has_no_mismatch_and_the_page_its_totals() -> None:
    assert RECORD["missing"] == 0
    assert sum("failure" not in one for one in RECORD["results"]) > 300
    assert [one for one in RECORD["results"] if "mismatches" in one] == []
    assert "\n".join(totals(RECORD["results"])) in (DOCS / "verification.md").read_text("utf-8")


def test_the_record_of_exported_programs_has_no_mismatch_and_the_page_its_totals() -> None:
    exported = json.loads((DOCS / "verification-exported.json").read_text("utf-8"))["results"]
    assert [one for one in exported if "mismatches" in one] == []
    assert "\n".join(totals(exported)) in (DOCS / "verification.md").read_text("utf-8")


def test_a_program_that_differs_between_processes_is_no_fault_of_a_capture() -> None:
    one, other = ({"json": text, PROGRAM: text} for text in "ab")
    failed = join_results(Result("timm", "one", digests=one), Result("timm", "one", digests=other))
    assert (failed.failure, failed.mismatches) == ("program", [])
    wrong = join_results(Result("timm", "one", digests=one), Result("timm", "one", digests={**one, "json": "b"}))
    assert wrong.mismatches == ["json: another process writes other bytes"]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.idle = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        hidden = self.first(x)
        return self.second(hidden.tanh() * hidden)


def said_of(change: Callable[[Graph], Graph] = lambda graph: graph) -> list[str]:
    """What the oracle says of the graph of a model after a change to the graph."""
    torch.manual_seed(0)
    model, x = Model(), torch.ones(5, 3)
    ran = engine(model, model(x).sum(), lambda: model(x).sum())
    model.zero_grad()
    with ModuleTruth.of(model) as truth, gradir.record(model) as recorder:
        loss = model(x).sum()
    return list(disagreements(change(recorder.capture(loss)), loss, model, truth, ran))


def with_node(name: str, **fields: Any) -> Callable[[Graph], Graph]:
    def change(graph: Graph) -> Graph:
        nodes = {**graph.nodes, name: replace(graph.nodes[name], **fields)}
        return Graph.of(nodes.values(), graph.scopes.values(), graph.cuts)

    return change


def without_the_cut(graph: Graph) -> Graph:
    return Graph.of(graph.nodes.values(), graph.scopes.values(), graph.cuts[:1])


def with_an_other_scope(graph: Graph) -> Graph:
    scopes = [replace(scope, calls=2) if scope.path == "first" else scope for scope in graph.scopes.values()]
    return Graph.of(graph.nodes.values(), scopes, graph.cuts)


def with_smaller_storage(graph: Graph) -> Graph:
    saved = tuple(replace(slot, bytes=1) for slot in graph.nodes["tanh:1"].saved)
    return with_node("tanh:1", saved=saved)(graph)


def test_an_unchanged_graph_has_no_report() -> None:
    assert said_of() == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (with_node("mul:1", scope="second"), ["mul:1: made by the model"]),
        (with_node("second/addmm:1", scope="first"), ["second/addmm:1: made by second"]),
        (with_node("tanh:1", native="SinBackward0"), ["wiring: "]),
        (with_node("mul:1", inputs=(Ref("tanh:1", 0), Ref("tanh:1", 0))), ["wiring: "]),
        (with_node("mul:1", inputs=(Ref("tanh:1", 0), None)), ["10 edges were captured of 11", "wiring: "]),
        (
            with_node("first.bias", names=("first.weight",)),
            ["first.bias: has a gradient, and is not said to be reached"],
        ),
        (with_node("tanh:1", saved=()), ["tanh:1: keeps ['result'], said to keep []"]),
        (with_smaller_storage, ["tanh:1: result is a torch.float32 (5, 4) of 80 bytes"]),
        (with_node("tanh:1", outputs=()), ["tanh:1: outputs [], torch has "]),
        (without_the_cut, ["idle.bias: has no gradient, and is not said to be cut"]),
        (with_an_other_scope, ["first: 2 calls were recorded of 1"]),
    ],
)
def test_of_a_wrong_graph_the_oracle_says_what(change: Callable[[Graph], Graph], said: list[str]) -> None:
    found = said_of(change)
    assert len(found) == len(said), found
    assert all(part in text for part, text in zip(said, found, strict=True)), found


def test_a_crash_costs_one_row() -> None:
    result = call_isolated(lambda key: os._exit(3), ["family/name"])
    assert (result.key, result.failure, result.detail) == ("family/name", "crash", "the process ended with 3")


def test_a_hanging_case_costs_one_row() -> None:
    assert call_isolated(lambda key: time.sleep(60), ["family/name"], seconds=0.2).failure == "time"


def test_a_case_that_runs_out_of_memory_costs_one_row() -> None:
    result = call_isolated(lambda key: torch.zeros(1 << 40), ["family/name"])
    assert (result.failure, result.mismatches) == ("memory", [])


def test_a_case_that_raises_is_a_mismatch() -> None:
    assert call_isolated(lambda key: 1 / 0, ["family/name"]).mismatches == ["ZeroDivisionError: division by zero"]


def test_a_later_run_continues(tmp_path: Path) -> None:
    Kept(tmp_path).add(Result("family", "name", nodes=3))
    with (tmp_path / "results.jsonl").open("ab") as file:
        file.write(b'{"family":"cut o')
    assert Kept(tmp_path).results == {"family/name": Result("family", "name", nodes=3)}
    (tmp_path / "fingerprint").write_text("of other code")
    assert Kept(tmp_path).results == {}


def test_widths_are_divided_and_layers_of_each_kind_stay() -> None:
    config = {
        "hidden_size": 512,
        "num_attention_heads": 8,
        "num_hidden_layers": 12,
        "layer_types": ["linear", "linear", "full"] * 4,
        "vocab_size": 50000,
        "image_token_id": 49999,
        "vision_config": {"model_type": "vision", "image_token": 1, "image_token_id": 49999, "image_size": 224},
    }
    assert shrunk(config, 16, 64) == {
        "hidden_size": 32,
        "num_attention_heads": 8,
        "num_hidden_layers": 2,
        "layer_types": ["linear", "full"],
        "vocab_size": 128,
        "image_token_id": 127,
        "vision_config": {"model_type": "vision", "image_token": 1, "image_token_id": 127, "image_size": 64},
    }


def test_the_record_has_failures_and_mismatches() -> None:
    results = [
        Result("timm", "one", "_One", nodes=1200, edges=3, mismatches=["a|b"], digests={"json": "of this machine"}),
        Result("timm", "two", failure="time", detail="more than 300 s"),
    ]
    read = json.loads(document(results, missing=1))
    assert (read["missing"], read["failures"]["time"]) == (1, "it takes more than five minutes")
    assert read["results"] == [
        {"family": "timm", "name": "one", "class_name": "One", "nodes": 1200, "edges": 3, "mismatches": ["a|b"]},
        {"family": "timm", "name": "two", "failure": "time"},
    ]
    assert list(totals(read["results"]))[1] == "| **all** | 2 | 1 | 1,200 | 3 | 1 |"
