"""Source lines and the names of variables."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import forked
import pytest

torch = pytest.importorskip("torch")

from torch.autograd.function import BackwardCFunction  # noqa: E402
from torch.distributions import Categorical, Normal  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402

import gradir  # noqa: E402

nn = torch.nn


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        hidden = self.fc(x)
        for _ in range(2):
            hidden = hidden * 2
        left, right = hidden.split(1)
        return torch.tanh(left + right)


def test_sources_are_lines_of_the_users_program() -> None:
    model = Branches()
    with gradir.record(model, sources=True) as rec:
        loss = model(torch.ones(2, 3)).sum()
    graph = rec.capture(loss)
    first = Branches.forward.__code__.co_firstlineno
    lines = {node.id: node.source.line - first for node in graph.nodes.values() if node.source and node.scope == ""}
    assert {key: line for key, line in lines.items() if key != "sum:1"} == {
        "mul:1": 3,
        "mul:2": 3,
        "split:1": 4,
        "add:1": 5,
        "tanh:1": 5,
    }
    sources = {node.source for node in graph.nodes.values() if node.scope == "fc" and node.source}
    assert {source.line - first for source in sources} == {1}
    assert all(source.file.endswith("tests/test_sources.py") for source in sources)
    assert not any(source.file.startswith(("/", "..")) for source in sources)


@pytest.mark.parametrize(
    ("name", "shown"), [("<a\nb>", "<a\\nb>"), ("/nowhere/red\x1b[31m.py", "red\\x1b[31m.py"), ("a\ud800", "a\\ud800")]
)
def test_the_name_that_a_program_gives_to_code_is_shown_on_one_line(name: str, shown: str) -> None:
    space = {}
    exec(compile("def double(x):\n    return x * 2\n", name, "exec"), space)
    with gradir.record(sources=True) as rec:
        y = space["double"](torch.ones(2, requires_grad=True))
    assert rec.capture(y).nodes["mul:1"].source == gradir.Source(shown, 2, "double")


def test_results_are_named_by_the_variable_they_are_assigned_to() -> None:
    model = Branches()
    with gradir.record(model, sources=True) as rec:
        loss = model(torch.ones(2, 3)).sum()
        total = loss * 2
    nodes = rec.capture(total).nodes.values()
    assert {node.id: node.names for node in nodes if node.role == "function" and node.names} == {
        "fc/addmm:1": ("hidden",),
        "mul:1": ("hidden",),
        "mul:2": ("hidden",),
        "sum:1": ("loss",),
        "mul:3": ("total",),
    }


def test_a_given_name_is_before_the_variable() -> None:
    x = torch.ones(2, requires_grad=True)
    with gradir.record(sources=True) as rec:
        y = x.exp()
    assert rec.capture(y, params={"mine": y}).nodes["exp:1"].names == ("mine",)


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("<eval_with_key>.7", "<eval_with_key>"),
        ("<eval_with_key>.12 from /code/train.py:5 in forward", "<eval_with_key>"),
        ("<lambdifygenerated-3>", "<lambdifygenerated>"),
        ("<string>", "<string>"),
        ("train-3.py", "train-3.py"),
    ],
)
def test_the_name_of_generated_code_has_no_number_of_the_process(file: str, shown: str) -> None:
    scope: dict[str, Any] = {}
    exec(compile("def generated(x): return x.exp()", file, "exec"), scope)
    with gradir.record(sources=True) as rec:
        y = scope["generated"](torch.ones(1, requires_grad=True))
    source = rec.capture(y).nodes["exp:1"].source
    assert source is not None
    assert source.file == shown


def test_sources_are_recorded_on_request_only() -> None:
    with gradir.record() as rec:
        y = torch.ones(2, requires_grad=True).exp()
    graph = rec.capture(y)
    assert all(node.source is None for node in graph.nodes.values())
    assert graph.producer.options["sources"] is False


def test_the_mode_is_left_when_the_forward_raises() -> None:
    from torch.overrides import _get_current_function_mode_stack

    with pytest.raises(ZeroDivisionError), gradir.record(sources=True):
        1 / 0  # noqa: B018
    assert _get_current_function_mode_stack() == []


class Doubling(TorchFunctionMode):
    """A mode with a helper of its own, which runs more than it was asked for, and a module too."""

    def __init__(self) -> None:
        super().__init__()
        self.module = Sine()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return self.called(func, args, kwargs or {})

    def called(self, func, args, kwargs):
        result = func(*args, **kwargs)
        return self.module(result) * 2 if func is torch.Tensor.exp else result


class Sine(nn.Module):
    def forward(self, x):
        return x.sin()


class Cube(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * x * x * grad


cube = Cube.apply


def lines_of(graph: gradir.Graph, function) -> dict[str, int]:
    """The lines below the first of a function, which every operation has to be in."""
    nodes = [node for node in graph.nodes.values() if node.role == "function" and node.op != "accumulate_grad"]
    assert {node.source and node.source.function.rpartition(".")[2] for node in nodes} == {function.__name__}
    return {node.op: node.source.line - function.__code__.co_firstlineno for node in nodes}


def names_of(graph: gradir.Graph) -> dict[str, tuple[str, ...]]:
    return {node.id: node.names for node in graph.nodes.values() if node.role == "function" and node.names}


def recorded(function, *args) -> gradir.Graph:
    with gradir.record(sources=True) as rec:
        result = function(*args)
    return rec.capture(result)


def under_a_mode(x, mode):
    y = x.cos()
    with mode:
        y = y.exp()
        y = nn.functional.tanh(y)
    y = y.sqrt()
    return y.neg()


@pytest.mark.parametrize("mode", [Doubling, lambda: torch.device("cpu"), lambda: gradir.record(sources=True)])
def test_a_mode_does_not_take_the_lines_of_what_runs_under_it(mode) -> None:
    x = torch.ones(2, requires_grad=True)
    graph = recorded(under_a_mode, x, mode())
    more = {"sin": 3, "mul": 3} if mode is Doubling else {}
    assert lines_of(graph, under_a_mode) == {"cos": 1, "exp": 3, **more, "tanh": 4, "sqrt": 5, "neg": 6}
    assert names_of(graph)["tanh:1"] == ("y",)


def test_a_mode_that_is_on_before_the_recorder_changes_nothing() -> None:
    x = torch.ones(2, requires_grad=True)
    with torch.device("cpu"), Doubling():
        graph = recorded(under_a_mode, x, torch.device("cpu"))
    assert lines_of(graph, under_a_mode) == {"cos": 1, "exp": 3, "sin": 3, "mul": 3, "tanh": 4, "sqrt": 5, "neg": 6}


def with_functions(x):
    y = x.exp()
    y = Cube.apply(y)
    z = cube(y)
    w = torch.vmap(cube)(z)
    return w.sin()


def test_custom_functions_have_the_line_of_their_call() -> None:
    graph = recorded(with_functions, torch.ones(2, requires_grad=True))
    first = with_functions.__code__.co_firstlineno
    found = {node.id: node.source.line - first for node in graph.nodes.values() if node.source}
    assert found == {"exp:1": 1, "cube:1": 2, "cube:2": 3, "vmapped_cube:1": 4, "sin:1": 5}
    assert names_of(graph) == {"exp:1": ("y",), "cube:1": ("y",), "cube:2": ("z",)}
    assert "__init__" not in vars(BackwardCFunction)


def test_functions_of_other_threads_are_left_alone() -> None:
    import threading

    x = torch.ones(2, requires_grad=True)
    with gradir.record(sources=True) as rec:
        y = x.exp()
        thread = threading.Thread(target=lambda: cube(cube(x)))
        thread.start()
        thread.join()
        z = y.sin()
    assert names_of(rec.capture(z)) == {"exp:1": ("y",), "sin:1": ("z",)}


class Gated(nn.Module):
    """Parts of torch around one of the user's, which is not the last to run."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 3), Sine(), nn.ReLU())
        self.outer = nn.Sequential(nn.Tanh(), Sine())

    def forward(self, x):
        inner = self.inner(x)
        outer = self.outer(inner)
        return outer.exp()


