"""Where a recorded forward loses gradient, in the graph that is captured and in its explanation."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

import pytest

torch = pytest.importorskip("torch")

from tensors import leaf_of as leaf  # noqa: E402

import gradir  # noqa: E402

nn = torch.nn

Cuts = list[tuple[str, tuple[str, ...], int]]


def told(rec: gradir.Recorder, loss: torch.Tensor, params: Mapping[str, torch.Tensor]) -> tuple[dict[str, str], Cuts]:
    """Statuses, and kind, names and line (counted from the test's first) of each cause but those of mere disuse."""
    found = rec.explain(loss, params=params)
    caller = inspect.currentframe().f_back  # type: ignore[union-attr]
    first = caller.f_code.co_firstlineno  # type: ignore[union-attr]
    causes = [(each.kind, each.names, each.source.line - first) for each in found.causes if each.source is not None]
    cuts = (
        [cut for cut in rec.capture(loss, params=params).cuts if cut.source is not None] if loss.requires_grad else []
    )
    for cut in cuts:
        assert (cut.kind, cut.names, cut.source.line - first) in causes
    return dict(found.statuses), causes


def test_an_inference_tensor_is_cut_where_it_was_made() -> None:
    a, c = leaf(), leaf()
    with gradir.record(flow=True) as rec:
        with torch.inference_mode():
            y = a * 2
        loss = (y + c).sum()
    assert told(rec, loss, {"a": a, "c": c}) == ({"a": "cut", "c": "reached"}, [("inference_mode", ("a",), 4)])


def test_the_leaves_behind_a_detach_are_cut_there_and_the_others_reached() -> None:
    c, e, f = leaf(), leaf(), leaf()
    with gradir.record(flow=True) as rec:
        d = e * f
        loss = (torch.relu(d.detach()) + c).sum()
    params = {"c": c, "e": e, "f": f}
    assert told(rec, loss, params) == ({"c": "reached", "e": "cut", "f": "cut"}, [("detach", ("e", "f"), 4)])


def test_a_discriminators_step_names_every_parameter_of_the_generator() -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"generator": nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2))})
    model["critic"] = nn.Linear(2, 1)
    with gradir.record(model, flow=True) as rec:
        made = model["generator"](torch.randn(4, 2))
        loss = model["critic"](made.detach()).mean()
    generator = tuple(name for name, _ in model.named_parameters() if name.startswith("generator"))
    assert len(generator) == 4
    statuses, causes = told(rec, loss, {})
    assert statuses == {name: "cut" if name in generator else "reached" for name, _ in model.named_parameters()}
    assert causes == [("detach", generator, 6)]
    optimizer = torch.optim.SGD(model["critic"].parameters(), 0.1)
    assert rec.explain(loss, optimizer=optimizer).level == "info"
    assert rec.explain(loss).level == "error"


def test_a_comparison_cuts_and_so_does_a_drawn_sample() -> None:
    a, b, c = leaf(), leaf(), leaf()
    with gradir.record(flow=True) as rec:
        mask = a > 1
        drawn = torch.multinomial(b.softmax(0), 1)
        loss = (c * mask * drawn).sum()
    causes = [("nondifferentiable", ("a",), 3), ("sample", ("b",), 4)]
    assert told(rec, loss, {"a": a, "b": b, "c": c}) == ({"a": "cut", "b": "cut", "c": "reached"}, causes)


def test_round_is_connected_and_its_gradient_is_zero() -> None:
    a = leaf()
    with gradir.record(flow=True) as rec:
        loss = a.exp().round().sum()
    assert told(rec, loss, {"a": a}) == ({"a": "zero"}, [("flat", ("a",), 3)])
    assert rec.capture(loss, params={"a": a}).cuts == ()


@pytest.mark.parametrize("way", ["item", "tolist", "numpy"])
def test_a_value_that_leaves_torch_is_a_cut_at_that_line(way: str) -> None:
    a, c = leaf(), leaf()
    with gradir.record(flow=True) as rec:
        if way == "item":
            factor = a.sum().item()
        elif way == "tolist":
            factor = a.tolist()[0]
        else:
            factor = float(a.detach().numpy()[0])
        loss = (c * factor).sum()
    line = {"item": 4, "tolist": 6, "numpy": 8}[way]
    statuses, causes = told(rec, loss, {"a": a, "c": c})
    assert statuses == {"a": "cut", "c": "reached"}
    assert causes == [("exit", ("a",), line + 1)]
    (cut,) = rec.capture(loss, params={"a": a, "c": c}).cuts
    assert (cut.kind, cut.names, cut.scope) == ("exit", ("a",), "")


def test_subtracting_a_detached_copy_leaves_the_leaf_reached() -> None:
    a, c = leaf(), leaf()
    with gradir.record(flow=True) as rec:
        loss = ((a - a.detach()) * c).sum()
    # The gradient of c is zero by value: a - a is.
    assert rec.explain(loss, params={"a": a}).status("a") == "reached"
    found = rec.explain(loss, params={"a": a, "c": c}, values=False)
    assert [(cause.kind, cause.level) for cause in found.causes] == [("detach", "info")]


def test_tensors_that_torch_detaches_for_saving_are_no_cut() -> None:
    a = leaf()
    with gradir.record(flow=True) as rec:
        loss = a.exp().tanh().sigmoid().softmax(0).sqrt().sum()
    assert told(rec, loss, {"a": a}) == ({"a": "reached"}, [])
    assert rec.capture(loss, params={"a": a}).cuts == ()
