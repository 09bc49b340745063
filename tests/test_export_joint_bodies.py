"""Joint graphs of operators that call functions, such as cond and scan, and of checkpoints."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.10")


import gradir  # noqa: E402
from gradir.cli import main  # noqa: E402


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes a program, and returns what names a function of it."""
    monkeypatch.chdir(tmp_path)
    # Dynamo looks up the globals of a function in the module of that name.
    monkeypatch.delitem(sys.modules, "train", raising=False)

    def write(body: str, attribute: str = "loss") -> str:
        Path("train.py").write_text(f"import torch\nfrom exported_models import Mlp, Written\n\n{body}", "utf-8")
        return f"train.py:{attribute}"

    return write


CALLING = """from torch.utils.checkpoint import checkpoint

def cond(net, x):
    return torch.cond(x.sum() > 0, lambda x: net.a(x).relu(), lambda x: net.b(x), (x,))

def nested(net, x):
    def inner(x):
        return torch.cond(x.mean() > 1, lambda x: net.a(x).sin(), lambda x: net.b(x), (x,))
    return torch.cond(x.sum() > 0, inner, lambda x: x.sin(), (x,))

def scan(net, x):
    from torch._higher_order_ops.scan import scan
    return net.b(scan(lambda carry, row: (net.a(carry + row), row * 2), torch.zeros(4), x)[0])

def map_(net, x):
    from torch._higher_order_ops.map import map
    return net.b(map(lambda row: net.a(row).relu(), x))

def while_(net, x):
    from torch._higher_order_ops.while_loop import while_loop
    return while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, net.a(x)), (torch.tensor(0), net.b(x)))[1]

def checkpointed(net, x):
    return net.b(checkpoint(lambda x: net.a(x).relu(), x, use_reentrant=False))

def inside(net, x):
    return torch.cond(x.sum() > 0, lambda x: checkpoint(net.a, x, use_reentrant=False), net.b, (x,))

def around(net, x):
    return checkpoint(lambda x: torch.cond(x.sum() > 0, net.a, net.b, (x,)), x, use_reentrant=False)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        return FUNCTION(self, x)

def loss():
    return Net()(torch.ones(3, 4)).sum()
"""


def newer(name: str) -> Any:
    """A case that torch 2.11 traces, or refuses, by itself."""
    is_older = torch.__version__ < torch.torch_version.TorchVersion("2.13")
    return pytest.param(name, marks=pytest.mark.skipif(is_older, reason="torch 2.11 does otherwise"))


@pytest.mark.parametrize("name", ["cond", "nested", newer("scan"), "map_", "checkpointed", "inside"])
def test_modules_that_a_body_calls_get_their_gradients(name, program):
    named = program(CALLING.replace("FUNCTION", name))
    assert main(["capture", named, "--graph", "joint", "-o", "loss.gir"]) == 0
    found = gradir.load("loss.gir")
    assert not found.cuts
    assert {each.id for each in found.outputs if "grad" in each.id} == {
        f"output:grad.{module}.{kind}" for module in "ab" for kind in ("weight", "bias")
    }
    assert not any("L." in scope for scope in found.scopes)
    bodies = [node for node in found.nodes.values() if "graph_1" in node.scope]
    assert all(node.ext["phase"] == "backward" for node in bodies)


@pytest.mark.parametrize("name", ["while_", newer("around")])
def test_a_backward_that_torch_cannot_trace_is_one_line(name, program, capfd):
    named = program(CALLING.replace("FUNCTION", name))
    assert main(["capture", named, "--graph", "joint"]) == 2
    (told,) = capfd.readouterr().err.splitlines()
    assert "torch cannot trace the backward of this loss: " in told


def test_bodies_are_in_the_modules_of_eager(program):
    name = program("from exported_models import Cond\n\ndef loss():\n    return Cond()(torch.ones(3, 4)).sum()\n")
    assert main(["capture", name, "--graph", "joint", "-o", "found.gir"]) == 0
    found = gradir.load("found.gir")
    assert not found.cuts
    assert {node.scope for node in found.nodes.values() if node.op == "sin"} == {"true_graph_0"}
    assert "tangents_1" in {node.names[0] for node in found.nodes.values() if node.names}


def test_a_compiled_graph_has_no_cond_of_eager_and_misses_no_gradient_of_eager(program):
    body = "from exported_models import Cond\n\ndouble = torch.compile(lambda x: x * 2)\n\n"
    name = program(f"{body}def loss():\n    return double(Cond()(torch.ones(3, 4))).sum()\n")
    assert main(["capture", name, "--graph", "compiled", "-o", "found.gir"]) == 0
    found = gradir.load("found.gir")
    assert {node.op for node in found.nodes.values() if node.role == "function"} == {"mul"}
    assert not found.cuts
