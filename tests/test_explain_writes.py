"""Which write is blamed for a saved tensor that changed before its backward, compared with what a backward raises."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from tensors import leaf_of as leaf  # noqa: E402
from torch import nn  # noqa: E402

import gradir  # noqa: E402

Program = Callable[[torch.Tensor], torch.Tensor]


def marked(function: Callable[..., object]) -> int:
    lines, first = inspect.getsourcelines(function)
    return next(first + number for number, line in enumerate(lines) if line.rstrip().endswith("# HERE"))


def two_writes(a: torch.Tensor) -> torch.Tensor:
    hidden = a.exp()
    hidden.add_(1)  # HERE
    hidden.mul_(2)
    return hidden.sum()


def one_before_it_was_saved(a: torch.Tensor) -> torch.Tensor:
    hidden = a * 2
    hidden.add_(1)
    loss = (hidden * a).sum()
    hidden.mul_(2)  # HERE
    return loss


def one_that_autograd_does_not_see(a: torch.Tensor) -> torch.Tensor:
    hidden = a.exp()
    hidden.data.add_(1)
    hidden.mul_(2)  # HERE
    return hidden.sum()


def to_a_view(a: torch.Tensor) -> torch.Tensor:
    hidden = a.exp()
    hidden[0] = 0  # HERE
    hidden[1] = 0
    return hidden.sum()


@pytest.mark.parametrize("program", [two_writes, one_before_it_was_saved, one_that_autograd_does_not_see, to_a_view])
def test_the_first_write_that_broke_a_saved_tensor_is_blamed(program: Program) -> None:
    a = leaf()
    with gradir.record(flow=True) as rec:
        loss = program(a)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(loss, a, retain_graph=True)
    cause = next(cause for cause in rec.explain(loss, params={"a": a}).causes if cause.level == "error")
    assert cause.kind == "inplace"
    assert cause.source is not None
    assert cause.source.line == marked(program)


def test_the_writes_that_follow_are_mentioned() -> None:
    a = leaf()
    with gradir.record(flow=True) as rec:
        loss = two_writes(a)
    (cause,) = rec.explain(loss, params={"a": a}).causes
    assert cause.op == "add_"
    assert cause.text.endswith(f": and so do later mul_ at tests/{Path(__file__).name}:{marked(two_writes) + 1}")


class OfAUser(torch.optim.Optimizer):
    """Writes in a line of its own."""

    def __init__(self, parameters: object) -> None:
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure: object = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.sub_(parameter.grad)


def stepping(model: nn.Module, optimizer: torch.optim.Optimizer) -> torch.Tensor:
    loss = model(torch.ones(3, 4)).square().mean()
    loss.backward(retain_graph=True)
    optimizer.step()  # HERE
    return loss


OPTIMIZERS: list[Callable[[object], torch.optim.Optimizer]] = [
    lambda parameters: torch.optim.SGD(parameters, 0.1),
    lambda parameters: torch.optim.SGD(parameters, 0.1, foreach=False, weight_decay=0.1),
    lambda parameters: torch.optim.Adam(parameters, foreach=True),
    lambda parameters: torch.optim.Adam(parameters, foreach=False),
    OfAUser,
]


@pytest.mark.parametrize("of_model", OPTIMIZERS)
def test_a_step_between_two_backwards_of_a_graph_is_named(
    of_model: Callable[[object], torch.optim.Optimizer],
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = of_model(model.parameters())
    with gradir.record(model, flow=True) as rec:
        loss = stepping(model, optimizer)
    found = rec.explain(loss, optimizer=optimizer)
    if optimizer.defaults.get("foreach") and isinstance(optimizer, torch.optim.Adam):
        # torch does not count what this form writes, and runs the backward.
        torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
        assert found.level == "none"
        return
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
    (cause,) = found.causes
    assert (cause.kind, cause.level, cause.op) == ("updated", "error", "step")
    assert "2.weight" in cause.names
    assert cause.source is not None
    assert cause.source.line == marked(stepping)
    assert cause.advice.startswith("compute the loss anew after an optimizer's step")


def updating(weight: torch.Tensor) -> torch.Tensor:
    hidden = weight.exp() * weight
    with torch.no_grad():
        weight -= 0.1  # HERE
    return hidden.sum()


def test_an_update_by_hand_is_told_as_one() -> None:
    weight = leaf()
    with gradir.record(flow=True) as rec:
        loss = updating(weight)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(loss, weight, retain_graph=True)
    (cause,) = rec.explain(loss, params={"weight": weight}).causes
    assert (cause.kind, cause.names) == ("updated", ("weight",))
    assert cause.source is not None
    assert cause.source.line == marked(updating)
