"""Graphs of JAX in files, in every exporter and through every pass: nothing knows that they are of JAX."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

for package in ("jax", "flax", "equinox"):
    pytest.importorskip(package)

from jax_captures import capture_case, capture_case_anew  # noqa: E402
from jax_cases import CASES  # noqa: E402
from jax_models import MODELS  # noqa: E402
from plugins import BUILT_IN  # noqa: E402

import gradir  # noqa: E402

ROOT = Path(__file__).parents[1]
SOME = (
    "linen gpt with tied embeddings",
    "linen scanned stack checkpointed",
    "nnx transformer with tied embeddings",
    "equinox gru",
    "branches.cond_in_scan",
    "cuts.stop_gradient_of_a_target",
    "cuts.integer_leaf",
    "nested.gradient_penalty",
)
"""Those with loops, branches, checkpoints, modules, cuts and a backward inside."""


@pytest.mark.parametrize("exporter", BUILT_IN)
@pytest.mark.parametrize("name", SOME)
def test_every_exporter_writes_it_the_same_twice(name: str, exporter: str) -> None:
    graph = capture_case(name)
    text = graph.to(exporter)
    assert text == graph.to(exporter)
    assert text == gradir.loads(gradir.dumps(graph)).to(exporter)


@pytest.mark.parametrize("exporter", ["dot", "mermaid", "tree", "plain", "graphml", "nodelink", "cytoscape"])
@pytest.mark.parametrize("name", SOME[1:])
def test_exporters_of_nodes_show_every_operation(name: str, exporter: str) -> None:
    text = capture_case(name).to(exporter)
    for op in {node.op for node in capture_case(name).nodes.values() if node.role == "function"}:
        assert op in text


@pytest.mark.parametrize(
    "options",
    [
        {"hide_shape_ops": True},
        {"rollup": True},
        {"once": True},
        {"depth": 1},
        {"depth": 0},
        {"ancestors": "*reduce_sum:1"},
        {"descendants": "*dot_general:1"},
        {"focus": "*dot_general:1", "hops": 2},
        {"drop": "parameter"},
        {"hide_shape_ops": True, "rollup": True, "once": True, "depth": 1},
    ],
    ids="+".join,
)
@pytest.mark.parametrize("name", SOME)
def test_every_pass_returns_a_graph(name: str, options: dict[str, object]) -> None:
    graph = capture_case(name)
    for exporter in ("dot", "summary"):
        assert graph.to(exporter, **options) == graph.to(exporter, **options)


def test_hidden_shape_operations_are_those_of_jax_too() -> None:
    graph = capture_case("flow.mlp")
    text = graph.to("plain", hide_shape_ops=True)
    assert "broadcast_in_dim" in graph.to("plain")
    assert "broadcast_in_dim" not in text
    assert "tanh" in text


def test_the_summary_counts_saved_and_recomputed_bytes() -> None:
    text = capture_case("checkpoints.checkpoint").to("summary")
    assert "recomputed" in text


def test_modules_of_a_model_are_a_table() -> None:
    text = capture_case("linen gpt with tied embeddings").to("summary")
    for word in ("GPT", "h_0", "MultiHeadDot", "DenseGeneral", "Embed"):
        assert word in text


@pytest.mark.parametrize("name", SOME)
def test_a_graph_is_no_different_from_itself_and_is_from_another(name: str) -> None:
    graph = capture_case(name)
    assert not gradir.diff(graph, gradir.loads(gradir.dumps(graph)))
    assert gradir.diff(graph, capture_case("flow.mlp"))


def test_a_layer_more_is_the_difference() -> None:
    from jax_models.plain import SMALL, llama

    graphs = []
    for layers in (3, 4):
        fn, args = llama(SMALL._replace(layers=layers), scanned=False)
        graphs.append(gradir.capture(fn, *args))
    found = gradir.diff(*graphs)
    assert found
    assert gradir.patch(graphs[0], found) == graphs[1]
    kinds = {change.kind for change in found.changes if change.subject == "node"}
    assert kinds <= {"added", "changed", "renamed", "moved"}
    added = [change for change in found.changes if change.subject == "node" and change.kind == "added"]
    assert len(added) == len(graphs[1].nodes) - len(graphs[0].nodes)


DETERMINISM = """
import sys
sys.path.insert(0, "tests/support")
import gradir
from jax_cases import CASES
from jax_models import MODELS
for name, case in CASES.items():
    graph = gradir.capture(case.fn, *case.args, argnums=case.argnums, has_aux=case.has_aux)
    sys.stdout.write(gradir.dumps(graph).decode())
for name in sys.argv[1:]:
    model = MODELS[name]
    fn, args = model.make()
    graph = gradir.capture(fn, *args, has_aux=model.has_aux)
    sys.stdout.write(gradir.dumps(graph).decode())
"""


def test_another_process_with_another_hash_seed_writes_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    models = [name for name in SOME if name in MODELS]
    command = [sys.executable, "-c", DETERMINISM, *models]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    monkeypatch.chdir(ROOT)
    assert done.stdout == b"".join(gradir.dumps(capture_case(name)) for name in (*CASES, *models))


@pytest.mark.parametrize("name", [*SOME, "plain small llama"])
def test_a_second_capture_writes_the_same_bytes(name: str) -> None:
    assert gradir.dumps(capture_case_anew(name)) == gradir.dumps(capture_case(name))
