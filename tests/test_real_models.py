"""Capture of model code that was not written for gradir, against what the engine and the modules themselves say."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from example_files import EXAMPLES, GRAPHS, attribute, live  # noqa: E402
from module_truth import ModuleTruth  # noqa: E402
from msgspec.structs import replace  # noqa: E402
from real_models import MODELS, row, versions  # noqa: E402

import gradir  # noqa: E402
from gradir.frontends.pytorch.reading.assemble import LiveGraph  # noqa: E402
from gradir.frontends.pytorch.target import capture_target  # noqa: E402
from gradir.ir import Graph, Node  # noqa: E402
from gradir.ir.totals import totals  # noqa: E402
from gradir.ir.validate import problems  # noqa: E402
from gradir.passes import fold, scope_depth  # noqa: E402
from gradir.request import CaptureRequest  # noqa: E402

nn = torch.nn

DOCS = Path(__file__).resolve().parents[1] / "docs" / "verification-models.txt"
EXPORTERS = (
    "plain",
    "tree",
    "dot",
    "mermaid",
    "nodelink",
    "graphml",
    "cytoscape",
    "model-explorer",
    "modules",
    "summary",
)
LLAMA_PARAMETERS = 6_738_415_616

each_model = pytest.mark.parametrize("name", MODELS)


@pytest.fixture(autouse=True)
def _models_are_not_searched() -> None:
    """What one test imports for its model, no search among all objects in the next one goes through."""
    gc.collect()
    gc.freeze()


class Captured(NamedTuple):
    model: nn.Module
    live: LiveGraph
    truth: ModuleTruth

    @property
    def graph(self) -> Graph:
        return self.live.graph


@cache
def captured(name: str) -> Captured:
    real = MODELS[name]()
    with ModuleTruth.of(real.model) as truth, gradir.record(real.model) as recorder:
        loss = real.loss()
    return Captured(real.model, recorder.live_capture(loss), truth)


def wrong_scopes(live: LiveGraph, truth: ModuleTruth) -> list[tuple[str, str]]:
    """The id of each function whose scope is another than the module that made it, with that module."""
    return [
        (node_id, made_by)
        for fn, node_id in live.grad_fns.items()
        if not hasattr(fn, "variable") and live.graph.nodes[node_id].scope != (made_by := truth.made_by.get(fn, ""))
    ]


class Flow:
    """The gradients that a backward sends down each edge, and those that arrive."""

    def __init__(self, live: LiveGraph) -> None:
        self._live = live
        self._sent: defaultdict[tuple[str, int], list[torch.Tensor]] = defaultdict(list)
        self._arrived: dict[str, Any] = {}
        self.faults: list[str] = []
        hooks = [hook for fn, node_id in live.grad_fns.items() for hook in self._hook(fn, live.graph.nodes[node_id])]
        outputs = [found.tensor for found in live.captured if found.role == "output"]
        seeds = [torch.ones_like(tensor) for tensor in outputs]
        for node, seed in zip(live.graph.outputs, seeds, strict=True):
            self._send(node, [seed])
        torch.autograd.backward(outputs, seeds, retain_graph=True)
        for hook in hooks:
            hook.remove()
        for tensor in live.leaves.values():
            tensor.grad = None
        self._compare()

    def _hook(self, fn: Any, node: Node) -> Iterator[Any]:
        yield fn.register_prehook(partial(self._arrive, node))
        if not hasattr(fn, "variable"):
            yield fn.register_hook(lambda sent, _: self._send(node, sent))

    def _arrive(self, node: Node, gradients: Any) -> None:
        self._arrived[node.id] = gradients

    def _send(self, node: Node, gradients: Any) -> None:
        if len(gradients) != len(node.inputs):
            self.faults.append(f"{node.id} sent {len(gradients)} gradients")
        for ref, gradient in zip(node.inputs, gradients, strict=False):
            # Where no edge is, the engine drops what a function like cat sends to all its inputs alike.
            if gradient is not None and ref is not None:
                self._sent[ref.id, ref.output_nr].append(gradient)

    def _compare(self) -> None:
        for node_id, gradients in self._arrived.items():
            for number, arrived in enumerate(gradients):
                sent = self._sent.pop((node_id, number), [])
                if (arrived is None) != (not sent) or (sent and not torch.allclose(sum(sent), arrived, equal_nan=True)):
                    self.faults.append(f"{node_id}: what arrived at output {number} is not what was sent")
        self.faults += [f"{node_id}: nothing arrived at output {number}" for node_id, number in self._sent]


@each_model
def test_the_engine_agrees(name: str) -> None:
    found = captured(name).live.verify()
    assert found.mismatches == ()
    assert found.executed == found.nodes > 0


@each_model
def test_gradient_flows_along_the_edges(name: str) -> None:
    assert Flow(captured(name).live).faults == []


@each_model
def test_every_function_has_the_scope_of_the_module_that_made_it(name: str) -> None:
    _, live, truth = captured(name)
    assert wrong_scopes(live, truth) == []
    made = Counter(path for fn, path in truth.made_by.items() if fn in live.grad_fns)
    assert made
    paths = {path for path, _ in captured(name).model.named_modules()}
    assert set(live.graph.scopes) == paths >= {node.scope for node in live.graph.nodes.values()}


@each_model
def test_every_parameter_is_there_under_all_its_names(name: str) -> None:
    model, live, _ = captured(name)
    names: defaultdict[int, list[str]] = defaultdict(list)
    for parameter_name, parameter in model.named_parameters(remove_duplicate=False):
        if parameter.requires_grad:
            names[id(parameter)].append(parameter_name)
    shown = [node.names for node in live.graph.nodes.values() if node.role == "parameter"]
    cut = [cut.names for cut in live.graph.cuts]
    assert sorted([*shown, *cut]) == sorted(tuple(owned) for owned in names.values())
    reached = (tensor for tensor in live.leaves.values() if isinstance(tensor, nn.Parameter))
    assert totals(live.graph).parameters == sum(tensor.numel() for tensor in reached)


@pytest.mark.parametrize(
    ("name", "tied"),
    [
        ("GPT-2", ["transformer.wte.weight", "lm_head.weight"]),
        ("T5", ["shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"]),
        ("BERT", ["bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"]),
        ("Whisper", ["model.decoder.embed_tokens.weight", "proj_out.weight"]),
    ],
)
def test_tied_weights_are_one_node(name: str, tied: list[str]) -> None:
    graph = captured(name).graph
    (node,) = [node for node in graph.nodes.values() if set(tied) & set(node.names)]
    assert sorted(node.names) == sorted(tied)
    users = {graph.nodes[edge.dst].scope for edge in graph.edges if edge.src == f"{node.id}/accumulate_grad:1"}
    assert len(users) > 1


@each_model
def test_saved_and_loaded_it_is_the_same(name: str, tmp_path: Path) -> None:
    graph = captured(name).graph
    graph.save(tmp_path / "model.gir")
    assert gradir.load(tmp_path / "model.gir") == graph


@each_model
def test_built_and_captured_again_it_is_the_same(name: str) -> None:
    real = MODELS[name]()
    with gradir.record(real.model) as recorder:
        loss = real.loss()
    assert gradir.dumps(recorder.capture(loss)) == gradir.dumps(captured(name).graph)


@each_model
@pytest.mark.parametrize("exporter", EXPORTERS)
def test_it_is_exported(name: str, exporter: str) -> None:
    graph = captured(name).graph
    text = graph.to(exporter, **({"all": True} if exporter == "dot" else {}))
    assert text.endswith("\n")
    functions = [node for node in graph.nodes.values() if node.role == "function"]
    if exporter == "plain":
        assert len(re.findall(r"^function ", text, re.MULTILINE)) == len(functions)
    elif exporter == "dot":
        drawn = re.findall(r'^\t+n\d+ \[label="', text, re.MULTILINE)
        assert len(functions) <= len(drawn) <= len(graph.nodes)
    else:
        assert type(captured(name).model).__name__ in text or len(text.splitlines()) > len(graph.outputs)


@each_model
def test_folded_to_depth_one(name: str) -> None:
    graph = captured(name).graph
    folded = fold(graph, 1)
    assert list(problems(folded)) == []
    # What lies in a list is folded there, since nothing calls the list.
    uncalled = {scope.path for scope in graph.scopes.values() if not scope.calls}
    outer = [node for node in folded.nodes.values() if node.scope not in uncalled]
    assert all(scope_depth(node.scope) < 1 or node.role in {"output", "view_base"} for node in outer)
    modules = [node for node in folded.nodes.values() if node.role == "module"]
    inside = [node for node in graph.nodes.values() if node.scope and node.id not in folded.nodes]
    assert sum(int(str(node.attrs["nodes"])) for node in modules) == len(inside)
    assert totals(folded).parameters == totals(graph).parameters
    assert {node.names[0].partition(" ")[0] for node in modules} == {outermost(node.scope, graph) for node in inside}


def outermost(scope: str, graph: Graph) -> str:
    """The first module on a path that is no list: one that was not called while one in it was."""
    parts = scope.split(".")
    paths = [".".join(parts[: stop + 1]) for stop in range(len(parts))]
    called = [path for path, module in graph.scopes.items() if module.calls]
    return next(path for path in paths if path in called or not any(other.startswith(f"{path}.") for other in called))


def test_a_wrong_scope_would_be_found() -> None:
    _, live, truth = captured("LLaMA")
    moved = "model.layers.0.mlp.act_fn/silu:1"
    nodes = {**live.graph.nodes, moved: replace(live.graph.nodes[moved], scope="model.layers.0.mlp")}
    wrong = live._replace(graph=Graph.of(nodes.values()))
    assert wrong_scopes(wrong, truth) == [(moved, "model.layers.0.mlp.act_fn")]


def test_a_wrong_edge_would_be_found() -> None:
    x = torch.arange(3.0, requires_grad=True)
    live = capture_target(CaptureRequest(target=x.exp() * x.sin()))
    product = live.graph.nodes["mul:1"]
    swapped = {**live.graph.nodes, "mul:1": replace(product, inputs=product.inputs[::-1])}
    assert Flow(live._replace(graph=Graph.of(swapped.values()))).faults == [
        "sin:1: what arrived at output 0 is not what was sent",
        "exp:1: what arrived at output 0 is not what was sent",
    ]


@each_model
def test_the_table_in_the_docs_is_current_and_no_false_alarm_is_reported_in_any_way(name: str) -> None:
    text = DOCS.read_text(encoding="utf-8")
    stated = [each for each in re.findall(r"^With (.*):$", text, re.MULTILINE) if "torch" in each]
    assert stated, "the page says what its numbers depend on"
    found = row(name)
    # On other releases too.
    assert found.endswith(" | 0 | 0 |")
    if stated != [versions()]:
        pytest.skip(f"the table was made with {stated[0]}")
    assert f"\n{found}\n" in text, "run `make verification`, which writes it"


def test_the_table_in_the_docs_has_every_model_once() -> None:
    _, _, head, _, *rows = DOCS.read_text(encoding="utf-8").splitlines()
    assert head.startswith("| model | class |")
    assert [line.split(" | ")[0].removeprefix("| ") for line in rows] == [*MODELS]


@pytest.mark.parametrize("spec", GRAPHS)
def test_without_data_the_graph_is_the_same(spec: str) -> None:
    fake = live(attribute(spec), fake=True).graph
    real = live(attribute(spec)).graph
    # All but the head, which says that there were no data.
    assert fake.producer.options == {**real.producer.options, "fake": True}
    assert replace(fake, producer=real.producer) == real


def test_a_small_llama_with_data_and_without() -> None:
    small = attribute("llama.py:small")
    with_data, without = live(small), live(small, fake=True)
    for captured in (with_data, without):
        found = captured.verify()
        assert found.mismatches == ()
        assert found.executed == found.nodes > 0
    # Which attention it calls and how it reshapes may depend on the data being there; nothing else does.
    assert parameters(with_data.graph) == parameters(without.graph)
    assert with_data.graph.scopes == without.graph.scopes


def parameters(graph: Graph) -> dict[str, Node]:
    return {node.id: node for node in graph.nodes.values() if node.role == "parameter"}


MEASURED = """
import resource, sys
import torch, transformers
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
from gradir.cli import main
status = main(sys.argv[1:])
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(status, (after - before) * (1 if sys.platform == "darwin" else 1024))
"""


def test_seven_billion_parameters_fit_in_a_gigabyte(tmp_path: Path) -> None:
    pytest.importorskip("resource")
    file = tmp_path / "llama.gir"
    words = ["capture", str(EXAMPLES / "llama.py:loss"), "--fake", "--verify", "-o", str(file)]
    line = [sys.executable, "-c", MEASURED, *words]
    done = subprocess.run(line, capture_output=True, check=False, env=dict(os.environ), timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    status, memory = map(int, done.stdout.split())
    assert status == 0, done.stderr.decode()
    assert memory < 1e9
    assert "2,482 functions, 3,125 edges, 2,482 executed, 0 mismatches" in done.stderr.decode()
    graph = gradir.load(file)
    counts = totals(graph)
    assert (counts.parameters, counts.saved_bytes > 20_000_000_000) == (LLAMA_PARAMETERS, True)
    assert len({node.scope for node in graph.nodes.values() if node.op == "silu"}) == 32
    assert graph.cuts == ()
    assert graph.nodes["lm_head.weight"].outputs[0].shape == (32_000, 4_096)
    assert graph.scopes["model.layers.31.self_attn"].class_name == "LlamaAttention"
