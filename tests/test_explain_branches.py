"""A branch that Python did not take is told with the line of its condition, where one line alone decides."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from marked_lines import find_marked_line  # noqa: E402
from torch import nn  # noqa: E402

import gradir  # noqa: E402
from gradir.explanations.model import Cause, Explanation  # noqa: E402

X = torch.ones(2, 3)


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.gate = nn.Linear(3, 3), nn.Linear(3, 3), nn.Parameter(torch.ones(3))


class OfAnArgument(Two):
    def forward(self, x: torch.Tensor, *, use: bool = False) -> torch.Tensor:
        x = self.first(x)
        if use:  # HERE
            x = self.second(x) * self.gate
        return x


class OfNumbers(Two):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x) * self.gate
        if x.sum() > 1e6:
            return x
        if x.shape[0] == 7:  # HERE
            x = self.second(x)
        return x * 2


class OfAnEarlyReturn(Two):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x) * self.gate
        if self.training:  # HERE
            return x
        return self.second(x)


class OfAnExpression(Two):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x) * self.gate
        return self.second(x) if len(x) > 2 and self.training else x  # HERE


class OfTheInner(Two):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x) * self.gate
        if self.training:
            x = x + 1
            if len(x) == 7:  # HERE
                x = self.second(x)
        return x


class OfAMethod(Two):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.refined(self.first(x) * self.gate)

    def refined(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            if not self.training:  # HERE
                x = self.second(x)
        return x + 1


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = OfAnArgument()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


class Many(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(3)])


class OfOneOfMany(Many):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            if number == 1:  # HERE
                continue
            x = layer(x)
        return x


class OfTheLastOfMany(Many):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
            if layer is self.layers[1]:  # HERE
                break
        return x


class OfAnEarlyExit(Many):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
            if x.abs().sum() > -1:  # HERE
                return x
        return x


def explained(model: nn.Module) -> Explanation:
    with gradir.record(model, flow=True) as rec:
        loss = model(X).square().mean()
    found = rec.explain(loss)
    loss.backward()
    unused = {name for name, parameter in model.named_parameters() if parameter.grad is None}
    assert {name for name, status in found.statuses.items() if status == "unused"} == unused
    return found


def told(found: Explanation) -> list[Cause]:
    return [cause for cause in found.causes if cause.kind == "skipped"]


class Merged(nn.Module):
    """A layer whose low-rank part is not used once it was merged, or switched off."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.down, self.up = nn.Linear(4, 3), nn.Linear(4, 2, bias=False), nn.Linear(2, 3, bias=False)
        self.base.requires_grad_(requires_grad=False)
        self.merged = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.merged:
            return self.base(x)
        return self.base(x) + self.up(self.down(x))


def test_a_skipped_branch_is_the_error_and_not_a_frozen_weight() -> None:
    model = Merged()
    optimizer = torch.optim.SGD([*model.down.parameters(), *model.up.parameters()], 0.1)
    with gradir.record(model, flow=True) as rec:
        loss = model(torch.ones(2, 4)).sum()
    causes = rec.explain(loss, optimizer=optimizer).causes
    assert [(cause.kind, cause.level) for cause in causes] == [("skipped", "error"), ("frozen", "info")]
    assert set(causes[0].names) == {"down.weight", "up.weight"}
    # An optimizer of the frozen weight as well is to train it.
    causes = rec.explain(loss, optimizer=torch.optim.SGD(model.parameters(), 0.1)).causes
    assert [(cause.kind, cause.level) for cause in causes] == [("frozen", "error"), ("skipped", "error")]


SECOND = {"second.weight", "second.bias"}


@pytest.mark.parametrize(
    ("kind", "at", "names"),
    [
        (OfAnArgument, OfAnArgument, SECOND | {"gate"}),
        (OfNumbers, OfNumbers, SECOND),
        (OfAnEarlyReturn, OfAnEarlyReturn, SECOND),
        (OfAnExpression, OfAnExpression, SECOND),
        (OfTheInner, OfTheInner, SECOND),
        (OfAMethod, OfAMethod, SECOND),
        (Outer, OfAnArgument, {"inner.second.weight", "inner.second.bias", "inner.gate"}),
        (OfOneOfMany, OfOneOfMany, {"layers.1.weight", "layers.1.bias"}),
        (OfAnEarlyExit, OfAnEarlyExit, {f"layers.{number}.{name}" for number in (1, 2) for name in ("weight", "bias")}),
    ],
)
def test_a_branch_that_was_not_taken_is_reported_with_its_condition(
    kind: type[nn.Module], at: type[nn.Module], names: set[str]
) -> None:
    found = explained(kind())
    (cause,) = told(found)
    assert (set(cause.names), cause.level, found.level) == (names, "info", "info")
    assert cause.source is not None
    assert cause.source.line == find_marked_line(at)
    assert "unused" not in {cause.kind for cause in found.causes}


class Forgotten(Two):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(x) * self.gate


class OneOfTwoConditions(Two):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x) * self.gate
        if len(x) == 7:
            self.gate.data = x[0]
            if x.dim() == 9:
                x = self.second(x)
        return x


class UsedTwice(Two):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x) * self.gate
        if len(x) == 7:
            x = self.second(x)
        if len(x) == 8:
            x = self.second(x)
        return x


class TakenForNothing(Two):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x) * self.gate
        if self.training:
            self.second(x)
        return x


@pytest.mark.parametrize("kind", [Forgotten, OneOfTwoConditions, UsedTwice, TakenForNothing])
def test_no_line_is_reported_if_several_decide_the_branch(kind: type[nn.Module]) -> None:
    found = explained(kind())
    assert not told(found)
    assert {name for name, status in found.statuses.items() if status == "unused"} == SECOND
    assert [(cause.kind, set(cause.names)) for cause in found.causes] == [("unused", SECOND)]
