"""Which module made which operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tensors import leaf  # noqa: E402

import gradir  # noqa: E402
from gradir.errors import CaptureError  # noqa: E402
from gradir.ir.totals import totals  # noqa: E402

nn = torch.nn


def test_scopes_come_from_the_recorded_forward() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Tanh(), nn.Linear(4, 1)))
    with gradir.record(model) as rec:
        loss = model(torch.ones(2, 3)).sum()
    graph = rec.capture(loss)
    scopes = {node.id: node.scope for node in graph.nodes.values() if node.op not in {"", "accumulate_grad"}}
    assert scopes == {
        "0/t:1": "0",
        "0/addmm:1": "0",
        "1.0/tanh:1": "1.0",
        "1.1/t:1": "1.1",
        "1.1/addmm:1": "1.1",
        "sum:1": "",
    }
    assert (graph.scopes["1.1"].class_name, graph.scopes["1.1"].calls, graph.scopes["1.1"].own) == ("Linear", 1, 5)


def test_without_a_model_the_modules_that_ran_give_the_names() -> None:
    model = nn.Linear(2, 1)
    with gradir.record() as rec:
        loss = nn.MSELoss()(model(torch.ones(1, 2)), torch.ones(1, 1))
    graph = rec.capture(loss)
    assert "weight" in graph.nodes
    assert "MSELoss/mse_loss:1" in graph.nodes


def test_an_exception_in_a_child_restores_the_scope() -> None:
    class Raises(nn.Module):
        def forward(self, x):
            raise ValueError

    class Parent(nn.Module):
        def __init__(self):
            super().__init__()
            self.child = Raises()

        def forward(self, x):
            try:
                self.child(x)
            except ValueError:
                return x.exp()

    model = Parent()
    with gradir.record({"m": model}) as rec:
        y = model(leaf(2)).sin()
    assert [node.id for node in rec.capture(y).nodes.values() if node.op in {"exp", "sin"}] == ["m/exp:1", "sin:1"]


def test_hooks_are_removed_when_the_forward_raises() -> None:
    from torch.nn.modules import module

    before = len(module._global_forward_hooks), len(module._global_forward_pre_hooks)
    with pytest.raises(ZeroDivisionError), gradir.record(nn.Linear(1, 1)):
        1 / 0  # noqa: B018
    assert (len(module._global_forward_hooks), len(module._global_forward_pre_hooks)) == before


def test_a_recorder_is_not_entered_twice() -> None:
    with gradir.record() as rec, pytest.raises(CaptureError, match="already recording"), rec:
        pass


def test_nodes_made_by_backward_lie_outside_the_scopes() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1))
    with gradir.record(model) as rec:
        x = leaf(1, 2)
        (grad,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        penalty = grad.pow(2).sum()
    graph = rec.capture(penalty)
    assert "tanh_backward:1" in graph.nodes
    assert graph.nodes["tanh_backward:1"].scope == ""


def test_a_module_is_captured_on_inputs() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
    graph = gradir.capture(model, torch.ones(1, 3))
    assert {"0/addmm:1", "1/tanh:1", "0.weight", "output"} <= set(graph.nodes)
    assert graph.scopes["1"].calls == 1


def test_a_module_takes_keyword_arguments() -> None:
    graph = gradir.capture(nn.Bilinear(2, 3, 1), kwargs={"input1": torch.ones(1, 2), "input2": torch.ones(1, 3)})
    assert "weight" in graph.nodes


def test_inputs_without_a_module_are_one_clear_error() -> None:
    with pytest.raises(CaptureError, match=r"inputs are for a torch\.nn\.Module to run on, not for Tensor"):
        gradir.capture(leaf(2).exp(), leaf(2))


def test_without_a_model_a_criterion_is_beside_the_one_that_has_parameters() -> None:
    model, criterion = nn.Sequential(nn.Linear(2, 2), nn.Tanh()), nn.MSELoss()
    with gradir.record() as rec:
        loss = criterion(model(torch.ones(1, 2)), torch.ones(1, 2))
    graph = rec.capture(loss)
    assert [(scope.path, scope.class_name) for scope in graph.scopes.values()] == [
        ("", "Sequential"),
        ("0", "Linear"),
        ("1", "Tanh"),
        ("MSELoss", "MSELoss"),
    ]
    assert "MSELoss/mse_loss:1" in graph.nodes
    assert graph.cuts == ()


def test_without_a_model_all_that_ran_are_shown_with_what_no_gradient_reaches() -> None:
    model, other, idle = nn.Linear(2, 2), nn.Linear(2, 3), nn.ReLU()
    with gradir.record() as rec:
        loss = model(torch.ones(1, 2)).sum()
        with torch.no_grad():
            other(torch.ones(1, 2))
        idle(torch.ones(1))
    graph = rec.capture(loss)
    assert list(graph.scopes) == ["Linear", "Linear_2", "ReLU"]
    assert "Linear/addmm:1" in graph.nodes
    assert [(cut.kind, cut.names) for cut in graph.cuts] == [
        ("unreached", ("Linear_2.weight",)),
        ("unreached", ("Linear_2.bias",)),
    ]
    named = rec.capture(loss, model=model)
    assert list(named.scopes) == [""]
    assert "addmm:1" in named.nodes
    assert named.cuts == ()


def test_without_a_model_a_module_that_another_one_called_has_a_place_only_below_it() -> None:
    class Borrowing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.own = nn.Linear(2, 2)
            self.lent = (nn.Linear(2, 2),)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.lent[0](self.own(x)).sum()

    model = Borrowing()
    with gradir.record() as rec:
        loss = model(torch.ones(1, 2))
    graph = rec.capture(loss)
    assert list(graph.scopes) == ["", "own"]
    functions = [name for name, node in graph.nodes.items() if node.role == "function" and node.op != "accumulate_grad"]
    assert functions == ["own/t:1", "own/addmm:1", "t:1", "addmm:1", "sum:1"]
    assert not graph.cuts


class RunsInside(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, run):
        return run(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def test_the_parameters_of_a_module_that_ran_inside_a_custom_function_are_hidden() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)
            self.outside = nn.Linear(2, 2)

        def forward(self, x):
            self.outside(x)
            return RunsInside.apply(x, self.inner)

    graph = gradir.capture(Outer(), leaf(1, 2))
    assert {(cut.scope, cut.kind) for cut in graph.cuts} == {("inner", "hidden"), ("outside", "unreached")}


def storages(graph: gradir.Graph) -> tuple[int, list[str]]:
    """The bytes that are saved, and the buffers beside them."""
    return totals(graph).saved_bytes, [node.id for node in graph.nodes.values() if node.role == "buffer"]


def weights_computed(model: nn.Module) -> dict[str, Any]:
    return {name: parameter - 0.1 for name, parameter in model.named_parameters()}


def weights_averaged(model: nn.Module) -> dict[str, Any]:
    return {name: parameter.detach() * 0.9 for name, parameter in model.named_parameters()}


def weights_made(model: nn.Module) -> dict[str, Any]:
    code = torch.ones(2, requires_grad=True)
    return {name: code.sum().expand(parameter.shape) for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("weights", [weights_computed, weights_averaged, weights_made])
@pytest.mark.parametrize("inside", [True, False])
def test_a_tensor_in_place_of_a_parameter_is_not_the_parameter(weights: Callable[..., Any], inside: bool) -> None:
    model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 1))
    x = torch.ones(2, 32, requires_grad=True)
    with gradir.record(model) as rec:
        loss = torch.func.functional_call(model, weights(model), (x,)).sum()
        recorded = rec.capture(loss) if inside else None
    recorded, plain = recorded or rec.capture(loss), gradir.capture(loss, model=model)
    assert storages(recorded) == storages(plain)
    assert storages(plain)[1] == []
    assert [cut.names for cut in recorded.cuts] == [cut.names for cut in plain.cuts]


def test_a_step_of_meta_learning_saves_the_same_recorded_or_not() -> None:
    model = nn.Linear(64, 64)
    x = torch.ones(4, 64)
    with gradir.record(model) as rec:
        loss = model(x).square().mean()
        gradients = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
        fast = {name: p - 0.1 * g for (name, p), g in zip(model.named_parameters(), gradients, strict=True)}
        outer = torch.func.functional_call(model, fast, (x,)).square().mean()
    assert storages(rec.capture(outer)) == storages(gradir.capture(outer, model=model))


def test_a_computed_tensor_in_the_place_of_a_buffer_is_not_the_modules() -> None:
    model = nn.Module()
    model.register_buffer("hidden", torch.ones(8, requires_grad=True).exp())
    (slot,) = gradir.capture(model.hidden.sin(), model=model).nodes["sin:1"].saved
    assert (slot.origin, slot.storage) == (gradir.ir.Ref("exp:1", 0), "exp:1.result")
