"""Of a parameter that nothing captured is computed of it is told what else was computed of it, and where."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from marked_lines import find_marked_line  # noqa: E402
from torch import nn  # noqa: E402

import gradir  # noqa: E402

X = torch.ones(4, 3)
SIDE = ("side.weight", "side.bias")


@pytest.fixture
def model() -> nn.ModuleDict:
    torch.manual_seed(0)
    return nn.ModuleDict({"main": nn.Linear(3, 2), "side": nn.Linear(3, 2)})


def told(model: nn.Module, run: Any) -> list[tuple[tuple[str, ...], int | None, str]]:
    """Of each cause that is ``unused`` its names, its line counted from the marked one, and its detail."""
    with gradir.record(model, flow=True) as rec:
        loss = run(model)
    return [
        (
            cause.names,
            cause.source.line - find_marked_line(run) if cause.source else None,
            cause.detail.split(" at ")[0],
        )
        for cause in rec.explain(loss).causes
        if cause.kind == "unused"
    ]


def lost_term(m: Any) -> Any:
    loss = m["main"](X).square().mean()
    # Its exp() keeps its own result, detached, for its derivative: no value of the program.
    penalty = (m["side"](X).exp() - 1).mean()  # noqa: F841 # HERE
    return loss


def logged(m: Any) -> Any:
    loss = m["main"](X).square().mean()
    penalty = m["side"](X).square().mean()  # HERE
    f"{penalty.item():.3f}"
    kept = [penalty.detach()]
    assert kept
    return loss


def in_the_end_without_gradient(m: Any) -> Any:
    loss = m["main"](X).square().mean()
    scores = m["side"](X)  # HERE
    with torch.no_grad():
        (scores * 2).sum()
    scores.argmax(1).float().mean()
    return loss


def of_one_of_two(m: Any) -> Any:
    halves = m["side"](X) * 3
    halves.max(1)  # HERE
    return m["main"](X).square().mean()


@pytest.mark.parametrize(
    ("run", "name"),
    [
        (lost_term, "penalty"),
        (logged, "penalty"),
        (in_the_end_without_gradient, "the result of linear"),
        (of_one_of_two, "the result of max"),
    ],
)
def test_the_last_value_with_a_gradient_is_named(model: nn.ModuleDict, run: Any, name: str) -> None:
    assert told(model, run) == [(SIDE, 0, name)]


def numbers_into_a_parameter(m: Any) -> Any:
    scores = m["side"](X)  # HERE
    m["main"].load_state_dict({"weight": scores[:2, :1].expand(2, 3), "bias": scores[0]})
    return m["main"](X).sum()


def numbers_into_a_tensor(m: Any) -> Any:
    scores = torch.zeros(4, 2)
    scores.data = m["side"](X)  # HERE
    return (m["main"](X) * scores).sum()


@pytest.mark.parametrize(
    ("run", "is_read"),
    [
        (lost_term, False),
        (logged, True),
        (of_one_of_two, False),
    ],
)
def test_the_detail_says_whether_numbers_go_on_without_gradient(model: nn.ModuleDict, run: Any, is_read: bool) -> None:
    with gradir.record(model, flow=True) as rec:
        loss = run(model)
    (detail,) = {cause.detail for cause in rec.explain(loss).causes if cause.kind == "unused"}
    assert ("numbers go on without a gradient" in detail) is is_read
    assert ("no further" in detail) is not is_read


@pytest.mark.parametrize("run", [numbers_into_a_parameter, numbers_into_a_tensor])
def test_values_copied_into_another_tensor_are_a_cut(model: nn.ModuleDict, run: Any) -> None:
    with gradir.record(model, flow=True) as rec:
        loss = run(model)
    found = rec.explain(loss)
    (cause,) = (cause for cause in found.causes if "side.weight" in cause.names)
    assert cause.kind in {"data", "put"}
    assert cause.level == "error"
    assert found.status("side.weight") == "cut"


def test_of_several_the_newest_are_named_and_no_more(model: nn.ModuleDict) -> None:
    def several(m: Any) -> Any:
        scores = m["side"](X)  # HERE
        a = scores.sum()  # noqa: F841
        b = scores.mean()  # noqa: F841
        c = scores.square()  # noqa: F841
        d = scores.exp()  # noqa: F841
        return m["main"](X).sum()

    with gradir.record(model, flow=True) as rec:
        loss = several(model)
    (cause,) = rec.explain(loss).causes
    here = find_marked_line(several)
    lines = ", ".join(f"{name} at test_loose_ends.py:{here + at}" for name, at in (("d", 4), ("c", 3), ("b", 2)))
    assert cause.text.replace("tests/", "").endswith(f": {lines} and others do, and go no further")
    assert cause.source is not None
    assert cause.source.line == here + 4


def test_a_result_with_another_path_to_the_loss_is_no_loose_end(model: nn.ModuleDict) -> None:
    def shared(m: Any) -> Any:
        scores = m["main"](X)
        (scores.mean() + m["side"](X).mean()).sqrt()  # HERE
        return scores.sum()

    assert told(model, shared) == [(SIDE, 0, "the result of sqrt")]


def test_a_normalization_whose_result_continues_has_no_end_of_its_own(model: nn.ModuleDict) -> None:
    """It gives the mean and the deviation too, which nothing takes."""

    def normed(m: Any) -> Any:
        scores = nn.functional.layer_norm(m["side"](X), (2,))
        last = scores.sum()  # noqa: F841 # HERE
        return m["main"](X).sum()

    assert told(model, normed) == [(SIDE, 0, "last")]


def test_parameters_with_other_ends_are_distinguished_and_those_without_one_as_before() -> None:
    model = nn.ModuleDict({name: nn.Linear(3, 2, bias=False) for name in ("main", "one", "two", "never")})

    def apart(m: Any) -> Any:
        first = m["one"](X) * 2  # noqa: F841 # HERE
        second = m["two"](X) * 2  # noqa: F841
        return m["main"](X).sum()

    found = told(model, apart)
    assert found == [(("one.weight",), 0, "first"), (("two.weight",), 1, "second"), (("never.weight",), None, "")]


def test_a_weight_that_was_written_to_is_the_one_from_before(model: nn.ModuleDict) -> None:
    def after_a_step(m: Any) -> Any:
        optimizer = torch.optim.SGD(m["side"].parameters(), 0.1)
        m["side"](X).sum().backward()
        optimizer.step()
        lost = m["side"](X).mean()  # noqa: F841 # HERE
        return m["main"](X).sum()

    (found,) = told(model, after_a_step)
    assert found[:2] == (SIDE, 0)
    assert found[2].startswith("lost")
