"""An operation is called what the program calls it, and not what torch calls it inside."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

import gradir  # noqa: E402

X = torch.randn(2, 3, 4)
INNER = ("addmm", "bmm", "grid_sampler", "index_put", "mkldnn", "native_", "setitem", "to_copy")


def looked_outside(w: torch.Tensor) -> torch.Tensor:
    return F.grid_sample(torch.ones(1, 1, 4, 4), w[:4].view(1, 2, 4, 2) + 100).sum()


def too_small(w: torch.Tensor) -> torch.Tensor:
    return w.half().float().sum() * 1e-12


def multiplied(w: torch.Tensor) -> torch.Tensor:
    return (X[0] @ (w * 1e30) @ w.t()).mul(1e30).softmax(-1).square().sum()


@pytest.mark.parametrize(("run", "op"), [(looked_outside, "grid_sample"), (too_small, "float"), (multiplied, "mul")])
def test_the_word_of_the_program_is_reported(run: Callable[[torch.Tensor], torch.Tensor], op: str) -> None:
    w = torch.ones(4, 4, requires_grad=True)
    with gradir.record(flow=True) as rec:
        loss = run(w)
    found = rec.explain(loss, params={"w": w})
    loss.backward()
    assert found.status("w") != "reached"
    assert [cause.op for cause in found.causes] == [op]
    assert not any(name in str(found) for name in INNER)


def test_the_layer_of_a_recurrent_net_is_called_by_its_name() -> None:
    torch.manual_seed(0)
    model = nn.LSTM(4, 4, bidirectional=True, batch_first=True)
    with gradir.record(model, flow=True) as rec:
        loss = model(X)[0][:, -1].sum()
    found = rec.explain(loss)
    loss.backward()
    assert not model.weight_hh_l0_reverse.grad.any()
    assert {cause.op for cause in found.causes if "weight_hh_l0_reverse" in cause.names} == {"lstm"}
    assert not any(name in str(found) for name in INNER)


@pytest.mark.parametrize(
    ("fail", "words"),
    [
        (lambda w: w[0].__setitem__(9, 1.0), "an assignment to an index raised"),
        (lambda w: torch.autograd.grad(torch.ones(1).sum(), w), "torch.autograd.grad raised"),
        (lambda w: w[9], "an index raised"),
    ],
)
def test_an_error_names_the_expression_of_the_program(fail: Callable[[torch.Tensor], object], words: str) -> None:
    w = torch.ones(2, 2, requires_grad=True)
    rec = gradir.record(flow=True)
    with pytest.raises((RuntimeError, IndexError)) as raised, rec:  # noqa: PT012
        w.sum()
        fail(w)
    assert words in rec.explain(raised.value, params={"w": w}).verdict
