"""Front-ends that only capture can explain, verify and run on inputs as well, as far as a graph tells."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from plugins import register

from gradir import Builder, Cut, Graph, TensorMeta
from gradir.capturing import verify_alone
from gradir.ir import Node

FRAMEWORK = '''
"""Scalars that know what they were made of, and a model of them, like micrograd; `Box` is of another front-end."""

class Value:
    def __init__(self, data, inputs=(), op=""):
        self.data, self.inputs, self.op = data, inputs, op

    def __mul__(self, other):
        other = other if isinstance(other, Value) else type(self)(other)
        return type(self)(self.data * other.data, (self, other), "mul")

    def stopped(self):
        return type(self)(self.data, (self,), "stop")

class Box(Value):
    pass

class Net:
    def __init__(self):
        self.first, self.second, self.spare = Value(2.0), Value(3.0), Value(4.0)

    def __call__(self, x, scale=1.0):
        return self.first * x[0] * x[1] * self.second.stopped() * scale
'''
FRONTENDS = """
from gradir.errors import CaptureError
from gradir.ir import Builder, Cut, Producer, TensorMeta

class Captured:
    def __init__(self, graph):
        self.graph = graph

class ValueFrontend:
    framework, takes, install = "micro", "a value", "pip install micro"
    features = frozenset({"names"})
    seeds = []

    @classmethod
    def claims(cls, value):
        from micro import Value
        return type(value) is Value

    def capture(self, request):
        builder, meta, known = Builder(), TensorMeta("float64", ()), {}
        for name, value in vars(request.model or object).items() if request.model else ():
            known[value] = builder.tensor(name, meta, role="parameter")
        names = {value: name for name, value in vars(request.model).items()} if request.model else {}
        left = [request.target]
        while left:
            value = left.pop()
            missing = [each for each in value.inputs if each not in known]
            if missing and value.op != "stop":
                left += [value, *missing]
            elif value.op == "stop":
                known[value] = None
                builder.cut(Cut("stop_gradient", (names.get(value.inputs[0], "x"),), op="stop"))
            elif value not in known:
                made = value.op and builder.function(value.op, [known[each] for each in value.inputs], [meta])
                known[value] = made or builder.tensor("", meta)
        builder.output(known[request.target])
        return Captured(builder.build(producer=Producer(framework="micro", options={"flow": True})))

class BoxFrontend(ValueFrontend):
    features = frozenset({"seed", "names"})

    @classmethod
    def claims(cls, value):
        from micro import Box
        return type(value) is Box

    def tensor(self, dtype, shape):
        from micro import Box
        if dtype != "float64":
            raise ValueError(f"micro has no dtype {dtype!r}")
        return [Box(1.0) for _ in range(*shape)]

    def seed(self, number):
        print("seeded boxes", number)

class UnsteadyFrontend(BoxFrontend):
    def capture(self, request):
        request.target.op += "s"
        return super().capture(request)

    def seed(self, number):
        print("seeded unsteady", number)
"""
PROGRAM = """
from micro import Net, Box, Value

def loss():
    return Net()([2.0, 3.0])

def product(x):
    return x[0] * x[1]

def fails(x):
    return x.missing

box = Box(1.0) * 2.0
"""
COMMANDS = {
    "explained": ["explain", "prog.py:loss", "--frontend", "values"],
    "model": ["explain", "prog.py:Net", "--input", "float64[2]", "--overlay", "o.json", "--frontend", "values"],
    "keyword": ["capture", "prog.py:Net", "--input=float64[2]", "--input=scale=int64[]", "--verify", "-o", "k.gir"],
    "function": ["capture", "prog.py:product", "--input", "float64[2]", "--frontend", "boxes", "-o", "f.gir"],
    "dtype": ["capture", "prog.py:product", "--input", "int4[2]", "--frontend", "boxes"],
    "large": ["explain", "prog.py:product", "--input", "float64[99999999999,99999999999]", "--frontend", "values"],
    "raised": ["capture", "prog.py:fails", "--input", "float64[2]", "--frontend", "values"],
    "no-model": ["explain", "prog.py:box", "--input", "float64[2]", "--frontend", "boxes"],
    "values": ["explain", "prog.py:loss", "--values", "--frontend", "values"],
    "unsteady": ["capture", "prog.py:box", "--verify", "--frontend", "unsteady"],
    "file": ["explain", "k.gir"],
}
CODE = """
import contextlib, io, json, sys
from gradir.cli import main
found = {}
for name, words in json.loads(sys.argv[1]).items():
    if name == "keyword":
        words += ["--frontend", "values"]
    out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(words)
        out.flush()
    found[name] = status, out.buffer.getvalue().decode(), err.getvalue()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """By command its exit status, output and errors, and the folder in which it ran."""
    folder = tmp_path_factory.mktemp("fallbacks")
    for name, text in {"micro": FRAMEWORK, "fronts": FRONTENDS, "prog": PROGRAM}.items():
        (folder / f"{name}.py").write_text(text)
    for name in ("Value", "Box", "Unsteady"):
        known = {"Value": "values", "Box": "boxes"}.get(name, name.lower())
        register(folder, known, f"fronts:{name}Frontend", "gradir.frontends")
    command = [sys.executable, "-c", CODE, json.dumps(COMMANDS)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout), "folder": folder}


