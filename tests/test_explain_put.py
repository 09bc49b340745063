"""Values that a program puts into leaves past autograd, and leaves that it makes of values."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from marked_lines import find_marked_line  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

import gradir  # noqa: E402
from gradir.explanations.model import Explanation  # noqa: E402

X = torch.tensor([[0.5, -1.0, 2.0], [1.0, 0.3, -0.7]])
Z = torch.tensor([0.4, -0.8])
HYPER = ("hyper.weight", "hyper.bias")
Loss = Callable[[Any], torch.Tensor]


@pytest.fixture
def model() -> nn.ModuleDict:
    torch.manual_seed(0)
    return nn.ModuleDict({"hyper": nn.Linear(2, 6), "main": nn.Linear(3, 2, bias=False)})


def explained(model: nn.Module, loss_of: Loss, **more: Any) -> Explanation:
    """The explanation of a loss, after a real backward has said that the same parameters get a gradient."""
    with gradir.record(model, flow=True) as rec:
        loss = loss_of(model)
    found = rec.explain(loss, **more)
    loss.backward()
    reached = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert {name for name, status in found.statuses.items() if status == "reached"} == reached
    return found


def by_data(m: Any) -> torch.Tensor:
    weight = m["hyper"](Z).view(2, 3)
    m["main"].weight.data = weight  # HERE
    return m["main"](X).square().mean()


def by_copying_to_data(m: Any) -> torch.Tensor:
    weight = m["hyper"](Z).view(2, 3)
    m["main"].weight.data.copy_(weight)  # HERE
    return m["main"](X).square().mean()


def by_copying(m: Any) -> torch.Tensor:
    weight = m["hyper"](Z).view(2, 3)
    with torch.no_grad():
        m["main"].weight.copy_(weight)  # HERE
    return m["main"](X).square().mean()


def by_a_state(m: Any) -> torch.Tensor:
    state = {"weight": m["hyper"](Z).view(2, 3)}
    m["main"].load_state_dict(state)  # HERE
    return m["main"](X).square().mean()


def into_a_row(m: Any) -> torch.Tensor:
    row = m["hyper"](Z)[:3]
    m["main"].weight.data[0] = row  # HERE
    return m["main"](X).square().mean()


def in_a_step_of_its_own(m: Any) -> torch.Tensor:
    weight = m["main"].weight
    weight.data += 0.1 * m["hyper"](Z).view(2, 3)  # HERE
    return m["main"](X).square().mean()


@pytest.mark.parametrize(
    "loss_of", [by_data, by_copying_to_data, by_copying, by_a_state, into_a_row, in_a_step_of_its_own]
)
def test_what_is_computed_and_put_into_a_parameter_is_cut(model: nn.ModuleDict, loss_of: Loss) -> None:
    found = explained(model, loss_of)
    assert [found.status(name) for name in HYPER] == ["cut", "cut"]
    (cause,) = (cause for cause in found.causes if cause.kind == "put")
    assert (cause.level, cause.names, found.level) == ("error", HYPER, "error")
    assert cause.source is not None
    assert cause.source.line == find_marked_line(loss_of)


def test_what_the_optimizer_does_not_train_is_no_alarm(model: nn.ModuleDict) -> None:
    optimizer = torch.optim.SGD(model["main"].parameters(), 0.1)
    found = explained(model, by_copying, optimizer=optimizer)
    assert [(cause.kind, cause.level) for cause in found.causes] == [("put", "info")]


def a_teacher(m: Any) -> torch.Tensor:
    teacher = copy.deepcopy(m["main"])
    with torch.no_grad():
        for old, new in zip(teacher.parameters(), m["main"].parameters(), strict=True):
            old.mul_(0.9).add_(new, alpha=0.1)
    return F.mse_loss(m["main"](X), teacher(X).detach() + 1)


def a_copy_of_weights(m: Any) -> torch.Tensor:
    other = nn.Linear(3, 2, bias=False)
    other.load_state_dict(m["main"].state_dict())
    return other(X).square().mean()


def steps_by_hand(m: Any) -> torch.Tensor:
    weight = m["main"].weight
    for _ in range(2):
        (slope,) = torch.autograd.grad(m["main"](X).square().mean(), weight)
        with torch.no_grad():
            weight -= 0.1 * slope
    return m["main"](X).square().mean()


def steps_of_an_optimizer(m: Any) -> torch.Tensor:
    optimizer = torch.optim.SGD(m.parameters(), 0.1)
    (m["main"](X).sum() * m["hyper"](Z).sum()).backward()
    optimizer.step()
    optimizer.zero_grad()
    return m["main"](X).square().mean()


@pytest.mark.parametrize("loss_of", [a_teacher, a_copy_of_weights, steps_by_hand, steps_of_an_optimizer])
def test_what_is_copied_or_is_a_step_of_training_is_not_computed_of_others(model: nn.ModuleDict, loss_of: Loss) -> None:
    with gradir.record(model, flow=True) as rec:
        loss = loss_of(model)
    found = rec.explain(loss)
    assert [found.status(name) for name in HYPER] == ["unused", "unused"]
    assert "put" not in {cause.kind for cause in found.causes}


def in_the_forward(m: Any) -> torch.Tensor:
    weight = m["hyper"](Z).view(2, 3)
    weight = nn.Parameter(weight)  # HERE
    x = X + 1
    return F.linear(x, weight).square().mean()


def of_an_expression(m: Any) -> torch.Tensor:
    scale = 2.0
    weight = torch.nn.Parameter(m["hyper"](Z).view(2, 3) * scale)  # HERE
    x = X + 1
    return (x @ weight.t()).square().mean()


def as_an_attribute(m: Any) -> torch.Tensor:
    weight = m["hyper"](Z).view(2, 3)
    m["main"].weight = nn.Parameter(weight)  # HERE
    return m["main"](X).square().mean()


def of_each_row(m: Any) -> torch.Tensor:
    rows = m["hyper"](Z).view(2, 3)
    weights = nn.ParameterList([nn.Parameter(row) for row in rows])  # HERE
    return sum((X @ weight).sum() for weight in weights)


class Made(nn.Module):
    """Computes a weight."""

    def forward(self, m: Any) -> torch.Tensor:
        return m["hyper"](Z).view(2, 3)


class Used(nn.Module):
    """Takes a weight."""

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return (X @ weight.t()).square().mean()


def between_two_modules(m: Any) -> torch.Tensor:
    weight = Made()(m)
    weight = nn.Parameter(weight)  # HERE
    return Used()(weight) + torch.zeros(())


@pytest.mark.parametrize(
    "loss_of", [in_the_forward, of_an_expression, as_an_attribute, of_each_row, between_two_modules]
)
def test_a_parameter_that_is_made_of_a_value_is_reported_where_it_is_made(model: nn.ModuleDict, loss_of: Loss) -> None:
    found = explained(model, loss_of)
    (cause,) = (cause for cause in found.causes if cause.kind == "new_leaf")
    assert (cause.level, cause.names) == ("error", HYPER)
    assert cause.source is not None
    assert cause.source.line == find_marked_line(loss_of)


def by_another_function(m: Any) -> torch.Tensor:
    return F.linear(X, made_into_a_leaf(m["hyper"](Z).view(2, 3))).square().mean()  # HERE


def made_into_a_leaf(weight: torch.Tensor) -> torch.Tensor:
    return nn.Parameter(weight)


def test_where_no_call_is_seen_the_use_is_reported(model: nn.ModuleDict) -> None:
    (cause,) = (cause for cause in explained(model, by_another_function).causes if cause.kind == "new_leaf")
    assert cause.source is not None
    assert cause.source.line == find_marked_line(by_another_function)


class Scaled(nn.Linear):
    def __init__(self, kind: str) -> None:
        super().__init__(3, 2)
        self.scale, self.taken, self.kind = nn.Parameter(torch.tensor(0.3)), nn.Parameter(torch.ones(())), kind

    def forward(self, x: Any) -> Any:
        self.taken.data.copy_(2 * self.scale if self.kind == "put" else self.taken)
        return super().forward(x) * self.taken * (float(self.scale) if self.kind == "exit" else 1)


@pytest.mark.parametrize("kind", ["exit", "put"])
def test_a_line_that_cuts_two_models_is_an_error_of_the_one_that_learns(kind: str) -> None:
    both = nn.ModuleDict({"learns": Scaled(kind), "other": Scaled(kind)})
    optimizer = torch.optim.SGD(both["learns"].parameters(), 0.1)
    causes = explained(both, lambda m: (m["learns"](X) - m["other"](X)).sum(), optimizer=optimizer).causes
    found = {name: cause.level for cause in causes if cause.kind == kind for name in cause.names}
    assert found == {"learns.scale": "error", "other.scale": "info"}
