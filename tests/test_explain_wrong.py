"""Gradients that are finite and not the derivative, each compared with differences of the loss; and what is fine."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import gradir  # noqa: E402
from gradir.explanations.model import Explanation  # noqa: E402

HERE = f"tests/{Path(__file__).name}"

Leaves = dict[str, torch.Tensor]
Program = Callable[[Leaves], torch.Tensor]

NUMBERS = {"a": (0.5, -1.0, 2.0), "b": (1.5, 0.3, -0.7)}
STEP = 1e-6


def leaves() -> Leaves:
    return {name: torch.tensor(numbers, dtype=torch.float64, requires_grad=True) for name, numbers in NUMBERS.items()}


def differences(program: Program) -> Leaves:
    """What each leaf's gradient is as the loss tells it, when one number at a time is a little larger or smaller."""

    def loss(name: str, index: int, by: float) -> float:
        changed = leaves()
        with torch.no_grad():
            changed[name][index] += by
        return program(changed).item()

    return {
        name: torch.tensor(
            [(loss(name, index, STEP) - loss(name, index, -STEP)) / (2 * STEP) for index in range(len(numbers))],
            dtype=torch.float64,
        )
        for name, numbers in NUMBERS.items()
    }


def marked(function: Callable[..., object]) -> int:
    lines, first = inspect.getsourcelines(function)
    return next(first + number for number, line in enumerate(lines) if line.rstrip().endswith("# HERE"))


def explained(program: Program) -> tuple[Explanation, set[str]]:
    """The explanation of a program, and which leaves a real backward gives a gradient that is not the derivative."""
    made = leaves()
    with gradir.record(flow=True) as rec:
        loss = program(made)
    found = rec.explain(loss, params=made)
    loss.backward()
    right = differences(program)
    return found, {
        name
        for name, leaf in made.items()
        if leaf.grad is not None and not torch.allclose(leaf.grad, right[name], rtol=1e-4, atol=1e-7)
    }


def to_a_factor(p: Leaves) -> torch.Tensor:
    product = p["a"] * p["b"]
    p["a"].data.mul_(3)  # HERE
    return product.sum()


def to_a_result(p: Leaves) -> torch.Tensor:
    hidden = p["a"].exp()
    loss = (hidden * p["b"]).sum()
    hidden.data.clamp_(max=1)  # HERE
    return loss


def to_a_part(p: Leaves) -> torch.Tensor:
    bank = torch.eye(3, dtype=torch.float64)
    loss = (bank @ p["a"]).square().sum() + p["b"].sum()
    bank.data[1] = p["b"].detach()  # HERE
    return loss


def twice(p: Leaves) -> torch.Tensor:
    bank = torch.ones(3, dtype=torch.float64)
    loss = torch.zeros((), dtype=torch.float64)
    for factor in (2.0, 3.0):
        loss = loss + (p["a"] * bank).sum() + p["b"].sum()
        bank.data.mul_(factor)  # HERE
    return loss


def through_a_name(p: Leaves) -> torch.Tensor:
    product = p["a"] * p["b"]
    numbers = p["b"].data
    numbers.add_(1)  # HERE
    numbers.mul_(2)
    return product.sum()


def through_an_array(p: Leaves) -> torch.Tensor:
    product = p["a"] * p["b"]
    array = p["b"].detach().numpy()  # HERE
    array[0] = 7.0
    return product.sum()


def with_a_backward_of_another_loss_between(p: Leaves) -> torch.Tensor:
    product = p["a"] * p["b"]
    other = (p["a"].detach() * 2 * p["b"].detach().requires_grad_()).sum()
    other.backward()
    p["a"].data.mul_(3)  # HERE
    return product.sum()


def at_a_reentrant_checkpoint(p: Leaves) -> torch.Tensor:
    product = p["a"] * p["b"]
    loss = checkpoint(torch.sum, product, use_reentrant=True)
    p["b"].data.zero_()  # HERE
    return loss + p["a"].sum()


