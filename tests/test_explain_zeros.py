"""Gradients of zero: an error where the recorded forward says that they stay zero, and else information."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

import gradir  # noqa: E402
from gradir.explanations.model import Explanation  # noqa: E402
from gradir.frontends.pytorch.explaining.magnitudes import is_zero  # noqa: E402

X = torch.tensor([[0.5, -1.0, 2.0, 1.5], [1.0, 0.3, -0.7, 0.2], [-0.4, 0.9, 1.1, -1.2]])
NOTHING = torch.zeros(3, dtype=torch.bool)


def explained(model: nn.Module, loss_of: Callable[[], torch.Tensor], optimizer: object = None) -> Explanation:
    """The explanation of a loss, after a real backward has said that the same parameters get a gradient of zero."""
    with gradir.record(model, flow=True) as rec:
        loss = loss_of()
    found = rec.explain(loss, optimizer=optimizer)
    loss.backward()
    zero = {name for name, p in model.named_parameters() if p.grad is not None and not p.grad.any()}
    assert {name for name, status in found.statuses.items() if status == "zero"} == zero
    return found


def told(found: Explanation) -> list[tuple[str, str, str, tuple[str, ...]]]:
    return [(cause.kind, cause.level, cause.op, cause.names) for cause in found.causes]


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


ALL = ("0.weight", "0.bias", "2.weight", "2.bias")


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = torch.zeros_like(x)
        for expert, chosen in zip(self.experts, (~NOTHING, NOTHING), strict=True):
            result[chosen] = expert(x[chosen])
        return result


def test_a_parameter_whose_memory_is_freed_is_not_taken_for_zero() -> None:
    # As `fully_shard` frees what it gathered.
    freed = torch.zeros(3)
    freed.untyped_storage().resize_(0)
    assert (is_zero(freed), is_zero(torch.zeros(3))) == (False, True)


def test_an_expert_without_a_token_is_reported_to_have_had_none() -> None:
    model = Experts()
    found = explained(model, lambda: model(X).square().mean())
    assert told(found) == [("empty", "info", "index_put", ("experts.1.weight", "experts.1.bias"))]


def test_an_expert_whose_rows_are_joined_to_others_may_have_none() -> None:
    model = Experts()
    one, other = model.experts
    for loss_of, op in (
        (lambda: torch.cat([one(X), other(X[NOTHING])]).square().mean(), "cat"),
        (lambda: one(X).index_add(0, torch.arange(0), other(X[NOTHING])).square().mean(), "index_add"),
        (lambda: one(X).square().mean() + other(X[NOTHING]).sum(), "sum"),
    ):
        model.zero_grad()
        assert told(explained(model, loss_of)) == [("empty", "info", op, ("experts.1.weight", "experts.1.bias"))]


@pytest.mark.parametrize("loss", [F.mse_loss, F.l1_loss, F.smooth_l1_loss, lambda a, b: (a - b).norm()])
def test_a_student_that_equals_its_teacher_has_nothing_to_learn_yet(loss: Callable[..., torch.Tensor]) -> None:
    student = mlp()
    teacher = copy.deepcopy(student).requires_grad_(requires_grad=False)
    found = explained(student, lambda: loss(student(X), teacher(X)))
    assert [(kind, level, names) for kind, level, _, names in told(found)] == [("equal", "info", ALL)]
    assert "ignore this where both sides start equal" in str(found)


def dead() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(4, 1), nn.ReLU())
    nn.init.constant_(model[0].bias, -100.0)
    return model


NOW: list[tuple[str, nn.Module, Callable[[nn.Module], torch.Tensor]]] = [
    ("dead", dead(), lambda m: m(X).mean()),
    ("dead", dead(), lambda m: (m[0](X) + 50).clamp(min=0).mean()),
    ("not_chosen", dead(), lambda m: torch.maximum(m[0](X), torch.zeros(())).mean()),
    (
        "factor",
        mlp(),
        lambda m: (F.cross_entropy(m(X), torch.ones(3, dtype=torch.long), reduction="none") * NOTHING).sum(),
    ),
    ("ignored", mlp(), lambda m: F.cross_entropy(m(X), torch.full((3,), -100), reduction="sum")),
    ("factor", nn.Sequential(nn.Linear(4, 3, bias=False), nn.Linear(3, 2)), lambda m: m(X * 0).square().mean()),
    ("padding", nn.Embedding(5, 3, padding_idx=0), lambda m: m(torch.zeros(3, dtype=torch.long)).sum()),
    ("not_chosen", nn.ParameterList([torch.zeros(3), torch.ones(3)]), lambda m: torch.maximum(m[0], m[1]).sum()),
    ("zero", nn.ParameterList([torch.zeros(3), torch.ones(3)]), lambda m: torch.stack([*m]).max(0)[0].sum()),
    # A loss that PPO has clipped for every sample.
    ("not_chosen out_of_range", mlp(), lambda m: torch.min(r := m(X).exp() + 9, r.clamp(0.8, 1.2)).sum()),
    # A factor that starts at zero, and a batch of zeros.
    (
        "factor",
        nn.ParameterList([torch.ones(4, 2), torch.zeros(2, 3)]),
        lambda m: (X * 0 @ m[0] @ m[1] + 1).square().mean(),
    ),
]


@pytest.mark.parametrize(("kinds", "model", "loss_of"), NOW)
def test_a_zero_that_other_numbers_may_change_is_no_alarm(
    kinds: str, model: nn.Module, loss_of: Callable[[nn.Module], torch.Tensor]
) -> None:
    found = explained(model, lambda: loss_of(model))
    assert "zero" in found.statuses.values()
    assert {(kind, level) for kind, level, _, _ in told(found)} == {(kind, "info") for kind in kinds.split()}


def test_one_unit_that_is_dead_is_not_reported_at_all() -> None:
    model = nn.Sequential(nn.Linear(4, 2), nn.ReLU())
    nn.init.constant_(model[0].bias[0], -100.0)
    assert explained(model, lambda: model(X).add(0).mean()).level == "none"


def sampled(grid: torch.Tensor, mode: str) -> torch.Tensor:
    """The mean of what is read of an image at some places."""
    image = torch.arange(4.0 ** (grid.dim() - 2)).view(1, 1, *[4] * (grid.dim() - 2))
    return F.grid_sample(image, grid, mode, align_corners=False).mean()


STAYS: list[tuple[str, str, nn.Module, Callable[[nn.Module], torch.Tensor]]] = [
    ("flat", "round", mlp(), lambda m: m(X).round().mean()),
    ("flat", "sign", mlp(), lambda m: m(X).sign().mean()),
    ("flat", "div", mlp(), lambda m: torch.div(m(X), 2, rounding_mode="floor").mean()),
    ("flat", "bernoulli", mlp(), lambda m: torch.bernoulli(m(X).sigmoid()).mean()),
    ("flat", "grid_sample", mlp(), lambda m: sampled(m(X).tanh().view(1, 1, 3, 2), "nearest")),
    ("flat", "grid_sample", nn.Linear(4, 3), lambda m: sampled(m(X).tanh().view(1, 1, 1, 3, 3), "nearest")),
    ("one_entry", "softmax", mlp(), lambda m: m(X)[:, :1].softmax(-1).mean()),
    ("one_entry", "log_softmax", mlp(), lambda m: F.cross_entropy(m(X)[:, :1], torch.zeros(3, dtype=torch.long))),
    ("one_entry", "layer_norm", mlp(), lambda m: F.layer_norm(m(X)[..., None], (1,)).mean()),
    ("out_of_range", "clamp", mlp(), lambda m: m(X).clamp(50, 60).mean()),
    ("saturated", "sigmoid", mlp(), lambda m: (m(X) + 500).sigmoid().mean()),
    # Of parameters alone, so that no input changes it.
    ("out_of_range", "clamp_min", nn.ParameterList([torch.tensor(1e-3)]), lambda m: (m[0] * 2).clamp_min(1e-2)),
    ("out_of_range", "relu", nn.ParameterList([torch.tensor(-1.0)]), lambda m: m[0].relu()),
    # Each factor waits for the other.
    (
        "stuck",
        "matmul",
        nn.ParameterList([torch.zeros(4, 2), torch.zeros(2, 3)]),
        lambda m: (X @ m[0] @ m[1] + 1).square().mean(),
    ),
    ("weighed_out", "mul", mlp(), lambda m: m(X).mean() * 0.0),
    # There is no loss to make smaller.
    ("lost", "cross_entropy", mlp(), lambda m: F.cross_entropy(m(X), torch.full((3,), -100))),
]


@pytest.mark.parametrize(("kind", "op", "model", "loss_of"), STAYS)
def test_a_zero_that_stays_is_an_error(
    kind: str, op: str, model: nn.Module, loss_of: Callable[[nn.Module], torch.Tensor]
) -> None:
    found = explained(model, lambda: loss_of(model))
    assert "zero" in found.statuses.values()
    assert {(kind, level, where) for kind, level, where, _ in told(found)} == {(kind, "error", op)}


def test_places_in_an_image_between_whose_entries_is_interpolated_learn() -> None:
    model = mlp()
    assert explained(model, lambda: sampled(model(X).tanh().view(1, 1, 3, 2), "bilinear")).level == "none"


def test_layers_that_are_all_zero_stay_so_though_the_last_bias_learns() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    found = explained(model, lambda: (model(X) - 1).square().mean())
    assert told(found) == [("stuck", "error", "linear", ALL[:3])]


def test_a_bias_and_a_head_of_zeros_learn_when_the_input_is_not_zero() -> None:
    model = mlp()
    nn.init.zeros_(model[0].bias)
    nn.init.zeros_(model[2].weight)
    found = explained(model, lambda: (model(X * 0) - 1).square().mean())
    assert told(found) == [("factor", "info", "linear", ALL[:3])]


def test_a_zero_gradient_outside_the_optimizer_is_no_alarm() -> None:
    model = mlp()
    optimizer = torch.optim.SGD(model[2].parameters(), 0.1)
    found = explained(model, lambda: model[2](model[0](X).round()).mean(), optimizer)
    assert told(found) == [("flat", "info", "round", ALL[:2])]


class Chosen(nn.Module):
    """What one number for each row weighs, with parameters behind it that a constant weight teaches nothing."""

    def __init__(self, weight: Callable[[torch.Tensor], torch.Tensor], *, numbers: int = 1) -> None:
        super().__init__()
        self.gate, self.value, self.weight = nn.Linear(4, numbers), nn.Linear(4, 3), weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.value(x) * self.weight(self.gate(x))


def rounded(model: nn.Module) -> tuple[Explanation, set[str]]:
    """The explanation, and of what a real backward gives a gradient that is zero or as good as that."""
    with gradir.record(model, flow=True) as rec:
        loss = model(X).square().mean() + model(X).mean()
    found = rec.explain(loss)
    loss.backward()
    gradients = {name: p.grad.abs().max() for name, p in model.named_parameters()}
    largest = max(gradients.values())
    return found, {name for name, size in gradients.items() if size <= 1e-5 * largest}


BEHIND = ("gate.weight", "gate.bias")


@pytest.mark.parametrize(
    ("weight", "op"),
    [
        (lambda g: one_by_sum(g.sigmoid()), "div"),
        (lambda g: one_by_sum(g.softmax(-1).topk(1, -1)[0] + g.sigmoid()), "div"),
        (lambda g: F.normalize(g, dim=-1), "div"),
        (lambda g: F.normalize(g, p=1, dim=-1), "div"),
        (lambda g: g / g.square().sum(-1, keepdim=True).sqrt(), "div"),
        (lambda g: g / (g.norm(dim=-1, keepdim=True) + 1e-12), "div"),
        (lambda g: g - g.mean(-1, keepdim=True) + 1, "sub"),
        (lambda g: g - g.amax(-1, keepdim=True) + 1, "sub"),
    ],
)
def test_what_is_made_of_a_single_entry_and_divides_it_is_constant(
    weight: Callable[[torch.Tensor], torch.Tensor], op: str
) -> None:
    found, zero = rounded(Chosen(weight))
    assert zero == set(BEHIND)
    assert {name for name, status in found.statuses.items() if status == "zero"} == zero
    assert told(found) == [("one_entry", "error", op, BEHIND)]


def one_by_sum(x: torch.Tensor) -> torch.Tensor:
    return x / x.sum(-1, keepdim=True)


@pytest.mark.parametrize(
    "added_up",
    [
        lambda g: g.softmax(-1).sum(-1, keepdim=True),
        lambda g: g.softmax(1).mean(1, keepdim=True) * 3,
        lambda g: g.softmax(1).sum(),
        lambda g: g.softmax(0).mean(),
    ],
)
def test_a_softmax_that_is_added_up_is_constant(added_up: Callable[[torch.Tensor], torch.Tensor]) -> None:
    found, zero = rounded(Chosen(added_up, numbers=3))
    assert zero == set(BEHIND)
    assert {name for name, status in found.statuses.items() if status == "zero"} == zero
    assert told(found) == [("adds_up", "error", "softmax", BEHIND)]


@pytest.mark.parametrize(
    "weight",
    [
        lambda g: g / (g.norm(dim=-1, keepdim=True) + 1),
        lambda g: g / g.square().sum(-1, keepdim=True),
        lambda g: F.normalize(g * 1e-14, dim=-1) * 1e3,
        lambda g: g / g.sum(0),
        lambda g: F.normalize(g, dim=0),
        lambda g: g - g.abs() / 2,
        lambda g: torch.sub(g, g.mean(-1, keepdim=True), alpha=0.5),
        lambda g: torch.cat([g, 2 * g, g * g], 1).softmax(1).sum(0),
        lambda g: one_by_sum(g.sigmoid()) * g,
        lambda g: (h := g.sigmoid()) / h.sum(-1, keepdim=True) + h,
    ],
)
def test_a_ratio_with_other_terms_is_not_constant(weight: Callable[[torch.Tensor], torch.Tensor]) -> None:
    found, zero = rounded(Chosen(weight))
    assert not zero
    assert found.level == "none"
    assert set(found.statuses.values()) == {"reached"}


def test_a_parameter_that_is_normalised_by_itself_is_constant() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.value = nn.Parameter(torch.tensor([0.7])), nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.value(x) * F.normalize(self.scale, dim=0)

    found, zero = rounded(Scaled())
    assert zero == {"scale"}
    assert told(found) == [("one_entry", "error", "div", ("scale",))]


def test_probabilities_that_are_captured_themselves_are_no_sum() -> None:
    model = mlp()
    with gradir.record(model, flow=True) as rec:
        probabilities = model(X).softmax(-1)
    assert rec.explain(probabilities).level == "none"


class Sequences(nn.Module):
    """A recurrent network in both directions, of whose outputs a part goes on."""

    def __init__(self, kind: str, part: Any, layers: int = 1) -> None:
        super().__init__()
        self.rnn = getattr(nn, kind)(3, 4, layers, batch_first=True, bidirectional=True)
        self.part = part

    def forward(self, x: Any) -> Any:
        return self.part(*self.rnn(x))


def of_sequences(kind: str, part: Any, steps: int = 6, layers: int = 1) -> gradir.Explanation:
    torch.manual_seed(0)
    model = Sequences(kind, part, layers)
    with gradir.record(model, flow=True) as rec:
        loss = model(torch.randn(5, steps, 3)).square().mean()
    return rec.explain(loss)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize(
    "part",
    [
        lambda out, _: out[:, -1],
        lambda out, _: out[:, -1:, :],
        lambda out, _: out.select(1, 5),
        lambda out, _: out.transpose(0, 1)[-1],
        lambda out, _: nn.functional.dropout(out, 0.2)[:, -1],
        lambda out, _: out[torch.arange(5), 5],
    ],
)
def test_the_last_output_leaves_the_backward_direction_with_one_step(kind: str, part: Any) -> None:
    found = of_sequences(kind, part)
    assert [name for name, status in found.statuses.items() if status == "zero"] == ["rnn.weight_hh_l0_reverse"]
    (cause,) = found.causes
    assert (cause.kind, cause.level, cause.names) == ("one_step", "error", ("rnn.weight_hh_l0_reverse",))
    assert cause.source is not None
    # The line that takes it, and not that of the network.
    assert cause.source.function == "<lambda>"


def test_the_first_output_leaves_the_forward_direction_with_one_step() -> None:
    found = of_sequences("LSTM", lambda out, _: out[:, 0], layers=2)
    assert [(cause.kind, cause.names) for cause in found.causes] == [("one_step", ("rnn.weight_hh_l1",))]


@pytest.mark.parametrize(
    ("part", "steps"),
    [
        (lambda out, _: out[:, -1], 1),
        (lambda out, _: out.mean(1), 6),
        (lambda out, states: torch.cat([states[-2], states[-1]], 1), 6),
        (lambda out, _: torch.cat([out[:, -1, :4], out[:, 0, 4:]], 1), 6),
        # Every output goes on, and the weights of this step leave one.
        (lambda out, _: out.mean(2) * torch.tensor([0.0, 0, 0, 0, 0, 1]), 6),
    ],
)
def test_both_directions_of_a_sequence_are_no_alarm(part: Any, steps: int) -> None:
    found = of_sequences("GRU", part, steps)
    assert found.level in {"none", "info"}, str(found)
    assert "one_step" not in {cause.kind for cause in found.causes}


def test_a_softmax_of_huge_logits_is_saturated_and_a_masked_one_is_not() -> None:
    torch.manual_seed(0)
    model, x = torch.nn.Linear(4, 3), torch.randn(5, 4)
    hidden = torch.tensor([False, True, True])
    for scores, found in (
        (lambda: model(x) * 1e6, [("saturated", "error")]),
        (lambda: (model(x) * 1e6).unsqueeze(0), [("saturated", "error")]),
        (lambda: model(x).masked_fill(hidden, -torch.inf), [("zero", "info")]),
        (lambda: model(x), []),
    ):
        with gradir.record(model, flow=True) as rec:
            loss = (scores().softmax(-1) * torch.tensor([1.0, 2.0, 3.0])).sum()  # type: ignore[no-untyped-call]
        assert [(cause.kind, cause.level) for cause in rec.explain(loss).causes] == found
