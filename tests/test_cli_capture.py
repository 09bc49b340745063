"""``gradir capture`` in processes of its own: what a SPEC may be, and what the program behind it may do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import Run, fails, raises, runner

import gradir


@pytest.fixture
def run(tmp_path: Path, clean_environment: dict[str, str]) -> Run:
    return runner(tmp_path, clean_environment)


SPEC_FILE = """
import torch
from torch import nn

tensor = torch.ones(2, requires_grad=True).exp()
number = 3

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.emb = nn.Embedding(5, 3)

    def forward(self, x, ids=None):
        if ids is not None:
            print("hello from forward")
        return {"y": self.fc(x if ids is None else self.emb(ids) + x), "none": None, "count": torch.ones(1)}

instance = Net()

def factory():
    return Net()

def loss():
    net = Net()
    return net, net(torch.ones(1, 3))["y"].sum()

def alone():
    return Net()(torch.ones(1, 3))["y"].sum()

def detached():
    return tensor.detach()

def raises():
    raise ValueError("a problem\\nin two lines")

def leaves_in_backward():
    y = torch.ones(3, requires_grad=True) * 2
    y.register_hook(lambda gradient: exit(0))
    return y.sum()

def leaves():
    raise SystemExit(3)
"""


@pytest.fixture
def spec(run: Run, tmp_path: Path) -> Run:
    """Run `gradir capture` on the attributes of a SPEC file."""
    pytest.importorskip("torch")
    (tmp_path / "spec.py").write_text(SPEC_FILE)
    (tmp_path / "broken.py").write_text("import torch\n1 / 0\n")
    return lambda attribute, *more: run("capture", attribute if ":" in attribute else f"spec.py:{attribute}", *more)


def test_capture_a_tensor_to_stdout(spec: Run) -> None:
    done = spec("tensor")
    assert (done.returncode, done.stderr) == (0, "")
    assert list(gradir.loads(done.stdout.encode()).nodes) == ["leaf:1", "leaf:1/accumulate_grad:1", "exp:1", "output"]


def test_capture_a_callable_with_its_model(spec: Run, tmp_path: Path) -> None:
    done = spec("loss", "-o", "x.gir")
    assert done.returncode == 0
    graph = gradir.load(tmp_path / "x.gir")
    assert {"fc.weight", "fc/addmm:1", "sum:1", "output"} <= set(graph.nodes)
    assert [cut.names for cut in graph.cuts] == [("emb.weight",)]
    assert "wrote x.gir: " in done.stderr


def test_capture_a_callable_finds_the_model_that_ran(spec: Run) -> None:
    assert "fc/addmm:1" in gradir.loads(spec("alone").stdout.encode()).nodes


@pytest.mark.parametrize("attribute", ["Net", "instance", "factory"])
def test_capture_a_module_on_inputs(spec: Run, attribute: str) -> None:
    done = spec(attribute, "--input", "float32[4,3]", "--input", "ids=int64[4]")
    graph = gradir.loads(done.stdout.encode())
    assert {"fc/addmm:1", "emb/embedding:1", "output:y"} <= set(graph.nodes)
    assert "hello from forward" in done.stderr


def test_capture_fake_and_verified_writes_the_same_bytes(spec: Run) -> None:
    plain = spec("loss")
    verified = spec("loss", "--verify")
    assert verified.stdout == plain.stdout
    # The head says that it is fake, and nothing else differs.
    head, graph = spec("loss", "--fake").stdout.split('"fake":true,')
    assert head + graph == plain.stdout
    assert re.search(r"verified spec\.py:loss: \d+ functions, \d+ edges, \d+ executed, 0 mismatches", verified.stderr)


def test_capture_from_a_module_name(spec: Run) -> None:
    assert spec("spec:tensor").stdout == spec("spec.py:tensor").stdout


def test_capture_errors_are_one_line(spec: Run, tmp_path: Path) -> None:
    fails(spec("missing.py:x"), "missing.py: no such file")
    fails(spec("no_such_module:x"), "no_such_module: no such module")
    fails(spec("nothing"), "spec.py has no attribute 'nothing'", "factory", "loss")
    raises(spec("broken.py:x"), "broken.py raised ZeroDivisionError: division by zero")
    raises(spec("raises"), "raises raised ValueError: a problem in two lines")
    fails(spec("leaves"), "leaves raised SystemExit: 3")
    fails(spec("leaves_in_backward", "--verify", "-o", "v.gir"), "verifying needs a backward", "SystemExit: 0")
    fails(spec("detached"), "spec.py:detached: the output has no graph")
    fails(spec("number"), "the output is not a tensor but int")
    fails(spec("Net"), "Net is a module", "--input")
    fails(spec("Net", "--input", "float32"), "--input 'float32'", "dtype[sizes]")
    fails(spec("Net", "--input", "float33[1]"), "no dtype 'float33'")
    fails(spec("Net", "--input", "float32[1,,2]"), "integers separated by commas")
    fails(spec("Net", "--input", "float32[99999999,99999999]"), "--input 'float32[99999999,99999999]'")
    raises(spec("Net", "--input", "float32[1,7]"), "Net raised RuntimeError")
    fails(spec("tensor", "--input", "float32[1]"), "--input is for a module")
    fails(spec("instance", "--fake", "--input", "float32[1,3]"), "--fake cannot use a tensor with data")
    fails(spec("tensor", "--frontend", "jaks"), "unknown front-end 'jaks'", "torch")
    fails(spec("tensor", "-o", "no/such.gir"), "no/such.gir: cannot be written")
    assert not list(tmp_path.glob("*.gir.*"))


def test_a_spec_without_an_attribute_is_one_line(run: Run) -> None:
    pytest.importorskip("torch")
    for text in ("spec.py", "spec.py:", ":x", ""):
        fails(run("capture", text), "path/to/file.py:name")


NOISY = """
import atexit, os, sys, threading, time, asyncio
import torch

