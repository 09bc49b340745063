"""Where gradients are off: the line in the function with the block, and not one deep in what it calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator

import pytest

torch = pytest.importorskip("torch")

import gradir  # noqa: E402

nn = torch.nn
Tensor = torch.Tensor


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x).relu())


def encoded(model: nn.ModuleDict, x: Tensor) -> Tensor:
    return model["enc"](x)


def in_a_with(model: nn.ModuleDict, x: Tensor) -> Tensor:
    with torch.no_grad():
        h = encoded(model, x)  # HERE
    return model["dec"](h)


@torch.no_grad()
def decorated(model: nn.ModuleDict, x: Tensor) -> Tensor:
    x = x * 2
    return encoded(model, x)  # HERE


def by_a_decorator(model: nn.ModuleDict, x: Tensor) -> Tensor:
    return model["dec"](decorated(model, x))


def left_off(model: nn.ModuleDict, x: Tensor) -> Tensor:
    torch.set_grad_enabled(False)  # HERE
    h = encoded(model, x)
    torch.set_grad_enabled(True)
    return model["dec"](h)


@torch.no_grad()
def drawn(model: nn.ModuleDict, x: Tensor) -> Iterator[Tensor]:
    yield encoded(model, x)  # HERE


def by_a_generator(model: nn.ModuleDict, x: Tensor) -> Tensor:
    return sum(model["dec"](h) for h in drawn(model, x))


def nested(model: nn.ModuleDict, x: Tensor) -> Tensor:
    with torch.no_grad():
        with torch.no_grad():
            x = x + 1
        h = encoded(model, x)  # HERE
    return model["dec"](h)


def on_for_a_while(model: nn.ModuleDict, x: Tensor) -> Tensor:
    with torch.no_grad():
        # torch switches gradients on for a property of a distribution too.
        with torch.enable_grad():
            x = x + 1
        torch.distributions.Categorical(logits=x).sample()
        h = encoded(model, x)  # HERE
    return model["dec"](h)


def set_in_a_with(model: nn.ModuleDict, x: Tensor) -> Tensor:
    with torch.set_grad_enabled(False):
        h = encoded(model, x)  # HERE
    return model["dec"](h)


@pytest.mark.parametrize(
    "run", [in_a_with, by_a_decorator, left_off, by_a_generator, nested, on_for_a_while, set_in_a_with]
)
def test_a_block_without_gradients_is_reported_at_its_own_line(run: Callable[[nn.ModuleDict, Tensor], Tensor]) -> None:
    model = nn.ModuleDict({"enc": Encoder(), "dec": nn.Linear(3, 1)})
    with gradir.record(model, flow=True) as rec:
        loss = run(model, torch.ones(2, 3)).square().mean()
    (cause,) = (cause for cause in rec.explain(loss).causes if cause.kind == "no_grad")
    assert (cause.level, len(cause.names)) == ("error", 4)
    wanted = {by_a_decorator: decorated.__wrapped__, by_a_generator: drawn.__wrapped__}.get(run, run)  # type: ignore[attr-defined]
    lines, first = inspect.getsourcelines(wanted)
    assert cause.source is not None
    assert "# HERE" in lines[cause.source.line - first]
    assert [cut.source for cut in rec.capture(loss).cuts if cut.kind == "no_grad"][:1] == [cause.source]


def test_a_block_inside_torch_changes_no_line() -> None:
    model = nn.Linear(3, 3)
    with gradir.record(model, flow=True) as rec:
        scale = model(torch.ones(2, 3)).exp()
        noise = torch.distributions.Normal(0.0, scale).sample()  # HERE
        loss = noise.square().mean()
    sources = {cause.source for cause in rec.explain(loss).causes if cause.source is not None}
    lines, first = inspect.getsourcelines(test_a_block_inside_torch_changes_no_line)
    assert {"# HERE" in lines[source.line - first] for source in sources} == {True}


def test_operations_after_a_no_grad_block_are_outside_it() -> None:
    model = nn.ModuleDict({"enc": Encoder(), "dec": nn.Linear(3, 1)})
    with gradir.record(model, flow=True) as rec:
        with torch.no_grad():
            torch.ones(1) + 1
        loss = model["dec"](encoded(model, torch.ones(2, 3)).detach()).sum()
    (cause,) = rec.explain(loss).causes
    assert cause.kind == "detach"
