"""The help for an error is such that the program runs, or learns, once it is followed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import pytest

torch = pytest.importorskip("torch")

from marked_lines import find_marked_line  # noqa: E402
from torch import nn  # noqa: E402

import gradir  # noqa: E402

Within = Callable[[], AbstractContextManager[object]]


def residual(net: nn.Module, t: torch.Tensor) -> torch.Tensor:
    u = net(t)  # HERE
    scaled = u.square() * 2
    (slope,) = torch.autograd.grad(scaled.sum(), t, create_graph=True)
    return slope.square().mean()


@pytest.mark.parametrize("off", [torch.no_grad, lambda: torch.set_grad_enabled(False)])
def test_a_derivative_without_a_graph_is_reported_where_its_graph_was_lost(off: Within) -> None:
    net, t = nn.Linear(1, 1), torch.rand(4, 1, requires_grad=True)
    rec = gradir.record(net, flow=True)
    with pytest.raises(RuntimeError) as raised, rec, off():
        residual(net, t)
    (cause,) = rec.explain(raised.value).causes
    assert (cause.kind, cause.op, cause.level) == ("graphless", "linear", "error")
    assert cause.source is not None
    assert cause.source.line == find_marked_line(residual)
    assert "with torch.enable_grad():" in cause.advice
    with off(), torch.enable_grad():
        assert residual(net, t).isfinite()


def test_a_derivative_by_a_tensor_without_requires_grad_is_an_error() -> None:
    rec = gradir.record(flow=True)
    with pytest.raises(RuntimeError) as raised, rec:
        torch.autograd.grad(torch.ones(2).sum(), torch.ones(2))
    (cause,) = rec.explain(raised.value).causes
    assert cause.kind == "raised"


@pytest.mark.parametrize("within", [nullcontext, torch.enable_grad])
def test_the_advice_requires_grad_before_the_forward(within: Within) -> None:
    net, t = nn.Linear(1, 1), torch.rand(4, 1)
    rec = gradir.record(net, flow=True)
    with pytest.raises(RuntimeError) as raised, rec, within():
        residual(net, t)
    (cause,) = rec.explain(raised.value).causes
    assert "t = t.requires_grad_()" in cause.advice
    assert residual(net, t.requires_grad_()).isfinite()


def test_a_parameter_that_is_converted_after_it_was_made_is_made_a_leaf_by_the_help() -> None:
    class Scaled(nn.Module):
        def __init__(self, *, is_late: bool) -> None:
            super().__init__()
            ones, dtype = torch.ones(2), torch.float64
            self.scale = nn.Parameter(ones).to(dtype) if is_late else nn.Parameter(ones.to(dtype))

    late, early = Scaled(is_late=True), Scaled(is_late=False)
    with gradir.record(late, flow=True) as rec:
        loss = late.scale.sum()
    (cause,) = rec.explain(loss, params={"scale": late.scale}).causes
    assert cause.kind == "nonleaf"
    assert "nn.Parameter(x.to(dtype))" in cause.advice
    early.scale.sum().backward()
    assert early.scale.grad is not None


def test_the_last_state_of_the_backward_direction_has_seen_all_steps() -> None:
    rnn, x = nn.LSTM(3, 4, batch_first=True, bidirectional=True), torch.randn(2, 5, 3)
    with gradir.record(rnn, flow=True) as rec:
        loss = rnn(x)[0][:, -1].sum()
    cause = next(each for each in rec.explain(loss).causes if "weight_hh_l0_reverse" in each.names)
    assert "h_n" in cause.advice
    _, (h_n, _) = rnn(x)
    h_n.sum().backward()
    assert rnn.weight_hh_l0_reverse.grad.any()


def adapted(net: nn.Module, x: torch.Tensor) -> nn.Module:
    learner = copy.deepcopy(net)
    inner = torch.optim.SGD(learner.parameters(), 0.1)
    learner(x).square().mean().backward()
    inner.step()
    return learner


@pytest.mark.parametrize("is_early", [False, True])
def test_a_loss_of_a_copy_is_reported_as_one(is_early: bool) -> None:
    net, x = nn.Linear(3, 2), torch.randn(4, 3)
    early = copy.deepcopy(net)
    with gradir.record(net, flow=True) as rec:
        learner = early if is_early else adapted(net, x)
        loss = learner(x).square().mean()
    found = rec.explain(loss, optimizer=torch.optim.SGD(net.parameters(), 0.1))
    assert [(cause.kind, cause.level, cause.names) for cause in found.causes] == [
        ("copied", "error", ("weight", "bias"))
    ]
    # What is copied in the recording is computed from the numbers of the net, at the line that copies it.
    assert set(found.statuses.values()) == {"unused" if is_early else "cut"}
    function = found.causes[0].source.function if found.causes[0].source else ""
    assert function == ("" if is_early else "adapted")
    assert "torch.func.functional_call(module, updated, x)" in found.causes[0].advice
    grads = torch.autograd.grad(net(x).square().mean(), [*net.parameters()], create_graph=True)
    named = zip(net.named_parameters(), grads, strict=True)
    updated = {name: parameter - 0.1 * grad for (name, parameter), grad in named}
    torch.func.functional_call(net, updated, x).square().mean().backward()
    assert net.weight.grad.any()


def test_a_loss_of_another_model_is_no_copy() -> None:
    net, other, x = nn.Linear(3, 2), nn.Linear(3, 5), torch.randn(4, 3)
    with gradir.record(net, flow=True) as rec:
        loss = other(x).square().mean()
    found = rec.explain(loss)
    assert {cause.kind for cause in found.causes} == {"unused"}
