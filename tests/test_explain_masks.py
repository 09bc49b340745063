"""Attention whose mask leaves nothing: the operation that made NaN of it, and the line of the mask."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import gradir  # noqa: E402

nn = torch.nn


def test_a_nan_of_the_forward_is_found_behind_views() -> None:
    model, seen = nn.Linear(2, 2), torch.tensor([[True, True], [False, False]])
    with gradir.record(model, flow=True) as rec:
        x = torch.ones(3, 2, 2)
        scores = (x @ x.transpose(1, 2)).masked_fill(~seen, float("-inf"))
        loss = (scores.add(model.bias).softmax(-1) @ model(x))[:, 0].sum()
    told = [cause.text for cause in rec.explain(loss).causes if "weight" in str(cause.names)]
    assert len(told) == 1
    assert "`softmax` at" in told[0]


@pytest.mark.parametrize("is_where", [False, True])
def test_a_mask_that_leaves_nothing_is_named_with_its_line(is_where: bool) -> None:
    model, seen = nn.Linear(2, 2), torch.tensor([[True, True], [False, False]])

    def masked(scores: torch.Tensor) -> torch.Tensor:
        return torch.where(seen, scores, float("-inf")) if is_where else scores.masked_fill(~seen, float("-inf"))

    with gradir.record(model, flow=True) as rec:
        x = model(torch.ones(2, 2))
        loss = (masked(x @ x.T).softmax(-1) @ x)[0].sum()
    (cause,) = (cause for cause in rec.explain(loss).causes if cause.level == "error")
    assert (cause.kind, cause.op) == ("all_masked", "matmul")
    assert cause.source is not None
    here = cause.source.file
    line = masked.__code__.co_firstlineno
    name = "where" if is_where else "masked_fill"
    assert cause.detail == (
        f"`{name}` at {here}:{line + 1} leaves nothing in some row for `softmax` at {here}:{cause.source.line}"
    )


def test_a_mask_that_leaves_something_is_not_blamed() -> None:
    model, seen = nn.Linear(2, 2), torch.tensor([[True, True], [True, False]])
    with gradir.record(model, flow=True) as rec:
        x = model(torch.ones(2, 2))
        scores = (x @ x.T).masked_fill(~seen, float("-inf"))
        loss = ((scores + torch.tensor([[0.0], [float("nan")]])).softmax(-1) @ x)[0].sum()
    assert {cause.kind for cause in rec.explain(loss).causes} == {"nonfinite"}
