"""A zero that follows from parameters or the program is an error, and one that follows from this input is information.

Each case is checked against a real backward: the parameters said to be zero are those whose gradient is.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

import gradir  # noqa: E402
from gradir.explanations.model import Explanation  # noqa: E402

Loss = Callable[[Any], torch.Tensor]

# The models below are made when this file is imported.
torch.manual_seed(0)


def explained(model: nn.Module, loss_of: Loss, params: Mapping[str, torch.Tensor] | None = None) -> Explanation:
    """The explanation of a loss; what it says to be zero has a gradient of zero but for rounding, and nothing else."""
    with gradir.record(model, flow=True) as rec:
        loss = loss_of(model)
    found = rec.explain(loss, params=params)
    loss.backward()
    sizes = {
        name: float(tensor.grad.abs().max())
        for name, tensor in {**dict(model.named_parameters()), **(params or {})}.items()
        if tensor.grad is not None
    }
    zero = {name for name, size in sizes.items() if size <= 1e-6 * max(*sizes.values(), 1e-3)}
    assert {name for name, status in found.statuses.items() if status == "zero"} == zero
    return found


def told(found: Explanation) -> set[tuple[str, str, str]]:
    return {(cause.kind, cause.level, cause.op) for cause in found.causes if cause.kind != "unused"}


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def closed(model: nn.Module, bias: float = 0.0) -> nn.Module:
    """A model whose first module has weights of zero, and biases of a number."""
    first = next(iter(model.children()))
    nn.init.zeros_(first.weight)
    nn.init.constant_(first.bias, bias)
    return model


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))


def convolutional() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 1))


def zero_norm() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(3), nn.ReLU())
    nn.init.zeros_(model[1].weight)
    return model


def squared(*sizes: int) -> Loss:
    return lambda model: (model(torch.randn(sizes)) - 1).square().mean()


def curvature(model: Any, order: int = 2) -> torch.Tensor:
    x = torch.randn(5, 3, requires_grad=True)
    slope = model(x).sum()
    for _ in range(order):
        (slope,) = torch.autograd.grad(slope.sum(), x, create_graph=True)
    return (slope - 1).square().mean()


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return ((q @ k.transpose(-1, -2)).softmax(-1) @ v).square().mean()


class Attention(nn.Module):
    def __init__(self, attend: Callable[..., torch.Tensor] = attention) -> None:
        super().__init__()
        self.q, self.k, self.v, self.attend = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(3, 4), attend

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attend(self.q(x), self.k(x), self.v(x))


class Memory(nn.Module):
    """Attends to rows that are parameters."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.q, self.rows = nn.Linear(3, 4), nn.Parameter(torch.randn(rows, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return attention(self.q(x), self.rows, self.rows)


# What torch runs for one entry on a CPU.
IS_OLD = torch.__version__ < torch.torch_version.TorchVersion("2.15")
FUSED = "safe_softmax" if IS_OLD else "scaled_dot_product_flash_attention_for_cpu"


def fused(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v).square().mean()


def weighed(model: Any) -> torch.Tensor:
    weight = 0.0
    x = torch.randn(5, 3)
    return model[0](x).square().mean() + weight * (model[0](x).relu() * model[2].weight).square().mean()


FROM_THE_PROGRAM: list[tuple[str, str, nn.Module, Loss]] = [
    ("closed", "relu linear", closed(mlp()), squared(5, 3)),
    ("closed", "relu linear", closed(convolutional()), squared(2, 1, 4, 4)),
    ("dropped closed", "mul linear", nn.Sequential(nn.Linear(3, 4), nn.Dropout(1.0), nn.Linear(4, 1)), squared(5, 3)),
    ("dropped", "mul", nn.Linear(3, 4), lambda m: F.dropout(m(torch.randn(5, 3)), 1.0).sum()),
    ("closed", "pow", nn.Linear(3, 4), lambda m: F.dropout(m(torch.randn(5, 3)), 1.0).pow(2).mean()),
    ("dropped closed", "mul gru", nn.GRU(3, 4, 2, dropout=1.0), lambda m: m(torch.randn(2, 3, 3))[0].square().sum()),
    ("closed", "pow", zero_norm(), lambda m: m(torch.randn(2, 3, 4)).square().mean()),
    ("flat_slope", "relu", mlp(), lambda m: curvature(m, 1)),
    ("flat_slope closed", "relu matmul", mlp(), curvature),
    (
        "flat_slope",
        "hardtanh",
        nn.Sequential(nn.Linear(3, 4), nn.Hardtanh(), nn.Linear(4, 1)),
        lambda m: curvature(m, 1),
    ),
    ("weighed_out", "mul", nn.Linear(3, 2), lambda m: (m(torch.randn(5, 3)) * 0).sum()),
    ("weighed_out", "mul", nn.Linear(3, 2), lambda m: (m(torch.randn(5, 3)) * torch.zeros(5, 1)).sum()),
    ("weighed_out", "mul", mlp(), weighed),
    ("flat", "pow", nn.Linear(3, 2), lambda m: (m(torch.randn(5, 3)) ** 0).sum()),
    ("flat", "cdist", nn.Linear(3, 2), lambda m: torch.cdist(m(torch.randn(5, 3)), torch.zeros(1, 2), p=0.0).sum()),
    ("one_entry", "softmax", Memory(1), lambda m: m(torch.randn(1, 5, 3))),
    ("one_entry", "softmax", nn.Linear(3, 4), lambda m: (m(torch.randn(1, 3)).topk(1)[0].softmax(-1) * 2).mean()),
    (
        "one_entry",
        "log_softmax",
        nn.Linear(3, 1),
        lambda m: F.cross_entropy(m(torch.randn(1, 3)), torch.zeros(1).long()),
    ),
    # Several sequences that all have one token: the program has no other.
    ("one_entry", "softmax", Attention(), lambda m: m(torch.randn(3, 1, 3))),
    ("one_entry", FUSED, Attention(fused), lambda m: m(torch.randn(3, 1, 3))),
]


