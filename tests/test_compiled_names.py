"""The parameters of a compiled model have its names, although torch runs no hooks of a module in compiled code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import gradir  # noqa: E402

nn = torch.nn
Run = Callable[[torch.Tensor], torch.Tensor]

pytestmark = [
    pytest.mark.usefixtures("dynamo"),
    # torch says of global hooks that they run for the wrapper of a compiled module, too.
    pytest.mark.filterwarnings("ignore:Using `torch.compile:UserWarning"),
    pytest.mark.parametrize("backend", ["eager", "aot_eager"]),
]


@pytest.fixture
def dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.out = nn.Linear(2, 2), nn.Linear(2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.hidden(x))


class Trainer:
    def __init__(self, model: nn.Module) -> None:
        self.model, self.teacher = model, Head()

    def run(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x)


def of_a_module(head: Head, **options: Any) -> Run:
    return torch.compile(head, **options)


def of_a_function(head: Head, **options: Any) -> Run:
    def run(x: torch.Tensor) -> torch.Tensor:
        return head(x)

    return torch.compile(run, **options)


def in_place(head: Head, **options: Any) -> Run:
    head.compile(**options)
    return head


def of_a_forward(head: Head, **options: Any) -> Run:
    head.forward = torch.compile(head.forward, **options)
    return head


def of_a_method(head: Head, **options: Any) -> Run:
    return torch.compile(Trainer(head).run, **options)


def of_a_dict(head: Head, **options: Any) -> Run:
    models = {"head": head, "teacher": Head()}

    def run(x: torch.Tensor) -> torch.Tensor:
        return models["head"](x)

    return torch.compile(run, **options)


def of_a_library(head: Head, **options: Any) -> Run:
    """Torch compiles a module of its own in another way."""
    return torch.compile(nn.Sequential(head), **options)


WAYS = (of_a_module, of_a_function, in_place, of_a_forward, of_a_method, of_a_dict, of_a_library)


@pytest.mark.parametrize("way", WAYS)
def test_the_parameters_have_the_names_of_the_model(way: Callable[..., Run], backend: str) -> None:
    run, x, within = way(Head(), backend=backend), torch.rand(3, 2), "0." if way is of_a_library else ""
    for _ in range(2):
        # The second time, nothing is compiled.
        with gradir.record(flow=True) as rec:
            loss = run(x).sum()
        names = {node.id for node in rec.capture(loss).nodes.values() if node.role == "parameter"}
        assert names == {within + name for name, _ in Head().named_parameters()}
        assert str(rec.explain(loss, values=False)).startswith("All 4 parameters")


def test_a_module_that_compiled_code_may_leave_out_is_not_explained(backend: str) -> None:
    used, other, flag = nn.Linear(2, 1), nn.Linear(2, 1), True
    run = torch.compile(lambda x: used(x) if flag else other(x), backend=backend)
    with gradir.record(flow=True) as rec:
        loss = run(torch.rand(3, 2)).sum()
    assert str(rec.explain(loss)).startswith("Both parameters get a gradient.")


def test_a_module_inside_a_running_module_is_named_once(backend: str) -> None:
    outer = nn.Sequential(Head())
    of_a_forward(outer, backend=backend)
    with gradir.record(flow=True) as rec:
        loss = outer(torch.rand(3, 2)).sum()
    assert set(rec.explain(loss).statuses) == {f"0.{name}" for name, _ in Head().named_parameters()}
