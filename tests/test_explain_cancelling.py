"""Gradients that come over several paths and cancel are told as such, where the paths meet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from marked_lines import find_marked_line  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributions import MultivariateNormal, Normal  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

import gradir  # noqa: E402
from gradir.explanations.model import Explanation  # noqa: E402

HERE = f"tests/{Path(__file__).name}"
X = torch.tensor([[0.5, -1.0, 2.0], [1.0, 0.3, -0.7], [-0.4, 0.9, 1.1]])
CHOSEN, REJECTED = torch.tensor([0, 1, 2]), torch.tensor([1, 2, 0])
Loss = Callable[[nn.Module], torch.Tensor]


def explained(model: nn.Module, loss_of: Loss) -> Explanation:
    """The explanation of a loss, after a real backward has said that the same parameters get nothing but rounding."""
    with gradir.record(model, flow=True) as rec:
        loss = loss_of(model)
    found = rec.explain(loss)
    loss.backward()
    zero = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.abs().max() < 1e-6}
    assert {name for name, status in found.statuses.items() if status == "zero"} == zero
    return found


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def policy() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3, bias=False))


def gaussian() -> nn.Module:
    return nn.ParameterDict({"mean": torch.tensor([0.3, -0.2]), "scale": torch.zeros(2)})


def chance_of_its_own_sample(m: nn.Module) -> torch.Tensor:
    normal = Normal(m["mean"], m["scale"].exp())
    action = normal.rsample()
    return -normal.log_prob(action).sum()  # HERE


def chance_of_its_own_samples(m: nn.Module) -> torch.Tensor:
    normal = MultivariateNormal(m["mean"], torch.diag(m["scale"].exp()))
    return normal.log_prob(normal.rsample((4,))).mean()  # HERE


def log_chances(m: nn.Module, taken: torch.Tensor) -> torch.Tensor:
    return m(X).log_softmax(-1).gather(1, taken[:, None]).squeeze(1)


def its_own_reference(m: nn.Module) -> torch.Tensor:
    ours = log_chances(m, CHOSEN) - log_chances(m, REJECTED)
    reference = log_chances(m, CHOSEN) - log_chances(m, REJECTED)
    return -F.logsigmoid(0.1 * (ours - reference)).mean()  # HERE


def ratio_to_itself(m: nn.Module) -> torch.Tensor:
    new, old = log_chances(m, CHOSEN), log_chances(m, CHOSEN)
    ratio = (new - old).exp()  # HERE
    return (ratio * torch.tensor([1.0, -2.0, 0.5])).mean()


def what_is_subtracted_from_itself(m: nn.Module) -> torch.Tensor:
    hidden = m(X)
    return (2 * hidden - (hidden + hidden)).sum()  # HERE


@pytest.mark.parametrize(
    ("model", "loss_of", "names"),
    [
        (gaussian(), chance_of_its_own_sample, {"mean"}),
        (gaussian(), chance_of_its_own_samples, {"mean"}),
        (policy(), its_own_reference, {"0.weight", "2.weight"}),
        (policy(), ratio_to_itself, {"0.weight", "2.weight"}),
        (nn.Linear(3, 2, bias=False), what_is_subtracted_from_itself, {"weight"}),
    ],
)
def test_paths_that_cancel_are_reported_where_they_meet(model: nn.Module, loss_of: Loss, names: set[str]) -> None:
    found = explained(model, loss_of)
    cancelling = [cause for cause in found.causes if cause.kind == "cancel"]
    assert {name for cause in cancelling for name in cause.names} == names
    assert {(cause.level, cause.source and cause.source.line) for cause in cancelling} == {
        ("error", find_marked_line(loss_of))
    }
    assert all(": the paths through " in cause.text and f" at {HERE}:" in cause.text for cause in cancelling)
    assert not any("normalisation" in cause.advice for cause in cancelling)


def test_a_bias_that_both_sides_of_a_difference_have_is_no_alarm() -> None:
    model = nn.Linear(3, 1)
    for loss_of in (
        lambda m: m(X).mean() - m(X.square()).mean(),
        lambda m: -F.logsigmoid(m(X) - m(X.square())).mean(),
        lambda m: F.mse_loss(m(X), m(X.square())),
    ):
        model.zero_grad()
        found = explained(model, loss_of)
        assert (found.level, found.statuses) == ("none", {"weight": "reached", "bias": "zero"})
        assert [(cause.kind, cause.level, cause.names) for cause in found.causes] == [("rounding", "note", ("bias",))]


@pytest.mark.parametrize(
    "loss_of",
    [
        lambda m: (log_chances(m, CHOSEN) - log_chances(m, REJECTED)).exp().mean(),
        lambda m: ((log_chances(m, CHOSEN) - log_chances(m, CHOSEN).detach()).exp() * X[:, 0]).mean(),
        lambda m: (m(X) + m(-X)).square().mean() + m(X).mean(),
        lambda m: F.kl_div(m(X).log_softmax(-1), m(X + 0.1).softmax(-1), reduction="batchmean"),
    ],
)
def test_paths_that_do_not_cancel_are_no_alarm(loss_of: Loss) -> None:
    found = explained(policy(), loss_of)
    assert set(found.statuses.values()) == {"reached"}
    assert not any(cause.level == "error" for cause in found.causes)


def test_a_bias_that_a_softmax_removes_is_reported_at_the_softmax() -> None:
    model = nn.ModuleDict({"q": nn.Linear(3, 2), "k": nn.Linear(3, 2)})

    def loss_of(m: nn.Module) -> torch.Tensor:
        scores = m["q"](X) @ m["k"](X).t()
        weights = scores.softmax(-1)  # HERE
        return (weights @ X).square().mean()

    (cause,) = explained(model, loss_of).causes
    assert (cause.kind, cause.level, cause.names) == ("rounding", "note", ("k.bias",))
    assert cause.source is not None
    assert (cause.source.line, cause.detail) == (find_marked_line(loss_of), "by softmax")