def test_the_last_operation_of_a_module_has_the_name() -> None:
    with gradir.record(model := Gated(), sources=True) as rec:
        y = model(torch.ones(2, 3))
    # The last operation of the other one is its own line's, and is returned there.
    assert names_of(rec.capture(y)) == {"inner.2/relu:1": ("inner",)}


def distributions(x):
    chosen = Categorical(logits=x)
    normal = Normal(x, torch.ones(1, requires_grad=True))
    likely = normal.log_prob(x)
    drawn = normal.rsample()
    return drawn.sum() + likely.sum() + chosen.logits.sum()


def test_an_operation_inside_an_object_that_is_stored_has_no_name() -> None:
    graph = recorded(distributions, torch.ones(2, 3, requires_grad=True))
    names = names_of(graph)
    assert sorted(names.values()) == [("drawn",), ("likely",)]
    # Each is the operation whose result is summed.
    sums = {node.inputs[0].id for node in graph.nodes.values() if node.op == "sum" and node.inputs[0]}
    assert set(names) <= sums


def many_forms(x):
    total = sum([x, x, x])
    product = functools.reduce(torch.mul, [x, x, x])
    several = list(map(torch.exp, [x, x]))
    parts = x.split(1)
    first, second = torch.stack(parts)
    if (walrus := first.cos()).requires_grad:
        walrus += second
    one = other = walrus.tan()
    (gradients,) = torch.autograd.grad(one.sum(), [x], create_graph=True)
    pair = torch.autograd.grad(other.sum(), [x, first], create_graph=True)
    for _ in range(20):
        # Python makes a call that it has seen often in another way.
        repeated = torch.sqrt(product)
        repeated = nn.functional.relu(repeated)
    return [total, gradients, repeated, *several, *pair]