class Raises(BaseException):
    def __str__(self):
        raise ValueError

w = torch.randn(2, requires_grad=True)
seeded = w.exp().sum() if float(w.detach()[0]) > 0 else w.sin().sum()

def noisy():
    print("python")
    os.write(1, b"descriptor\\n")
    os.system("echo child")
    sys.__stdout__.write("kept\\n")
    atexit.register(print, "late")
    return torch.ones(2, requires_grad=True).exp()

def moves():
    os.chdir("/")
    return torch.ones(2, requires_grad=True).exp()

def cancelled():
    raise asyncio.CancelledError

def odd():
    raise Raises

class Lazy:
    @property
    def loss(self):
        raise KeyError("no")

lazy = Lazy()
"""


@pytest.fixture
def noisy(spec: Run, run: Run, tmp_path: Path) -> Run:
    """Run commands where noisy.py is."""
    (tmp_path / "noisy.py").write_text(NOISY)
    return run


def test_nothing_that_a_program_prints_gets_into_the_file(noisy: Run) -> None:
    done = noisy("capture", "noisy.py:noisy")
    assert done.returncode == 0
    assert "exp:1" in gradir.loads(done.stdout.encode()).nodes
    for word in ("python", "descriptor", "child", "kept", "late"):
        assert word in done.stderr


def test_a_program_that_changes_the_directory_moves_no_file(noisy: Run, tmp_path: Path) -> None:
    assert noisy("capture", "noisy.py:moves", "-o", "here.gir").returncode == 0
    assert (tmp_path / "here.gir").exists()
    assert noisy("check", "noisy.py:moves", "--against", "there.gir", "--update").returncode == 0
    assert (tmp_path / "there.gir").exists()
    assert noisy("check", "noisy.py:moves", "--against", "there.gir").returncode == 0


@pytest.mark.parametrize(
    ("attribute", "said"),
    [("cancelled", "raised CancelledError"), ("odd", "raised Raises"), ("lazy.loss", "raised KeyError: 'no'")],
)
def test_whatever_a_program_raises_is_its_traceback_and_one_line(noisy: Run, attribute: str, said: str) -> None:
    raises(noisy("capture", f"noisy.py:{attribute}"), said)


def test_the_seed_reaches_what_is_made_at_import(noisy: Run) -> None:
    graphs = {seed: [noisy("capture", "noisy.py:seeded", "--seed", seed).stdout for _ in range(2)] for seed in "04"}
    assert all(first == second for first, second in graphs.values())
    assert len({text for pair in graphs.values() for text in pair}) == 2
    fails(noisy("capture", "noisy.py:seeded", "--seed", "99999999999999999999"), "--seed: expected integer, 0 to ")


def test_a_file_with_source_lines_is_checked_with_source_lines(noisy: Run) -> None:
    assert noisy("capture", "noisy.py:moves", "--sources", "-o", "s.gir").returncode == 0
    done = noisy("check", "noisy.py:moves", "--against", "s.gir")
    assert (done.returncode, done.stdout[:37]) == (0, "no difference in the autograd graph; ")