@pytest.mark.parametrize(("kinds", "ops", "model", "loss_of"), FROM_THE_PROGRAM)
def test_a_zero_that_the_program_or_its_parameters_make_is_an_error(
    kinds: str, ops: str, model: nn.Module, loss_of: Loss
) -> None:
    found = told(explained(model, loss_of))
    assert {kind for kind, _, _ in found} == set(kinds.split())
    assert {op for _, _, op in found} == set(ops.split())
    assert {level for _, level, _ in found} == {"error"}


def of_a_number(model: Any) -> torch.Tensor:
    weight = torch.zeros(()).item()
    return (model(torch.randn(5, 3)) * weight).sum()


def unused_but_in_the_graph(model: Any) -> torch.Tensor:
    return model[0](torch.randn(5, 3)).square().mean() + 0.0 * sum(p.sum() for p in model[2].parameters())


FROM_THE_INPUT: list[tuple[str, nn.Module, Loss]] = [
    ("single", Attention(), lambda m: m(torch.randn(1, 1, 3))),
    ("single", Attention(), lambda m: m(torch.randn(1, 3))),
    ("single", Attention(fused), lambda m: m(torch.randn(1, 1, 1, 3))),
    ("single", nn.Linear(3, 4), lambda m: (m(torch.randn(1, 3)).softmax(0) * torch.randn(1, 4)).sum()),
    ("single", nn.Linear(3, 4), lambda m: F.cross_entropy(m(x := torch.randn(1, 3)) @ m(x).t(), torch.zeros(1).long())),
    # A mean leaves the dimension of the batch.
    ("single", nn.Linear(3, 4), lambda m: (m(torch.randn(1, 3)).mean(1).softmax(0) * torch.randn(1)).sum()),
    ("dead factor", mlp(), lambda m: m[1:](m[0](torch.randn(5, 3)) - 100).square().mean()),
    ("factor", nn.Linear(3, 4, bias=False), lambda m: m(torch.zeros(5, 3)).sum()),
    ("factor", nn.Linear(3, 4), lambda m: (m(torch.randn(5, 3)) * (torch.randn(5, 1) > 100)).sum()),
    ("factor", nn.Linear(3, 4), of_a_number),
    ("factor", mlp(), unused_but_in_the_graph),
    # A state of zeros, in which a sequence of one step begins.
    ("factor", nn.RNN(3, 4, batch_first=True), lambda m: m(torch.randn(2, 1, 3))[0].square().mean()),
    ("factor", nn.GRUCell(3, 4), lambda m: m(torch.randn(2, 3)).square().mean()),
    (
        "ignored",
        nn.Linear(3, 4),
        lambda m: F.cross_entropy(m(torch.randn(2, 3)), torch.full((2,), -100), reduction="sum"),
    ),
]


@pytest.mark.parametrize(("kinds", "model", "loss_of"), FROM_THE_INPUT)
def test_a_zero_that_this_input_makes_is_information(kinds: str, model: nn.Module, loss_of: Loss) -> None:
    found = told(explained(model, loss_of))
    assert {(kind, level) for kind, level, _ in found} == {(kind, "info") for kind in kinds.split()}