def test_of_each_statement_at_most_one_operation_has_its_variable() -> None:
    graph = recorded(many_forms, torch.ones(2, requires_grad=True))
    names = {}
    for node, (name,) in names_of(graph).items():
        names.setdefault(name, []).append(node.partition(":")[0])
    assert names == {
        "total": ["add"],
        "product": ["mul"],
        "parts": ["split"],
        "walrus": ["cos", "add"],
        "one": ["tan"],
        "repeated": ["sqrt", "relu"],
    }


def test_the_shown_path_does_not_depend_on_the_folder(tmp_path: Path) -> None:
    text = "def double(x):\n    return x * 2\n"
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    program = """
import importlib.util, sys, torch, gradir
def double(path):
    spec = importlib.util.spec_from_file_location("m", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.double
with gradir.record(sources=True) as rec:
    y = torch.ones(1, requires_grad=True)
    for path in sys.argv[1:]:
        y = double(path)(y)
nodes = rec.capture(y).nodes.values()
print(*(node.source.file for node in nodes if node.source))
"""
    files = {
        ".venv/lib/python3.11/site-packages/timm/model.py": "timm/model.py",
        "src/own/model.py": "src/own/model.py",
        "env/dist-packages/spaces/deep/model.py": "spaces/deep/model.py",
        "ipykernel_4711/1234.py": "1234.py",
    }
    for root in (project, elsewhere):
        for name in files:
            (root / name).parent.mkdir(parents=True)
            (root / name).write_text(text, encoding="utf-8")
    link = tmp_path / "link"
    link.symlink_to(project)

    def shown(*paths: Path, entries: str = "") -> list[str]:
        given = [sys.executable, "-c", f"import sys; sys.path.append({entries!r})\n{program}", *map(str, paths)]
        return str(forked.run(given, cwd=project, text=True, check=True).stdout).split()

    inside = [project / name for name in files]
    linked = [link / name for name in files]
    assert shown(*inside, *linked) == [*files.values()] * 2
    outside = [elsewhere / name for name in files]
    assert shown(*outside, entries=str(elsewhere)) == [*files.values()]


def test_a_module_that_a_command_runs_is_called_by_no_line(tmp_path: Path) -> None:
    (tmp_path / "layers.py").write_text("import torch\nlayer = torch.nn.Linear(2, 2)\n", encoding="utf-8")
    command = ["capture", "layers.py:layer", "--input", "float32[1,2]", "--sources", "-o", "layer.gir"]
    forked.run([sys.executable, "-m", "gradir", *command], cwd=tmp_path, check=True)
    assert gradir.load(tmp_path / "layer.gir").nodes["addmm:1"].source is None