@pytest.mark.parametrize(
    ("program", "wrong"),
    [
        (to_a_factor, {"b"}),
        (to_a_result, {"a", "b"}),
        (to_a_part, {"a"}),
        (twice, {"a"}),
        (through_a_name, {"a"}),
        (through_an_array, {"a"}),
        (with_a_backward_of_another_loss_between, {"b"}),
        (at_a_reentrant_checkpoint, {"a"}),
    ],
)
def test_a_gradient_that_is_not_the_derivative_is_reported_with_the_line_of_the_write(
    program: Program, wrong: set[str]
) -> None:
    found, in_truth = explained(program)
    assert in_truth == wrong
    assert {name for name, status in found.statuses.items() if status == "wrong"} == wrong
    (cause,) = (cause for cause in found.causes if cause.kind == "overwritten")
    assert (cause.level, set(cause.names)) == ("error", wrong)
    assert cause.source is not None
    assert (cause.source.file, cause.source.line) == (HERE, marked(program))


def test_the_line_that_saved_is_reported_beside_the_write() -> None:
    found, _ = explained(to_a_factor)
    (cause,) = found.causes
    assert cause.text == (
        "mul_ changes a tensor that an earlier operation saved for its derivative, unseen by torch, and the gradient "
        f"of b is wrong: mul at {HERE}:{marked(to_a_factor) - 1}"
    )
    (cause,) = explained(through_an_array)[0].causes
    assert cause.op == "numpy"
    assert cause.text.endswith("the array that it gave has the same memory, and was written to")


def test_all_is_afterwards_as_it_was() -> None:
    made = leaves()
    with gradir.record(flow=True) as rec:
        loss = twice(made)
    before = torch.random.get_rng_state()
    rec.explain(loss, params=made)
    assert all(leaf.grad is None for leaf in made.values())
    assert torch.equal(torch.random.get_rng_state(), before)
    loss.backward()
    again = leaves()
    twice(again).backward()
    assert all(torch.equal(made[name].grad, again[name].grad) for name in NUMBERS)


def before_the_forward(p: Leaves) -> torch.Tensor:
    p["a"].data.clamp_(min=0)
    return (p["a"] * p["b"]).sum()


def to_what_nothing_saved(p: Leaves) -> torch.Tensor:
    total = (p["a"] + p["b"]).sum()
    p["a"].data.mul_(3)
    return total


def and_put_back(p: Leaves) -> torch.Tensor:
    loss = (p["a"] * p["b"]).sum()
    kept = p["a"].data.clone()
    p["a"].data.zero_()
    p["a"].data.copy_(kept)
    return loss


def of_the_same_numbers(p: Leaves) -> torch.Tensor:
    loss = (p["a"] * p["b"]).sum()
    p["a"].data.clamp_(max=100)
    return loss


def to_another_part(p: Leaves) -> torch.Tensor:
    bank = torch.ones(6, dtype=torch.float64)
    loss = (bank[:3] * p["a"] * p["b"]).sum()
    bank.data[3:] = 5
    return loss


def to_a_sign(p: Leaves) -> torch.Tensor:
    hidden = p["a"].relu()
    loss = hidden.sum() + p["b"].sum()
    hidden.data.mul_(2)
    return loss


def to_a_copy(p: Leaves) -> torch.Tensor:
    average = p["a"].detach().clone()
    loss = (p["a"] * p["b"]).sum()
    average.data.mul_(0.9).add_(p["a"].data, alpha=0.1)
    return loss


def of_an_array_that_is_only_read(p: Leaves) -> torch.Tensor:
    loss = (p["a"] * p["b"]).sum()
    p["b"].detach().numpy().sum()
    return loss


def of_an_array_from_before(p: Leaves) -> torch.Tensor:
    scale = torch.ones(3, dtype=torch.float64)
    array = scale.numpy()
    array[:] = 2.0
    return (p["a"] * scale * p["b"]).sum()


@pytest.mark.parametrize(
    "program",
    [
        before_the_forward,
        to_what_nothing_saved,
        and_put_back,
        of_the_same_numbers,
        to_another_part,
        to_a_sign,
        to_a_copy,
        of_an_array_that_is_only_read,
        of_an_array_from_before,
    ],
)
def test_a_write_that_changes_no_gradient_is_not_reported(program: Program) -> None:
    found, in_truth = explained(program)
    wrong = {name for name, status in found.statuses.items() if status == "wrong"}
    assert in_truth - {"a"} == set()
    assert (wrong, [cause.kind for cause in found.causes if cause.level == "error"]) == (set(), [])


