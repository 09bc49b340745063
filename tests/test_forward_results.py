"""The results of a forward pass are the outputs of its graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from wiring import describe_wiring, forward  # noqa: E402

import gradir  # noqa: E402
from gradir.frontends.pytorch import target  # noqa: E402
from gradir.ir.validate import problems  # noqa: E402
from gradir.request import CaptureRequest  # noqa: E402

nn = torch.nn


@pytest.mark.parametrize("look", [float, int, "{:.1f}".format, torch.Tensor.item])
def test_a_number_that_is_read_takes_no_result_away(look: Callable[[Any], object]) -> None:
    def run() -> object:
        loss = torch.ones(2).sum()
        look(loss)
        return loss

    assert "_local_scalar_dense:1" in forward(run).nodes
    assert outputs(forward(run)) == outputs(captured(run)) == ["sum:1"]


def test_a_tensor_that_is_decided_by_or_an_index_is_no_result() -> None:
    def run() -> object:
        x = torch.ones(3)
        return x[: x.argmax()] * 2 if x.any() else x

    assert outputs(forward(run)) == ["mul:1"]


def outputs(graph: gradir.Graph) -> list[str]:
    return [ref.partition("(")[2][:-1] for ref in describe_wiring(graph) if ref.startswith("output")]


def captured(run: Callable[[], object]) -> gradir.Graph:
    """The graph of the forward of a program, which knows what that returned."""
    found = target.capture_target(CaptureRequest(target=run, is_program=True, graph="forward")).graph
    assert list(problems(found)) == []
    return found


def detached() -> object:
    loss = torch.ones(2).sum()
    loss.detach()
    return nn.Identity(), {"loss": loss}


def largest() -> object:
    values, places = torch.ones(2, 3).max(1)
    places + 1
    return values


def unbound() -> object:
    return torch.ones(2, 3).unbind(0)[1]


def recurrent() -> object:
    return nn.LSTM(4, 4, 2)(torch.ones(1, 2, 4))[0]


def written() -> object:
    y = torch.ones(3)
    kept = y.view(3, 1)
    y.add_(1).exp()
    return kept


def normed() -> object:
    return nn.functional.batch_norm(torch.ones(2, 2), None, None, training=True)


def initial() -> object:
    return nn.Linear(2, 1, bias=False).weight


@pytest.mark.parametrize(
    ("run", "known", "seen"),
    [
        (detached, ["sum:1", "detach:1"], ["detach:1"]),
        (largest, ["max:1", "add:1"], ["max:1", "add:1"]),
        (unbound, ["unbind:1.1", "unbind:1"], ["unbind:1", "unbind:1.1"]),
        (written, ["add_:1", "exp:1"], ["exp:1"]),
        (initial, ["parameter:1"], []),
        # Of what an operation makes for its backward alone the program has nothing.
        (normed, ["native_batch_norm:1"], ["native_batch_norm:1"]),
    ],
)
def test_outputs_are_reported_by_tensor_and_what_was_returned_is_one(
    run: Callable[[], object], known: list[str], seen: list[str]
) -> None:
    assert (outputs(captured(run)), outputs(forward(run))) == (known, seen)


def test_all_results_of_a_recurrent_module_are_outputs() -> None:
    graph = captured(recurrent)
    assert [node.outputs[0].shape for node in graph.nodes.values() if node.role == "output"] == [
        (1, 2, 4),
        (2, 2, 4),
        (2, 2, 4),
    ]
