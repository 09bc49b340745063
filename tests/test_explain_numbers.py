"""Numbers read from tensors: an error where they go on into the loss, and none where they decide or are shown."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import gradir  # noqa: E402
from gradir.explanations.model import Explanation  # noqa: E402
from gradir.frontends.pytorch.explaining.cuts import Flowing  # noqa: E402
from gradir.frontends.pytorch.recording.steps import Held  # noqa: E402

Program = Callable[[Any, torch.Tensor], torch.Tensor]
SIDE = ("side.weight", "side.bias")


class Log:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.last = 0.0

    def info(self, text: str, *values: float, step: float = 0) -> None:
        self.lines.append(text % values)


LOG = Log()


def explained(program: Program) -> Explanation:
    torch.manual_seed(0)
    model, x = nn.ModuleDict({"main": nn.Linear(2, 1), "side": nn.Linear(2, 1)}), torch.randn(3, 2)
    with gradir.record(model, flow=True) as rec:
        loss = program(model, x)
    found = rec.explain(loss)
    loss.backward()
    having = {name for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert {name for name, status in found.statuses.items() if status == "reached"} == having
    return found


def marked(program: Program) -> int:
    lines, first = inspect.getsourcelines(program)
    return next(first + number for number, line in enumerate(lines) if line.rstrip().endswith("# HERE"))


def a_constant_by_a_comparison(m: Any, x: torch.Tensor) -> torch.Tensor:
    loss = m["main"](x).sum()
    return loss + 0.1 if m["side"](x).sum().item() > -100 else loss


def a_factor_by_a_comparison(m: Any, x: torch.Tensor) -> torch.Tensor:
    size = float(m["side"](x).sum())
    factor = math.sqrt(2) if size > 0.5 else math.sqrt(3)
    return m["main"](x).sum() * factor


def a_branch_by_a_tensor(m: Any, x: torch.Tensor) -> torch.Tensor:
    loss = m["main"](x).sum()
    if m["side"](x).sum() > -100:
        loss = loss * math.sqrt(2)
    return loss


def a_branch_by_a_number_itself(m: Any, x: torch.Tensor) -> torch.Tensor:
    loss = m["main"](x).sum()
    if m["side"](x).sum().item():
        loss = loss * math.sqrt(2)
    return loss


def a_text(m: Any, x: torch.Tensor) -> torch.Tensor:
    side = m["side"](x).sum()
    text = f"{side.item():.3f} of {side.item()}"
    return m["main"](x).sum() * math.sqrt(len(text))


def a_print(m: Any, x: torch.Tensor) -> torch.Tensor:
    print("side", m["side"](x).sum().item())
    return m["main"](x).sum() * math.sqrt(2)


def a_check(m: Any, x: torch.Tensor) -> torch.Tensor:
    side = m["side"](x).sum().item()
    if side > 1000:
        raise ValueError(side)
    return m["main"](x).sum() * math.sqrt(2)


def an_integer_for_a_float(m: Any, x: torch.Tensor) -> torch.Tensor:
    LOG.last = m["side"](x).sum().item()
    return m["main"](x + torch.bernoulli(x, 1)).sum()


@pytest.mark.parametrize(
    "program",
    [
        a_constant_by_a_comparison,
        a_factor_by_a_comparison,
        a_branch_by_a_tensor,
        a_branch_by_a_number_itself,
        a_text,
        a_print,
        a_check,
        an_integer_for_a_float,
    ],
)
def test_a_number_that_decides_or_is_shown_cuts_nothing(program: Program) -> None:
    found = explained(program)
    assert [(cause.kind, cause.level, cause.names) for cause in found.causes] == [("unused", "info", SIDE)]
    assert {found.status(name) for name in SIDE} == {"unused"}


def logged(m: Any, x: torch.Tensor) -> torch.Tensor:
    LOG.info("%s", m["side"](x).sum().item())  # HERE
    return m["main"](x).sum() * math.sqrt(2)


def logged_by_name(m: Any, x: torch.Tensor) -> torch.Tensor:
    LOG.info("", step=m["side"](x).sum().item())  # HERE
    return m["main"](x).sum() * math.sqrt(2)


@pytest.mark.parametrize("program", [logged, logged_by_name])
def test_a_number_passed_to_a_call_is_reported_as_one_that_may_end_there(program: Program) -> None:
    (cause,) = explained(program).causes
    assert (cause.kind, cause.level, cause.names) == ("exit", "info", SIDE)
    assert cause.detail == "a call gets it here, which may not use it"
    assert cause.source is not None
    assert cause.source.line == marked(program)


def a_factor(m: Any, x: torch.Tensor) -> torch.Tensor:
    return m["main"](x).sum() * m["side"](x).sum().item()  # HERE


def a_factor_by_a_variable(m: Any, x: torch.Tensor) -> torch.Tensor:
    side = m["side"](x).sum().item()  # HERE
    if side > 100:
        print(side)
    return m["main"](x).sum() * side


def a_function_of_it(m: Any, x: torch.Tensor) -> torch.Tensor:
    scale = math.exp(m["side"](x).sum())  # HERE
    return m["main"](x).sum() * scale


def a_list_of_them(m: Any, x: torch.Tensor) -> torch.Tensor:
    kept: list[float] = []
    for row in x:
        kept += [m["side"](row).sum().item()]  # HERE
    return m["main"](x).sum() * torch.tensor(kept).sum()


def what_an_inner_function_takes(m: Any, x: torch.Tensor) -> torch.Tensor:
    side = m["side"](x).sum().item()  # HERE

    def scaled(value: torch.Tensor) -> torch.Tensor:
        return value * side

    return scaled(m["main"](x).sum())


def a_bounded_one(m: Any, x: torch.Tensor) -> torch.Tensor:
    side = min(m["side"](x).sum().item(), 100.0)  # HERE
    return m["main"](x).sum() * side


def a_divisor_of_one_beside_a_column(m: Any, x: torch.Tensor) -> torch.Tensor:
    weights = m["side"](x).sum().mul(0).exp().tolist()  # HERE
    return (x[:, 1] * m["main"](x)[:, 0] / weights).sum()


def a_factor_of_one_beside_an_index(m: Any, x: torch.Tensor) -> torch.Tensor:
    weights = m["side"](x).sum().mul(0).exp().reshape(1).tolist()  # HERE
    return m["main"](x)[1, 0] * weights[0]


@pytest.mark.parametrize(
    "program",
    [
        a_factor,
        a_factor_by_a_variable,
        a_function_of_it,
        a_list_of_them,
        what_an_inner_function_takes,
        a_bounded_one,
        a_divisor_of_one_beside_a_column,
        a_factor_of_one_beside_an_index,
    ],
)
def test_a_number_that_continues_is_an_error(program: Program) -> None:
    (cause,) = (cause for cause in explained(program).causes if cause.level == "error")
    assert (cause.kind, cause.names) == ("exit", SIDE)
    assert cause.source is not None
    assert cause.source.line == marked(program)


def the_places_of_the_largest(m: Any, x: torch.Tensor) -> torch.Tensor:
    chosen = m["side"](x).topk(2, dim=0).indices.squeeze()  # HERE
    return torch.stack([m["main"](x[int(each)]) for each in chosen]).sum()


def a_count(m: Any, x: torch.Tensor) -> torch.Tensor:
    above = m["side"](x) > 0  # HERE
    return m["main"](x).sum() * above.sum().item()


def a_list_of_choices(m: Any, x: torch.Tensor) -> torch.Tensor:
    chosen = m["side"](x).argmax(0)  # HERE
    names = chosen.cpu().tolist()
    return m["main"](x)[names].sum()


@pytest.mark.parametrize("program", [the_places_of_the_largest, a_count, a_list_of_choices])
def test_integers_that_leave_torch_lost_their_gradient_where_they_were_made(program: Program) -> None:
    (cause,) = (cause for cause in explained(program).causes if cause.level == "error")
    assert (cause.kind, cause.names) == ("nondifferentiable", SIDE)
    assert cause.source is not None
    assert cause.source.line == marked(program)


@pytest.mark.parametrize("program", [a_factor, a_count, a_list_of_choices])
def test_a_cut_of_parameters_outside_the_optimizer_is_no_alarm(program: Program) -> None:
    model, x = nn.ModuleDict({"main": nn.Linear(2, 1), "side": nn.Linear(2, 1)}), torch.ones(3, 2)
    with gradir.record(model, flow=True) as rec:
        loss = program(model, x)
    found = rec.explain(loss, optimizer=torch.optim.SGD(model["main"].parameters(), 0.1))
    assert [cause.level for cause in found.causes if cause.names == SIDE] == ["info"]


def test_integers_of_a_teacher_whose_result_is_detached_are_no_alarm() -> None:
    def taught(m: Any, x: torch.Tensor) -> torch.Tensor:
        scores = m["side"](x)
        labels = scores.argmax(0).tolist()
        return nn.functional.mse_loss(m["main"](x), scores.detach()) / len(labels)

    torch.manual_seed(0)
    model, x = nn.ModuleDict({"main": nn.Linear(2, 1), "side": nn.Linear(2, 1)}), torch.randn(3, 2)
    model["side"].eval()
    with gradir.record(model, flow=True) as rec:
        loss = taught(model, x)
    assert [(cause.kind, cause.level) for cause in rec.explain(loss).causes] == [("detach", "info")]


def counting(m: Any, x: torch.Tensor) -> torch.Tensor:
    count, total = m["side"](x).argmax(), 0.0
    for _ in range(200):
        count = count + 1
        total = total + count.item()
    return m["main"](x).sum() * total


def deciding(m: Any, x: torch.Tensor) -> torch.Tensor:
    total = m["side"](x).sum()
    for _ in range(200):
        total = total - 1 if total > 1e9 else total * 1.01
    return m["main"](x).sum() * total


def writing(m: Any, x: torch.Tensor) -> torch.Tensor:
    total = m["main"](x).sum()
    for _ in range(200):
        m["side"].bias.data.mul_(0.99)
        total = total + m["side"].bias.square().sum()
    return total


@pytest.mark.parametrize(
    ("program", "owner", "look"),
    [(counting, Flowing, "sources"), (deciding, Flowing, "sources"), (writing, Held, "part_of")],
)
def test_each_round_of_a_loop_is_looked_at_once(
    program: Program, owner: Any, look: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[object] = []
    original = getattr(owner, look)
    monkeypatch.setattr(owner, look, lambda *given: looks.append(given) or original(*given))
    model = nn.ModuleDict({"main": nn.Linear(2, 1), "side": nn.Linear(2, 1)})
    with gradir.record(model, flow=True) as rec:
        loss = program(model, torch.ones(3, 2))
    rec.explain(loss)
    # Looked at anew in each round, these would be more than 20,000.
    assert 100 < len(looks) < 8_000


def test_a_parameter_that_only_decides_can_never_learn() -> None:
    class Switched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.main, self.switch = nn.Linear(2, 1), nn.Parameter(torch.tensor(0.0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.main(x) if self.switch == 0.0 else self.main(x) * self.switch

    model = Switched()
    with gradir.record(model, flow=True) as rec:
        loss = model(torch.ones(3, 2)).square().mean()
    (cause,) = rec.explain(loss).causes
    assert (cause.kind, cause.level, cause.names) == ("exit", "error", ("switch",))


def test_a_parameter_that_is_shown_after_the_loss_is_unused_and_no_more() -> None:
    model, spare = nn.Linear(2, 1), nn.Parameter(torch.tensor(0.5))
    with gradir.record(model, flow=True) as rec:
        loss = model(torch.ones(3, 2)).square().mean()
        if spare > 0:
            print(spare.item())
    assert rec.explain(loss, params={"spare": spare}).level == "info"


@pytest.mark.parametrize("is_earlier", [True, False])
def test_a_number_that_was_read_before_the_last_step_is_not_what_this_loss_lacks(*, is_earlier: bool) -> None:
    torch.manual_seed(0)
    model, x = nn.ModuleDict({name: nn.Linear(2, 2) for name in ("trunk", "main", "side")}), torch.ones(3, 2)
    optimizer, weight = torch.optim.SGD(model.parameters(), 0.1), 1.0
    with gradir.record(model, flow=True) as rec:
        for step in range(2):
            hidden = model["trunk"](x)
            side = model["side"](hidden).sum()
            if not is_earlier:
                weight = side.item()
            loss = model["main"](hidden).sum() * weight
            if step == 0:
                weight = side.item()
                loss.backward()
                optimizer.step()
    found = rec.explain(loss, optimizer=optimizer)
    assert found.statuses["side.weight"] == ("unused" if is_earlier else "cut")
    assert [cause.kind for cause in found.causes] == (["unused"] if is_earlier else ["exit"])
    assert found.level == ("info" if is_earlier else "error")
