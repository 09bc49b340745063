"""Gradients that are wiped between the backward and the step of the optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import gradir  # noqa: E402

nn = torch.nn
Loop = Callable[[Any, Any, Any], None]


def backward_zero_step(loss: Any, optimizer: Any, model: Any) -> None:
    loss.backward()
    optimizer.zero_grad()  # HERE
    optimizer.step()


def zeros_in_place(loss: Any, optimizer: Any, model: Any) -> None:
    loss.backward()
    optimizer.zero_grad(set_to_none=False)  # HERE
    optimizer.step()


def zeros_of_the_model(loss: Any, optimizer: Any, model: Any) -> None:
    loss.backward()
    model.zero_grad()  # HERE
    optimizer.step()


def by_hand(loss: Any, optimizer: Any, model: Any) -> None:
    loss.backward()
    for parameter in model.parameters():
        parameter.grad = None  # HERE
    optimizer.step()


def zero_backward_step(loss: Any, optimizer: Any, model: Any) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def backward_step_zero(loss: Any, optimizer: Any, model: Any) -> None:
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def two_rounds(loss: Any, optimizer: Any, model: Any) -> None:
    for _ in range(2):
        loss.backward(retain_graph=True)
        optimizer.step()
        optimizer.zero_grad()
        loss = model(torch.ones(1, 2)).sum()


def backward_alone(loss: Any, optimizer: Any, model: Any) -> None:
    loss.backward()
    optimizer.zero_grad()


def wiped_and_brought_again(loss: Any, optimizer: Any, model: Any) -> None:
    loss.backward(retain_graph=True)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def asked(loop: Loop, make: Callable[[Any], Any]) -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    model = nn.Linear(2, 1)
    optimizer = make(model.parameters())
    before = [parameter.detach().clone() for parameter in model.parameters()]
    with gradir.record(model, flow=True) as rec:
        loss = model(torch.ones(1, 2)).sum()
        loop(loss, optimizer, model)
    moved = any(not torch.equal(a, b.detach()) for a, b in zip(before, model.parameters(), strict=True))
    return rec, (loss, optimizer), moved


OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, 0.1),
    "sgd in one": lambda parameters: torch.optim.SGD(parameters, 0.1, foreach=True),
    "adam": lambda parameters: torch.optim.Adam(parameters, 0.1),
    "adam one by one": lambda parameters: torch.optim.Adam(parameters, 0.1, foreach=False),
}


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("loop", [backward_zero_step, zeros_in_place, zeros_of_the_model, by_hand])
def test_a_gradient_that_is_wiped_before_the_step_is_reported(loop: Loop, make: Callable[[Any], Any]) -> None:
    rec, (loss, optimizer), moved = asked(loop, make)
    assert not moved
    found = rec.explain(loss, optimizer=optimizer)
    assert found.statuses == {"weight": "cleared", "bias": "cleared"}
    (cause,) = found.causes
    code = loop.__code__  # type: ignore[attr-defined]
    line = code.co_firstlineno + (3 if loop is by_hand else 2)
    assert (cause.kind, cause.level, cause.names) == ("cleared", "error", ("weight", "bias"))
    assert (cause.source.line, cause.source.function) == (line, loop.__name__)  # type: ignore[attr-defined]
    assert cause.detail == f"the step at tests/test_explain_cleared.py:{line + 1} finds none"
    assert rec.explain(loss).level == "info"
    other = torch.optim.SGD([torch.ones(1, requires_grad=True)], 0.1)
    # It moves nothing, which is an alarm of its own.
    assert [(cause.kind, cause.level) for cause in rec.explain(loss, optimizer=other).causes] == [
        ("cleared", "info"),
        ("moves_nothing", "error"),
    ]


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize(
    "loop", [zero_backward_step, backward_step_zero, two_rounds, backward_alone, wiped_and_brought_again]
)
def test_an_order_that_learns_is_no_alarm(loop: Loop, make: Callable[[Any], Any]) -> None:
    rec, (loss, optimizer), moved = asked(loop, make)
    assert moved is (loop is not backward_alone)
    found = rec.explain(loss, optimizer=optimizer)
    assert found.statuses == {"weight": "reached", "bias": "reached"}
    assert found.level == "none"


def test_a_whole_step_of_a_gan_wipes_what_it_means_to() -> None:
    torch.manual_seed(0)
    generator, critic = nn.Linear(2, 2), nn.Linear(2, 1)
    makes = torch.optim.Adam(generator.parameters(), 0.1)
    judges = torch.optim.SGD(critic.parameters(), 0.1, momentum=0.9)
    with gradir.record({"generator": generator, "critic": critic}, flow=True) as rec:
        for _ in range(2):
            judges.zero_grad()
            judged = critic(generator(torch.randn(4, 2)).detach()).square().mean()
            judged.backward()
            judges.step()
            makes.zero_grad()
            made = -critic(generator(torch.randn(4, 2))).mean()
            made.backward()
            makes.step()
            judges.zero_grad()
    for loss, optimizer, level in ((judged, judges, "info"), (made, makes, "none"), (made, None, "none")):
        found = rec.explain(loss, optimizer=optimizer)
        assert found.level == level
        assert "cleared" not in found.statuses.values()


def test_a_loss_that_is_only_looked_at_may_be_thrown_away() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    with gradir.record(model, flow=True) as rec:
        probe = model(torch.ones(1, 2)).sum()
        probe.backward()
        optimizer.zero_grad()
        loss = model(torch.ones(1, 2)).square().sum()
        loss.backward()
        optimizer.step()
    assert [rec.explain(each, optimizer=optimizer).level for each in (probe, loss)] == ["none", "none"]