class Descent:
    """An optimizer that writes through `.data`, as old ones do."""

    def __init__(self, model: nn.Module) -> None:
        self.param_groups = [{"params": list(model.parameters())}]

    def step(self) -> None:
        for parameter in self.param_groups[0]["params"]:
            parameter.data.mul_(0.99)
            parameter.data.add_(parameter.grad.data, alpha=-0.1)


def test_a_training_loop_that_writes_through_data_has_no_wrong_gradient() -> None:
    torch.manual_seed(0)
    model, average = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), nn.Linear(3, 4)
    for parameter in model.parameters():
        parameter.data.normal_()
    optimizer, x = Descent(model), torch.randn(5, 3)
    with gradir.record(model, flow=True) as rec:
        for step in range(3):
            for parameter in model.parameters():
                parameter.data.clamp_(-1, 1)
            loss = model(x).square().mean()
            found = rec.explain(loss, optimizer=optimizer)
            assert (found.level, set(found.statuses.values())) == ("none", {"reached"})
            model.zero_grad()
            loss.backward(retain_graph=step == 2)
            optimizer.step()
            for mean, parameter in zip(average.parameters(), model[0].parameters(), strict=True):
                mean.data.mul_(0.9).add_(parameter.data, alpha=0.1)
    found = rec.explain(loss, optimizer=optimizer)
    assert found.level == "none"
    assert "wrong" not in found.statuses.values()


def test_a_parameter_written_through_data_keeps_its_name() -> None:
    model = nn.Linear(2, 1)
    with gradir.record(model, flow=True) as rec:
        loss = (model(torch.ones(1, 2)).detach() * model.bias).sum()
        for parameter in model.parameters():
            parameter.data[0].clamp_(-1, 1)
    (cause,) = rec.explain(loss).causes
    assert (cause.kind, cause.level, cause.names) == ("detach", "error", ("weight", "bias"))


def test_a_step_through_data_between_a_forward_and_its_backward_makes_it_wrong() -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"g": nn.Linear(2, 3), "d": nn.Linear(3, 1, bias=False)})
    both, step_of_d = Descent(model), Descent(model["d"])
    with gradir.record(model, flow=True) as rec:
        fake = model["g"](torch.randn(4, 2))
        score = model["d"](fake)
        (score.mean() - 1).square().backward(retain_graph=True)
        step_of_d.step()
        loss = -score.mean()
    found = rec.explain(loss, optimizer=both)
    assert found.statuses == {"g.weight": "wrong", "g.bias": "wrong", "d.weight": "reached"}
    assert [(cause.kind, cause.level) for cause in found.causes] == [("overwritten", "error")]
    # What no optimizer of this step has may be as it is.
    assert rec.explain(loss, optimizer=step_of_d).level == "info"


def test_the_backward_of_what_a_scaler_makes_of_a_loss_is_its_own() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    with gradir.record(model, flow=True) as rec:
        loss = model(torch.randn(4, 2)).square().mean()
        (loss * 1024).backward(retain_graph=True)
        Descent(model).step()
    assert "wrong" not in rec.explain(loss).statuses.values()


def test_a_custom_function_whose_backward_is_another_is_not_reported() -> None:
    class Straight(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.round()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    a = leaves()["a"]
    a.register_hook(lambda gradient: gradient * 10)
    with gradir.record(flow=True) as rec:
        loss = Straight.apply(a * 3).sum()
    found = rec.explain(loss, params={"a": a})
    assert (found.level, found.statuses) == ("none", {"a": "reached"})


def test_what_was_written_over_and_is_not_kept_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of numbers that were put back what is kept would be others, where the first of them are gone."""
    of_one = 3 * torch.float64.itemsize
    for kept, most in (("all", 2 * of_one), ("the last", of_one), ("none", of_one - 1)):
        monkeypatch.setattr("gradir.frontends.pytorch.recording.steps._MOST_KEPT", most)
        assert explained(and_put_back)[0].level == "none", kept
        assert explained(to_a_factor)[0].level == ("none" if kept == "none" else "error")
