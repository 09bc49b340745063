"""``gradir capture --flow`` and ``--graph forward`` in processes of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Run, fails, runner

import gradir
from gradir.cli import main

pytest.importorskip("torch")

SPEC_FILE = """
import torch
from torch import nn

tensor = torch.ones(2, requires_grad=True).exp()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)

    def forward(self, x):
        return self.fc(x).argmax(1)

instance = Net()

def loss():
    return instance, instance.fc(torch.ones(1, 3)).sum()

def half():
    cut = nn.Linear(3, 3)
    net = nn.Sequential(cut, instance.fc)
    return net, instance.fc(cut(torch.ones(1, 3)).detach()).sum()

def samples():
    with torch.no_grad():
        return torch.rand(2).bernoulli()
"""


@pytest.fixture
def run(tmp_path: Path, clean_environment: dict[str, str]) -> Run:
    (tmp_path / "spec.py").write_text(SPEC_FILE)
    return runner(tmp_path, clean_environment)


@pytest.mark.parametrize(
    ("spec", "options", "operations"),
    [
        ("loss", (), ["ones", "t", "addmm", "sum"]),
        ("samples", (), ["rand", "bernoulli"]),
        ("instance", ("--input", "float32[1,3]"), ["t", "addmm", "argmax"]),
        ("Net", ("--input", "float32[1,3]"), ["t", "addmm", "argmax"]),
        ("Net", ("--input", "float32[1,3]", "--fake"), ["t", "addmm", "argmax"]),
    ],
)
def test_the_graph_of_a_forward(
    run: Run, tmp_path: Path, spec: str, options: tuple[str, ...], operations: list[str]
) -> None:
    done = run("capture", f"spec.py:{spec}", "--graph", "forward", *options, "-o", "forward.gir")
    assert done.returncode == 0, done.stderr
    graph = gradir.load(tmp_path / "forward.gir")
    assert [node.op for node in graph.nodes.values() if node.role == "function"] == operations
    if spec != "samples":
        names = {node.id: node.scope for node in graph.nodes.values() if node.role == "parameter"}
        assert names == {"fc.weight": "fc", "fc.bias": "fc"}


def test_a_flow_leaves_the_autograd_graph_as_it_is(run: Run, tmp_path: Path) -> None:
    for options in ((), ("--flow",), ("--flow", "--verify")):
        done = run("capture", "spec.py:loss", *options, "-o", f"graph{len(options)}.gir")
        assert done.returncode == 0, done.stderr
    plain, flow, verified = (gradir.load(tmp_path / f"graph{number}.gir") for number in range(3))
    assert dict(plain.nodes) == dict(flow.nodes) == dict(verified.nodes)


def test_a_page_of_a_program_shows_the_line_that_cuts(run: Run, tmp_path: Path) -> None:
    for name, options in (("plain", ()), ("flow", ("--flow",))):
        done = run("export", "spec.py:half", *options, "-o", f"{name}.html")
        assert done.returncode == 0, done.stderr
    assert run("view", "spec.py:half", "-o", "viewed.html").returncode == 0
    assert run("capture", "spec.py:half", "-o", "half.gir").returncode == 0
    assert [cut.kind for cut in gradir.load(tmp_path / "half.gir").cuts] == ["unreached"] * 2
    assert main(["export", str(tmp_path / "half.gir"), "-o", str(tmp_path / "unknown.html")]) == 0
    assert (tmp_path / "unknown.html").read_bytes() != (tmp_path / "plain.html").read_bytes()
    plain, flow, viewed = ((tmp_path / f"{name}.html").read_bytes() for name in ("plain", "flow", "viewed"))
    assert plain == flow
    assert len(viewed) > 0


@pytest.mark.parametrize(("options", "runs"), [((), 2), (("--flow",), 1)])
def test_a_program_runs_again_for_its_page_only_without_the_flow(
    options: tuple[str, ...], runs: int, run: Run, tmp_path: Path
) -> None:
    text = (tmp_path / "spec.py").read_text()
    (tmp_path / "counted.py").write_text(text.replace("def half():", 'def half():\n    print("it runs")'))
    done = run("export", "counted.py:half", *options, "-o", "page.html")
    assert (done.returncode, done.stderr.count("it runs")) == (0, runs)


@pytest.mark.parametrize(
    ("spec", "options", "said"),
    [
        ("loss", ("--verify",), "verifying needs an autograd graph"),
        ("tensor", (), "the forward of a tensor has already run"),
        ("instance", (), "Net is a module; describe its input"),
        ("instance", ("--input", "float32[1,3]", "--fake"), "--fake cannot use a tensor with data"),
    ],
)
def test_an_impossible_request_is_one_line(run: Run, spec: str, options: tuple[str, ...], said: str) -> None:
    fails(run("capture", f"spec.py:{spec}", "--graph", "forward", *options), said)
