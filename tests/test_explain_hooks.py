"""Hooks that change a gradient are named, with the line of their function."""

from __future__ import annotations

import functools
import gc
import inspect
import weakref
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import gradir  # noqa: E402
from gradir.explanations.model import Explanation  # noqa: E402

X = torch.tensor([[0.5, -1.0, 2.0], [1.0, 0.3, -0.7]])
FIRST = ("0.weight", "0.bias")


def silenced(gradient: torch.Tensor) -> torch.Tensor:
    return gradient * 0


def broken(gradient: torch.Tensor) -> torch.Tensor:
    return gradient * float("nan")


def scaled(factor: float, gradient: torch.Tensor) -> torch.Tensor:
    return gradient * factor


class Silencing:
    def __call__(self, gradient: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(gradient)

    def method(self, gradient: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(gradient)


def of_module(_: nn.Module, before: Any, after: Any) -> tuple[torch.Tensor, ...]:
    return tuple(torch.zeros_like(gradient) for gradient in before)


def of_module_first(_: nn.Module, after: Any) -> tuple[torch.Tensor, ...]:
    return tuple(torch.zeros_like(gradient) for gradient in after)


@pytest.fixture
def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2))


def explained(model: nn.Module, run: Callable[[torch.Tensor], torch.Tensor]) -> Explanation:
    with gradir.record(model, flow=True) as rec:
        loss = run(X).square().sum()
    found = rec.explain(loss)
    loss.backward()
    zero = {name for name, parameter in model.named_parameters() if not parameter.grad.any()}
    assert {name for name, status in found.statuses.items() if status == "zero"} == zero
    return found


def told(found: Explanation) -> list[tuple[str, str, str, tuple[str, ...], int | None]]:
    return [
        (cause.kind, cause.level, cause.op, cause.names, cause.source and cause.source.line) for cause in found.causes
    ]


def line_of(function: Any) -> int:
    return inspect.getsourcelines(function)[1]


@pytest.mark.parametrize(
    ("hook", "name", "function"),
    [
        (silenced, "silenced", silenced),
        (functools.partial(scaled, 0.0), "scaled", scaled),
        (Silencing(), "Silencing", Silencing.__call__),
        (Silencing().method, "method", Silencing.method),
    ],
)
def test_a_hook_on_a_tensor_is_named(model: nn.Sequential, hook: Any, name: str, function: Any) -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        hidden = model[0](x)
        hidden.register_hook(hook)
        return model[2](model[1](hidden))

    assert told(explained(model, run)) == [("hooked", "error", name, FIRST, line_of(function))]
    model.zero_grad()
    model[0].weight.register_hook(hook)
    assert told(explained(model, model)) == [("hooked", "error", name, FIRST[:1], line_of(function))]


def test_a_hook_on_a_module_is_named(model: nn.Sequential) -> None:
    for register, hook in (
        (model[1].register_full_backward_hook, of_module),
        (model[1].register_full_backward_pre_hook, of_module_first),
    ):
        handle = register(hook)
        assert told(explained(model, model)) == [("hooked", "error", hook.__name__, FIRST, line_of(hook))]
        handle.remove()
        model.zero_grad()


def test_a_hook_that_gives_nan_is_named(model: nn.Sequential) -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        hidden = model[0](x)
        hidden.register_hook(broken)
        return model[2](model[1](hidden))

    assert told(explained(model, run)) == [("hook_nonfinite", "error", "broken", FIRST, line_of(broken))]


def test_hooks_that_change_nothing_or_little_are_no_cause(model: nn.Sequential) -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        hidden = model[0](x)
        hidden.register_hook(functools.partial(scaled, 0.5))
        return model[2](model[1](hidden))

    model[0].weight.register_hook(lambda gradient: None)
    model[1].register_full_backward_hook(lambda module, before, after: None)
    assert explained(model, run).level == "none"


def test_gradients_of_several_consumers_may_cancel(model: nn.Sequential) -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        hidden = model[0](x)
        return model[2](x).square() + (hidden - hidden).sum()

    assert {(kind, level) for kind, level, *_ in told(explained(model, run))} == {("cancel", "error")}


def test_a_recording_keeps_no_hook_alive(model: nn.Sequential) -> None:
    hook = Silencing()
    with gradir.record(model, flow=True) as rec:
        (model[0](X) * 1).register_hook(hook)
    kept = weakref.ref(hook)
    del hook
    gc.collect()
    assert kept() is None
    assert rec is not None
