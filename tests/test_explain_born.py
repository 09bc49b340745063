"""The operation of a forward that gave NaN or infinity first is told, and not the last one that NaN comes through."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from marked_lines import find_marked_line  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

import gradir  # noqa: E402

Run = Callable[[nn.Module, torch.Tensor], torch.Tensor]


def of_a_negative(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    x = torch.log(model[0](x) - 100)  # HERE
    return F.huber_loss(model[1](F.gelu(x)), torch.zeros(6, 4))


def too_large_a_power(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    scale = torch.exp(model[0](x) + 200)  # HERE
    return (model[1](scale / scale.sum()).softmax(1) + 1).log().mean()


def too_large_a_product(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    query, key = (layer(x).half() * 1000 for layer in model)
    scores = query @ key.t()  # HERE
    return (scores / 2).softmax(-1).float().square().mean()


def of_an_input(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    x[0, 0] = float("nan")
    hidden = model[0](x)  # HERE
    return F.mse_loss(model[1](hidden.relu()), torch.zeros(6, 4))


def of_a_parameter(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    nn.init.constant_(model[1].weight, float("nan"))
    hidden = model[0](x).relu()
    return F.mse_loss(model[1](hidden), torch.zeros(6, 4))  # HERE


def of_a_spread(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    hidden = model[0](x[:1])
    spread = hidden.std(dim=0)  # HERE
    return F.softplus(model[1](hidden / spread)).mean()


def with_a_hidden_logarithm(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    hidden = model[0](x)
    safe = torch.where(hidden > 0, hidden.clamp(min=1e-6).log(), 0.0)
    scale = torch.exp(safe.square() + 200)  # HERE
    return (model[1](scale / scale.sum()).softmax(1) + 1).log().mean()


def with_a_mask(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    masked = model[0](x).masked_fill(torch.eye(6, 4).bool(), -torch.inf)
    weights = torch.logsumexp(masked, 1, keepdim=True).exp().log()
    spread = (weights * 0).sqrt() / 0  # HERE
    return F.mse_loss(model[1](spread.expand(6, 4)), torch.zeros(6, 4))


def scaled_after_an_unseen_product(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    query = model[0](x).half() * 1000
    scores = (query @ (x.half() * 1000).t()) / 2  # HERE
    return scores.softmax(-1).float().square().mean()


def of_data_without_a_spread(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    x = torch.cat([x[:, :3], torch.ones(6, 1)], 1)
    x = (x - x.mean(0)) / x.std(0)  # HERE
    return F.mse_loss(model(x), torch.zeros(6, 4))


def of_a_logarithm_in_the_data(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    x = x.relu().log()  # HERE
    return F.mse_loss(model(x), torch.zeros(6, 4))


def of_a_target(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    target = x.sqrt()  # HERE
    return F.mse_loss(model(x), target)


def of_a_weight_of_classes(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    weight = torch.tensor([1.0, 0.0, 2.0, 1.0]).reciprocal()  # HERE
    return (model(x) * weight).mean()


def of_data_too_large_for_autocast(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.float16):
        hidden = model[0](x * 1e5)  # HERE
    return F.mse_loss(model[1](hidden.float()), torch.zeros(6, 4))


def of_filled_data(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    x = torch.cat([x[:, :3], torch.full((6, 1), torch.nan)], 1)
    hidden = model[0](x)  # HERE
    return F.mse_loss(model[1](hidden), torch.zeros(6, 4))


CASES = [
    (of_data_without_a_spread, "born", "div", ""),
    (of_a_logarithm_in_the_data, "born", "log", ""),
    (of_a_target, "born", "sqrt", ""),
    (of_a_weight_of_classes, "born", "reciprocal", ""),
    (of_data_too_large_for_autocast, "born", "linear", "its result is too large for float16"),
    (of_filled_data, "nonfinite_input", "linear", ""),
    (scaled_after_an_unseen_product, "born", "matmul", ""),
    (of_a_negative, "born", "log", "its input is below 0 somewhere, where it is NaN"),
    (too_large_a_power, "born", "exp", "its result is too large for its dtype"),
    (too_large_a_product, "born", "matmul", "its result is too large for its dtype"),
    (of_an_input, "nonfinite_input", "linear", ""),
    (
        of_a_parameter,
        "born",
        "linear",
        "1.weight contains NaN or infinity already, as after a step with such a gradient",
    ),
    (of_a_spread, "born", "std", "it is over a single number, which has no spread (0 / 0)"),
    (with_a_hidden_logarithm, "born", "exp", "its result is too large for its dtype"),
    (with_a_mask, "born", "div", "its divisor is 0 somewhere"),
]


@pytest.mark.filterwarnings("ignore:std")
@pytest.mark.parametrize(("run", "kind", "op", "detail"), CASES, ids=[row[0].__name__ for row in CASES])
def test_the_first_operation_that_gives_nan_is_reported(run: Run, kind: str, op: str, detail: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    with gradir.record(model, flow=True) as rec:
        loss = run(model, torch.randn(6, 4))
    found = rec.explain(loss)
    loss.backward()
    assert any(not parameter.grad.isfinite().all() for parameter in model.parameters())
    causes = [cause for cause in found.causes if cause.level == "error"]
    assert {(cause.kind, cause.op, cause.detail) for cause in causes} == {(kind, op, detail)}
    assert {cause.source.line for cause in causes if cause.source} == {find_marked_line(run)}


def test_the_advice_for_a_spread_of_one_entry_gives_a_finite_gradient() -> None:
    x = torch.randn(1, 4, requires_grad=True)
    with gradir.record(flow=True) as rec:
        loss = x.std(dim=0).mean().exp().log()
    (cause,) = rec.explain(loss, params={"x": x}).causes
    expression = cause.advice[cause.advice.index("(x.var") : cause.advice.index(".sqrt()") + len(".sqrt()")]
    eval(expression, {"x": x, "dim": 0}).mean().backward()
    assert x.grad.isfinite().all()


def test_the_advice_for_ctc_gives_a_finite_gradient() -> None:
    scores = torch.randn(4, 1, 5, requires_grad=True)
    targets, lengths = torch.tensor([[1, 2, 3, 4, 1, 2]]), (torch.tensor([4]), torch.tensor([6]))
    with gradir.record(flow=True) as rec:
        loss = F.ctc_loss(scores.log_softmax(-1), targets, *lengths)
    (cause,) = rec.explain(loss, params={"scores": scores}).causes
    assert (cause.kind, cause.op) == ("nonfinite", "ctc_loss")
    assert cause.advice.startswith("pass zero_infinity=True")
    F.ctc_loss(scores.log_softmax(-1), targets, *lengths, zero_infinity=True).backward()
    assert scores.grad.isfinite().all()


def divergence(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    return (p * (p / q).log()).sum()  # HERE


@pytest.mark.parametrize(
    "add",
    [
        lambda loss, term: loss + 0.1 * term,
        lambda loss, term: sum([loss, -term, term]),
        lambda loss, term: torch.stack([loss, term]).mean(),
        lambda loss, term: loss.mul_(2).add_(term),
        lambda loss, term: (loss + term.abs().view(1).squeeze()) / 4,
    ],
)
def test_a_term_of_data_that_makes_the_loss_nan_is_reported_at_its_line(
    add: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> None:
    model = nn.Linear(4, 1)
    with gradir.record(model, flow=True) as rec:
        term = divergence(torch.tensor([0.2, 0.8, 0.0]), torch.tensor([0.5, 0.5, 0.0]))
        loss = add(model(torch.randn(6, 4)).square().mean(), term)
    (cause,) = rec.explain(loss).causes
    loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    assert (cause.kind, cause.level, cause.op) == ("loss_undefined", "error", "div")
    assert cause.source is not None
    assert cause.source.line == find_marked_line(divergence)


def test_infinite_data_whose_infinity_ends_is_not_blamed() -> None:
    x = torch.arange(3.0, requires_grad=True)
    with gradir.record(flow=True) as rec:
        mask = torch.tensor([0.0, 1.0, 1.0]).log()
        loss = (x + mask).softmax(0).square().sum() + torch.tensor(2.0).sub(3).log()  # HERE
    (cause,) = rec.explain(loss, params={"x": x}).causes
    assert (cause.kind, cause.op) == ("loss_undefined", "log")
    assert cause.source is not None
    assert cause.source.line == find_marked_line(test_infinite_data_whose_infinity_ends_is_not_blamed)


def test_masked_logits_are_no_loss_that_is_infinite() -> None:
    model = nn.Linear(4, 3)
    with gradir.record(model, flow=True) as rec:
        logits = model(torch.randn(6, 4)).masked_fill(torch.tensor([True, False, False]), -torch.inf)
    assert rec.explain(logits).causes == ()