def test_a_program_is_explained_from_the_cuts_of_its_graph(found: dict[str, Any]) -> None:
    status, out, _ = found["explained"]
    assert status == 1
    assert "Values were not examined: front-end 'values' runs no backward pass." in out


def test_a_model_runs_on_inputs_and_names_its_parameters(found: dict[str, Any]) -> None:
    status, out, _ = found["model"]
    assert status == 1
    assert "2 of 3 parameters get no gradient" in out.splitlines()[0]
    assert "error[stop_gradient]: stop_gradient cuts second" in out
    assert "spare" in out
    assert json.loads((found["folder"] / "o.json").read_text())["channels"][0]["values"] == {"first": "reached"}


def test_a_program_and_its_file_are_explained_alike(found: dict[str, Any]) -> None:
    of_file = found["file"][1].replace(
        "a file has none; explain the program", "front-end 'values' runs no backward pass"
    )
    assert of_file == found["model"][1]


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        (
            "keyword",
            0,
            "checked prog.py:Net: 4 functions, 7 edges, 0 mismatches; front-end 'values' runs no backward pass",
        ),
        ("function", 0, "wrote f.gir: 4 nodes, 3 edges"),
        (
            "unsteady",
            2,
            "prog.py:box: the graph contradicts itself: a second capture of the same objects gives another graph\n",
        ),
        ("raised", 2, "prog.py:fails: fails raised AttributeError: 'list' object has no attribute 'missing'\n"),
    ],
)
def test_a_capture_says_how_it_went(found: dict[str, Any], command: str, status: int, said: str) -> None:
    assert found[command][0] == status
    assert said in found[command][2]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("dtype", "prog.py:product: --input 'int4[2]': micro has no dtype 'int4'"),
        ("large", "--input 'float64[99999999999,99999999999]': too large for memory"),
        ("no-model", "prog.py:box: cannot run an object of type Box on inputs; name a model or a function"),
        ("values", "front-end 'values' cannot explain lost gradients (--values): of those installed"),
    ],
)
def test_an_impossible_request_is_one_line(found: dict[str, Any], command: str, said: str) -> None:
    status, out, err = found[command]
    lines = [line for line in err.splitlines() if not line.startswith("seeded")]
    assert (status, out, len(lines)) == (2, "", 1)
    assert said in err


def test_each_front_end_of_a_framework_is_called_once_it_is_loaded(found: dict[str, Any]) -> None:
    told = "".join(found["explained"][1:]).splitlines()
    assert [line for line in told if line.startswith("seeded")] == ["seeded boxes 0", "seeded unsteady 0"]


def one(*more: Node, cuts: tuple[Cut, ...] = ()) -> Graph:
    builder, meta = Builder(), TensorMeta("float32", ())
    builder.output(builder.function("exp", [builder.tensor("w", meta, role="parameter")], [meta]))
    graph = builder.build()
    return Graph.of([*graph.nodes.values(), *more], (), cuts)


@pytest.mark.parametrize(
    ("graph", "wrong"),
    [
        (one(), ()),
        (one(Node("sin:1", op="sin")), ("sin:1: no output depends on it",)),
        (one(cuts=(Cut("unused", ("w",)),)), ("w: it is in the graph, and a cut says unused",)),
        (one(cuts=(Cut("stop_gradient", ("w",)),)), ()),
    ],
)
def test_a_graph_that_no_backward_can_fulfil_is_a_mismatch(graph: Graph, wrong: tuple[str, ...]) -> None:
    found = verify_alone("terms", graph)
    assert found.mismatches == wrong
    assert bool(found) is not wrong
    assert found.skipped
