"""What a forward writes in place, updates and initialises, in the graph of it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from forward_graphs import forward  # noqa: E402
from tensors import leaf  # noqa: E402
from wiring import wired  # noqa: E402

nn = torch.nn


def test_what_is_written_through_a_view_is_a_new_value_of_all_that_share_the_memory() -> None:
    def run() -> object:
        y = torch.ones(4)
        half, _ = y.chunk(2)
        half.add_(1)
        return y * 2

    assert wired(forward(run)) == [
        "ones:1",
        "split:1(~ones:1)",
        "add_:1(!split:1)",
        "mul:1(add_:1)",
        "output(mul:1)",
    ]


def test_a_leaf_and_an_out_argument_are_written_in_place() -> None:
    w, out = leaf(3), torch.empty(3)

    def run() -> None:
        with torch.no_grad():
            w.mul_(2)
        torch.add(w.detach(), 1, out=out)

    assert wired(forward(run)) == [
        "leaf:1",
        "mul_:1(!leaf:1)",
        "detach:1(~mul_:1)",
        "input:1",
        "add:1(detach:1, !input:1)",
    ]


def test_what_ends_in_place_is_an_output_and_an_update_of_a_tensor_from_outside_is_none() -> None:
    state = torch.zeros(2)

    def run() -> None:
        state.add_(1)
        torch.ones(2)
        (torch.ones(2) * 2).relu_()

    graph = forward(run)
    assert wired(graph)[-1] == "output(relu_:1)"
    assert len(graph.outputs) == 1


class Built(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.spare, self.norm = nn.Linear(2, 2, bias=False), nn.Linear(2, 2), nn.BatchNorm1d(2)
        self.scale = nn.Parameter(torch.ones(2).mul(3))
        self.register_buffer("mask", torch.arange(2) * 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


def test_how_what_nothing_uses_is_initialised_is_not_of_the_forward() -> None:
    def run() -> None:
        model = Built()
        models.append(model)
        model(torch.ones(1, 2))

    models: list[nn.Module] = []
    assert wired(forward(run)) == [
        "empty:1",
        "used.weight(~empty:1)",
        "uniform_:1(!used.weight)",
        "ones:1",
        "used/t:1(~uniform_:1)",
        "used/mm:1(ones:1, used/t:1)",
        "output(used/mm:1)",
    ]


def test_an_update_of_what_was_made_inside_is_of_the_forward_and_no_output() -> None:
    def run() -> None:
        model = nn.Linear(2, 1, bias=False)
        models.append(model)
        step = model(torch.ones(1, 2)).detach()
        with torch.no_grad():
            model.weight.view(-1).sub_(step.view(-1))

    models: list[nn.Module] = []
    assert wired(forward(run))[-3:] == [
        "view:1(~uniform_:1)",
        "view:2(~detach:1)",
        "sub_:1(!view:1, view:2)",
    ]


def test_what_is_made_of_a_tensor_from_outside_and_kept_is_an_output() -> None:
    model, outside = nn.Linear(2, 1, bias=False), torch.ones(2)
    model.register_buffer("last", None)

    def run() -> None:
        model(torch.ones(1, 2))
        model.last = outside.exp()

    assert [line for line in wired(forward(run, model)) if line.startswith("output")] == [
        "output:0(mm:1)",
        "output:1(exp:1)",
    ]
