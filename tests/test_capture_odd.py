"""What a capture makes of modules and tensors that few programs have."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from steps import steps  # noqa: E402
from tensors import leaf  # noqa: E402

import gradir  # noqa: E402
from gradir import codecs  # noqa: E402
from gradir.errors import CaptureError  # noqa: E402

nn = torch.nn


def test_two_models_of_one_name_are_refused() -> None:
    with pytest.raises(CaptureError, match="same name: 1, '1'"):
        gradir.record({1: nn.Linear(1, 1), "1": nn.Linear(1, 1)}).__enter__()


def test_beside_a_given_model_only_modules_that_took_part_are_shown() -> None:
    class Prompt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.start = nn.Parameter(torch.ones(1, 2))

        def forward(self):
            return self.start

    model, teacher, prompt, criterion, idle = nn.Linear(2, 2), nn.Linear(2, 2), Prompt(), nn.MSELoss(), nn.MSELoss()
    with gradir.record({"m": model}) as rec:
        idle(teacher(torch.ones(1, 2)), torch.ones(1, 2))
        loss = criterion(model(prompt()), torch.ones(1, 2))
    graph = rec.capture(loss)
    assert list(graph.scopes) == ["m", "Prompt", "MSELoss"]
    assert graph.nodes["MSELoss/mse_loss:1"].scope == "MSELoss"
    assert graph.nodes["Prompt.start"].role == "parameter"
    assert graph.cuts == ()


def test_many_modules_of_one_class_are_named_in_time() -> None:
    def recorded(count: int) -> Callable[[], gradir.Graph]:
        with gradir.record() as rec:
            y = leaf(1)
            for _ in range(count):
                y = nn.Identity()(y)
            y = y.exp()
        return lambda: rec.capture(y)

    assert [*recorded(1_000)().scopes] == ["Identity", *(f"Identity_{number}" for number in range(2, 1_001))]
    assert steps(recorded(1_000)) < 3 * steps(recorded(500))


def test_a_modules_name_leaves_out_what_is_taken_inside_the_model() -> None:
    with gradir.record({"Sequential.0": nn.Linear(1, 1), "Sequential_2": nn.Linear(1, 1)}) as rec:
        y = nn.Sequential(nn.Linear(1, 1))(leaf(1, 1))
    assert "Sequential_3.0/addmm:1" in rec.capture(y).nodes


def test_hooks_have_the_scope_that_the_documentation_says() -> None:
    model = nn.Sequential(nn.Linear(1, 1, bias=False))
    model[0].register_forward_pre_hook(lambda _, inputs: (inputs[0].sin(),))
    model[0].register_forward_hook(lambda _, inputs, output: output.exp())
    graph = gradir.capture(model, leaf(1, 1), model={"m": model})
    scopes = {node.op: node.scope for node in graph.nodes.values() if node.role == "function"}
    assert (scopes["sin"], scopes["mm"], scopes["exp"]) == ("m.0", "m.0", "m")


@pytest.mark.parametrize("size", [(2, 2), (4,)])
def test_parameters_are_unreached_when_detached_aliases_were_used(size: tuple[int, ...]) -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(size))

        def forward(self, x):
            return x * self.weight

    model = Scale()
    for fast in (model.weight.detach().requires_grad_(), nn.Parameter(model.weight.detach())):
        y = torch.func.functional_call(model, {"weight": fast}, (torch.ones(size),))
        assert [cut.names for cut in gradir.capture(y, model=model).cuts] == [("weight",)]


def test_slices_of_one_buffer_do_not_replace_each_other() -> None:
    buffer = torch.ones(8)
    model = nn.Linear(2, 2, bias=False)
    model.weight = nn.Parameter(buffer[:4].view(2, 2))
    beside = nn.Parameter(buffer[4:])
    assert [cut.names for cut in gradir.capture(beside.exp(), model=model).cuts] == [("weight",)]
    across = nn.Parameter(buffer[3:])
    assert [cut.names for cut in gradir.capture(across.exp(), model=model).cuts] == [("weight",)]
    for whole in (nn.Parameter(buffer), nn.Parameter(buffer[:5])):
        assert gradir.capture(whole.exp(), model=model).cuts == ()


def test_a_lazy_module_that_did_not_run_is_unreached_without_a_shape() -> None:
    class Partly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(2, 2, bias=False)
            self.b = nn.LazyLinear(3)
            self.c = nn.LazyBatchNorm1d()

        def forward(self, x):
            return self.a(x)

    model = Partly()
    graph = gradir.capture(model, torch.ones(1, 2))
    assert codecs.decode(codecs.encode(graph)) == graph
    cuts = {cut.names: cut.tensor for cut in graph.cuts}
    assert list(cuts) == [("b.weight",), ("b.bias",), ("c.weight",), ("c.bias",)]
    assert {(meta.dtype, meta.shape) for meta in cuts.values()} == {("float32", None)}
    assert gradir.verify(model, torch.ones(1, 2)).mismatches == ()


def test_explain_and_watch_take_parameters_without_a_shape() -> None:
    class Partly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ran = nn.Linear(2, 2, bias=False)
            self.embedding = nn.Embedding(3, 3)
            self.lazy = nn.LazyLinear(3)

        def forward(self, x):
            return self.ran(x) + self.embedding.weight.sum()

    model, old = Partly(), Partly()
    optimizer, stale = (torch.optim.SGD(each.parameters(), lr=0.1) for each in (model, old))
    del old
    with gradir.record(model, flow=True) as rec:
        loss = model(torch.ones(1, 2)).sum()
    assert [(cause.kind, cause.names) for cause in rec.explain(loss, optimizer=optimizer).causes] == [
        ("unused", ("lazy.weight", "lazy.bias"))
    ]
    assert "replaced" in {cause.kind for cause in rec.explain(loss, optimizer=stale).causes}
    with gradir.watch(model, optimizer) as watched:
        loss.backward()
        optimizer.step()
    assert len(watched.report().steps) == 1


def test_modules_that_contain_each_other_are_captured() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    vars(model[0])["_modules"]["back"] = model
    y = nn.functional.linear(torch.ones(1, 2), model[0].weight)
    graph = gradir.capture(y, model=model)
    assert list(graph.scopes) == ["", "0"]
    assert graph.nodes["0.weight"].names == ("0.weight",)


def test_modules_nested_too_deeply_are_one_clear_error() -> None:
    model = inner = nn.Sequential()
    for _ in range(5_000):
        inner.append(nn.Sequential())
        inner = inner[0]
    with pytest.raises(CaptureError, match="nested too deeply"):
        gradir.capture(leaf(1).exp(), model=model)
    while len(model):
        model = model[0]


def test_a_module_with_a_named_parameters_of_its_own_is_captured() -> None:
    class Own(nn.Linear):
        def named_parameters(self, prefix="", recurse=True):
            return super().named_parameters(prefix, recurse)

    graph = gradir.capture(Own(2, 2), torch.ones(1, 2))
    assert {node.names for node in graph.nodes.values() if node.role == "parameter"} == {("weight",), ("bias",)}


def test_sources_are_recorded_without_a_working_directory(tmp_path, monkeypatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    namespace: dict[str, Any] = {}
    exec(compile("def double(x):\n    return x * 2\n", str(tmp_path / "program.py"), "exec"), namespace)
    with gradir.record(sources=True) as rec:
        y = namespace["double"](leaf(1))
    assert rec.capture(y).nodes["mul:1"].source == gradir.ir.Source("program.py", 2, "double")


def test_two_modules_of_one_path_are_refused() -> None:
    models = {"a": nn.Sequential(nn.Linear(1, 1)), "a.0": nn.Linear(1, 1)}
    with pytest.raises(CaptureError, match=r"two modules are called 'a\.0'"):
        gradir.capture(leaf(1).exp(), model=models)


def test_a_function_called_accumulate_grad_is_reported_from_torchs_own() -> None:
    class AccumulateGrad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    class Doubles(nn.Module):
        def forward(self, x):
            return AccumulateGrad.apply(x)

    x = leaf(1)
    model = Doubles()
    with gradir.record({"w": model}) as rec:
        y = model(x)
    graph = rec.capture(y, params={"w": x})
    assert list(graph.nodes) == ["w", "w/accumulate_grad:1", "w/accumulate_grad_function:1", "output"]


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_recorder_is_not_copied(duplicate: Callable[[object], object]) -> None:
    with pytest.raises(CaptureError, match="cannot be copied"):
        duplicate(gradir.record(nn.Linear(1, 1)))


def test_ragged_sizes_are_numbered_within_the_graph() -> None:
    def capture() -> gradir.Graph:
        first, second = (
            torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged, requires_grad=True)
            for _ in range(2)
        )

        class Keeps(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.shape = x.shape
                ctx.mode = "j12"
                return x.clone()

            @staticmethod
            def backward(ctx, gradient):
                return gradient

        return gradir.capture([(Keeps.apply(first) * first).sin(), second.cos().values().sum()])

    graph = capture()
    assert capture() == graph
    assert dict(graph.nodes["keeps:1"].attrs)["shape"] == (2, "j1", 3)
    assert graph.nodes["keeps:1"].attrs["mode"] == "j12"
    assert (graph.nodes["sin:1"].shape, graph.nodes["cos:1"].shape) == ((2, "j1", 3), (2, "j2", 3))
    assert {slot.shape for slot in graph.nodes["mul:1"].saved} == {(2, "j1", 3)}