@pytest.mark.parametrize(("requires_grad", "kind", "level"), [(False, "closed", "error"), (True, "starting", "note")])
def test_a_gate_of_zero_stays_closed_where_it_does_not_learn(requires_grad: bool, kind: str, level: str) -> None:
    gate = nn.Parameter(torch.zeros(1), requires_grad=requires_grad)
    model = nn.Linear(3, 4)
    found = explained(model, lambda m: (m(torch.randn(5, 3)) * gate - 1).square().mean(), {"gate": gate})
    assert {(cause.kind, cause.level) for cause in found.causes if cause.kind != "frozen"} == {(kind, level)}


def test_a_last_layer_of_zeros_opens_by_itself() -> None:
    model = mlp()
    nn.init.zeros_(model[2].weight)
    assert explained(model, squared(5, 3)).level == "none"


def test_a_relu_below_weights_of_zero_and_a_negative_bias_is_out_of_range() -> None:
    found = told(explained(closed(mlp(), -1.0), squared(5, 3)))
    assert ("out_of_range", "error", "relu") in found


def normed(*norms: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Conv1d(2, 4, 3), *norms)


@pytest.mark.parametrize(
    ("model", "op"),
    [
        (nn.Sequential(nn.Linear(5, 2), nn.LayerNorm(2)), "layer_norm"),
        (nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4, elementwise_affine=False)), "layer_norm"),
        (normed(nn.BatchNorm1d(4)), "batch_norm"),
        (normed(nn.GroupNorm(4, 4)), "group_norm"),
    ],
)
@pytest.mark.parametrize("added_up", [torch.sum, torch.mean])
def test_the_sum_of_what_is_normalised_is_constant(
    model: nn.Module, op: str, added_up: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    with gradir.record(model, flow=True) as rec:
        loss = added_up(model(torch.randn(3, 2, 5)))
    found = rec.explain(loss)
    assert (found.status("0.weight"), found.level) == ("zero", "error")
    assert ("norm_adds_up", "error", op) in told(found)
    assert "starts at zero" not in str(found)
    loss.backward()
    assert model[0].weight.grad.norm() < 1e-4


@pytest.mark.parametrize(
    ("model", "loss_of"),
    [
        (nn.Sequential(nn.Linear(5, 2), nn.LayerNorm(2)), lambda y: y.square().sum()),
        (nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4)), lambda y: y[..., 0].sum()),
        (normed(nn.BatchNorm1d(4).eval()), lambda y: y.sum()),
        (normed(nn.GroupNorm(1, 4)), lambda y: (y * torch.arange(4.0)[:, None]).sum()),
    ],
)
def test_what_is_normalised_and_then_weighed_learns(model: nn.Module, loss_of: Loss) -> None:
    with gradir.record(model, flow=True) as rec:
        loss = loss_of(model(torch.randn(3, 2, 5)))
    found = rec.explain(loss)
    assert (found.status("0.weight"), found.level) == ("reached", "none")


@pytest.mark.parametrize(
    "reset",
    [
        lambda state: torch.zeros_like(state, dtype=torch.float32),
        lambda state: state.new_zeros(state.shape),
        lambda _: torch.zeros(3, 4),
        lambda state: state * 0,
        lambda state: torch.full_like(state, 0.0),
    ],
)
def test_a_state_that_is_zeroed_in_each_step_is_reported_where_that_is_done(reset: Callable[[Any], Any]) -> None:
    cell = nn.GRUCell(4, 4)

    def loss(_: Any) -> Any:
        state, total = torch.zeros(3, 4), torch.zeros(())
        for _ in range(3):
            state = cell(torch.randn(3, 4), state)
            total, state = total + state.sum(), reset(state)
        return total

    (cause,) = explained(cell, loss).causes
    assert (cause.level, cause.names) == ("info", ("weight_hh",))
    assert cause.kind in {"closed", "factor"}
    assert cause.source is not None
    assert cause.source.line == reset.__code__.co_firstlineno


@pytest.mark.parametrize(
    ("name", "is_copy", "level"),
    [("lagging", True, "note"), ("target_net", False, "note"), ("head", False, "error")],
)
def test_a_target_network_that_ran_with_gradients_is_not_forgotten(name: str, *, is_copy: bool, level: str) -> None:
    torch.manual_seed(0)
    online, other = (nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)) for _ in range(2))
    model = nn.ModuleDict({"online": online, name: copy.deepcopy(online) if is_copy else other})
    optimizer = torch.optim.SGD(online.parameters(), 0.1)
    x = torch.randn(5, 3)
    with gradir.record(model, flow=True) as rec:
        loss = (online(x) - (1 + 0.9 * model[name](x))).square().mean()
    (cause,) = rec.explain(loss, optimizer=optimizer).causes
    assert (cause.kind, cause.level) == ("not_in_optimizer", level)
    assert cause.names == tuple(f"{name}.{each}" for each, _ in online.named_parameters())
