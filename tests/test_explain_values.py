"""What the numbers of a backward tell: the first gradient that is not finite, terms, norms, and the overlay of them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from explained_models import Model  # noqa: E402
from tensors import leaf_of as leaf  # noqa: E402
from tensors import since  # noqa: E402

import gradir  # noqa: E402
from gradir.errors import ExportError, GraphError  # noqa: E402
from gradir.explanations.from_cuts import explain_cuts  # noqa: E402
from gradir.explanations.model import Cause, Examined, Explanation  # noqa: E402
from gradir.ir import Graph, Node  # noqa: E402
from gradir.overlays import decode, encode  # noqa: E402

nn = torch.nn
Compute = Callable[[torch.Tensor], torch.Tensor]

POWER = "its base is 0 somewhere, where the derivative of a power below 1 is infinite"
INFINITE = "its input is 0 somewhere, where its derivative is infinite"
DIVIDES = "its input, which it divides by, is 0 or almost 0 somewhere"
AT = "at tests/test_explain_values.py:{line}"
TRAPS: list[tuple[str, Compute, tuple[float, ...], str, str, str]] = [
    ("sqrt", lambda x: x.sqrt(), (0.0, 1.0), "nonfinite", "sqrt", INFINITE),
    ("hand-made norm", lambda x: (x * x).sum().sqrt(), (0.0, 0.0), "nonfinite", "sqrt", INFINITE),
    ("log", lambda x: x.log(), (0.0, 1.0), "nonfinite", "log", INFINITE),
    ("power", lambda x: x**0.5, (0.0, 1.0), "nonfinite", "pow", POWER),
    ("power of a tensor", lambda x: x ** torch.tensor(0.3), (0.0, 1.0), "nonfinite", "pow", POWER),
    (
        "root of what is below 0",
        lambda x: x**0.5,
        (-1.0, 1.0),
        "nonfinite",
        "pow",
        "its base is below 0 somewhere, where only whole powers are real",
    ),
    ("division", lambda x: torch.ones(2) / x, (0.0, 1.0), "nonfinite", "div", "its divisor is 0 somewhere"),
    ("reciprocal", lambda x: 1 / x, (0.0, 1.0), "nonfinite", "reciprocal", DIVIDES),
    ("rsqrt", lambda x: x.rsqrt(), (0.0, 1.0), "nonfinite", "rsqrt", DIVIDES),
    (
        "acos",
        lambda x: x.acos(),
        (1.0, 0.0),
        "nonfinite",
        "acos",
        "its input is 1 or -1 somewhere, where its derivative is infinite",
    ),
    (
        "std of one",
        lambda x: x.std(),
        (1.0,),
        "nonfinite",
        "std",
        "it is over a single number, which has no spread (0 / 0)",
    ),
    (
        "std along a dimension of one",
        lambda x: x.view(2, 1).std(-1),
        (1.0, 2.0),
        "nonfinite",
        "std",
        "it is over a single number, which has no spread (0 / 0)",
    ),
    (
        "standardising one",
        lambda x: (x - x.mean()) / x.std(),
        (1.0,),
        "born",
        "std",
        "it is over a single number, which has no spread (0 / 0)",
    ),
    (
        "where",
        lambda x: torch.where(x > 0, x.sqrt(), 0.0),
        (0.0, 1.0),
        "where_trap",
        "sqrt",
        f"{INFINITE}; `where` {AT} takes another value there",
    ),
    (
        "where the other way round",
        lambda x: torch.where(x <= 0, 0.0, x.log() * 2),
        (0.0, 1.0),
        "where_trap",
        "log",
        f"{INFINITE}; `where` {AT} takes another value there",
    ),
    (
        "where below 0",
        lambda x: torch.where(x > 0, x.sqrt(), 0.0),
        (-1.0, 1.0),
        "where_trap",
        "sqrt",
        f"its result is NaN or infinite already; `where` {AT} takes another value there",
    ),
    (
        "a row that is masked out",
        lambda x: (x + torch.tensor(-math.inf)).softmax(0),
        (1.0, 2.0),
        "nonfinite",
        "softmax",
        "its result is NaN or infinite already",
    ),
    (
        "masked_fill",
        lambda x: x.sqrt().masked_fill(x == 0, 1.0),
        (0.0, 1.0),
        "where_trap",
        "sqrt",
        f"{INFINITE}; `masked_fill` {AT} takes another value there",
    ),
    (
        "where with something between",
        lambda x: torch.where(x > 0, -(x.sqrt() * 2 + 1).exp(), 0.0),
        (0.0, 1.0),
        "where_trap",
        "sqrt",
        f"{INFINITE}; `where` {AT} takes another value there",
    ),
    (
        "where of numbers that changed places",
        lambda x: torch.where(torch.tensor([False, True]), x.sqrt().flip(0), 0.0) * torch.tensor([1.0, 0.0]),
        (0.0, 1.0),
        "nonfinite",
        "sqrt",
        INFINITE,
    ),
    ("a whole power that is too large", lambda x: x**3, (-1e30, 1.0), "nonfinite", "pow", ""),
    # The where is not to blame: it takes what is infinite, or an infinite gradient comes through it.
    ("where that takes it", lambda x: torch.where(x >= 0, x.sqrt(), 0.0), (0.0, 1.0), "nonfinite", "sqrt", INFINITE),
    ("where in between", lambda x: torch.where(x > 0, x, x).sqrt(), (0.0, 1.0), "nonfinite", "sqrt", INFINITE),
    ("a zero of the program", lambda x: x.sqrt() * torch.zeros(2), (0.0, 1.0), "nonfinite", "sqrt", INFINITE),
]


@pytest.mark.filterwarnings("ignore:std")
@pytest.mark.parametrize(
    ("compute", "numbers", "kind", "op", "detail"), [row[1:] for row in TRAPS], ids=[row[0] for row in TRAPS]
)
def test_the_first_gradient_that_is_not_finite_is_reported_with_what_made_it(
    compute: Compute, numbers: tuple[float, ...], kind: str, op: str, detail: str
) -> None:
    a = leaf(*numbers)
    with gradir.record(flow=True) as rec:
        loss = compute(a).sum()
    found = rec.explain(loss, params={"a": a})
    loss.backward()
    assert not torch.isfinite(a.grad).all()
    assert found.statuses == {"a": "nonfinite"}
    (cause,) = found.causes
    line = compute.__code__.co_firstlineno
    assert (cause.kind, cause.level, cause.op, cause.names) == (kind, "error", op, ("a",))
    assert cause.detail == detail.format(line=line)
    assert cause.source is not None
    assert (cause.source.line, cause.source.function) == (line, "<lambda>")
    assert found.gradients == {"a": "nonfinite"}


SAFE: list[Compute] = [
    lambda x: torch.where(x > 0, torch.where(x > 0, x, 1.0).sqrt(), 0.0),
    lambda x: x.norm(),
    pytest.param(lambda x: torch.atan2(x, x), marks=since("2.11", "torch has not made it safe")),
    torch.linalg.vector_norm,
    lambda x: x.std(),
    lambda x: (x + 1e-6).sqrt(),
    lambda x: x**2,
]


@pytest.mark.parametrize("compute", SAFE)
def test_what_torch_has_made_safe_or_a_program_has_is_no_alarm(compute: Compute) -> None:
    a = leaf(0.0, 0.0)
    with gradir.record(flow=True) as rec:
        loss = compute(a).sum()
    found = rec.explain(loss, params={"a": a})
    loss.backward()
    assert torch.isfinite(a.grad).all()
    assert found.status("a") == ("reached" if a.grad.any() else "zero")


def test_the_advice_for_where_is_that_which_helps() -> None:
    x = leaf(0.0, 4.0)
    advice = Cause("where_trap", "error", "sqrt", ("x",)).advice
    code = advice.rpartition("as well: ")[2]
    names = {"torch": torch, "mask": x > 0, "sqrt": torch.sqrt, "x": x, "other": torch.zeros(2)}
    eval(code, names).sum().backward()
    assert x.grad.tolist() == [0.0, 0.25]


def test_hooks_that_unpack_a_saved_tensor_do_not_run() -> None:
    unpacked = []

    def unpack(held: torch.Tensor) -> torch.Tensor:
        unpacked.append(held)
        return held

    a = leaf(0.0, 1.0)
    with gradir.record(flow=True) as rec, torch.autograd.graph.saved_tensors_hooks(lambda held: held.clone(), unpack):
        loss = torch.where(a > 0, a.sqrt(), 0.0).sum()
    assert rec.explain(loss, params={"a": a}).status("a") == "nonfinite"
    # Once for each tensor that is saved, by the backward itself.
    assert len(unpacked) == 2


@pytest.fixture
def told() -> tuple[gradir.Recorder, torch.Tensor, Model]:
    torch.manual_seed(0)
    model = Model()
    with gradir.record(model, flow=True) as rec:
        fit = model(torch.ones(4, 3)).square().mean()
        penalty = model.stem.weight.data.abs().sum()
        total = fit + 0.5 * penalty
        total -= model.head.bias.exp().sum()
    return rec, total, model


def test_terms_have_their_values_where_these_are_asked_for(told: tuple[gradir.Recorder, torch.Tensor, Model]) -> None:
    rec, loss, model = told
    found = rec.explain(loss)
    values = {term.variable or term.op: term.value for term in found.terms}
    penalty = float(model.stem.weight.detach().abs().sum())
    fit = float(model(torch.ones(4, 3)).square().mean())
    head = float(model.head.bias.detach().exp().sum())
    assert values == pytest.approx({"fit": fit, "penalty": penalty, "sum": head}, rel=1e-4)
    assert float(loss) == pytest.approx(fit + 0.5 * penalty - head, rel=1e-4)
    assert [len(term.names) for term in found.terms] == [4, 0, 1]
    line = next(line for line in found.to("text").splitlines() if line.startswith("  penalty at "))
    assert line.startswith("  penalty at tests/test_explain_values.py:")
    assert line.endswith(f": reaches nothing, value {penalty:.6g}")
    assert f"`: reaches nothing, value {penalty:.6g}\n" in found.to("markdown")
    assert json.loads(found.to("json"))["terms"][1]["value"] == pytest.approx(penalty)
    without = rec.explain(loss, values=False)
    assert [term.value for term in without.terms] == [None, None, None]
    assert ", value" not in without.to("text")
    assert without.gradients == {}


def test_a_term_that_is_no_number_is_reported_as_such() -> None:
    a = leaf(-1.0)
    with gradir.record(flow=True) as rec:
        good = a.square().sum()
        bad = a.log().sum()
        loss = good + bad
    found = rec.explain(loss, params={"a": a})
    assert [term.value for term in found.terms] == [1.0, "nan"]
    assert json.loads(found.to("json"))["terms"][1]["value"] == "nan"


def test_a_term_that_is_written_to_later_has_the_value_that_was_added() -> None:
    a = leaf(2.0)
    with gradir.record(flow=True) as rec:
        part = a.sum() * torch.ones(())
        loss = part + a.prod()
        with torch.no_grad():
            part.zero_()
    found = rec.explain(loss, params={"a": a})
    assert [term.value for term in found.terms] == [2.0, 2.0]


def test_long_sums_keep_few_numbers() -> None:
    a = leaf(1.0)
    with gradir.record(flow=True) as rec:
        total = torch.zeros(())
        for _ in range(1500):
            total = total + a.sum()
    (flow,) = rec._flows.values()  # type: ignore[attr-defined]
    assert len(flow.numbers) == 1000
    assert rec.explain(total, params={"a": a}).status("a") == "reached"


def test_gradients_are_the_norms_of_a_real_backward(told: tuple[gradir.Recorder, torch.Tensor, Model]) -> None:
    rec, loss, model = told
    found = rec.explain(loss)
    loss.backward()
    assert found.gradients == pytest.approx(
        {name: float(parameter.grad.norm()) for name, parameter in model.named_parameters()}
    )
    overlay = found.overlay()
    graph = rec.capture(loss)
    (gradients, statuses) = overlay.channels
    assert set(statuses.values) == {"stem.weight", "stem.bias", "head.weight", "head.bias"}
    assert set(gradients.values) == {node.id for node in graph.nodes.values() if node.role != "output"}
    assert {name: gradients.values[name] for name in found.gradients} == found.gradients
    assert found.overlay(graph) == overlay
    assert (overlay.verdict, overlay.look) == (found.verdict, "caution")
    assert "[gradient (norm): " in graph.to("tree", overlay=overlay)


def test_tiny_and_huge_gradients_have_a_norm() -> None:
    a, b = leaf(1.0, 1.0), leaf(1.0, 1.0)
    with gradir.record(flow=True) as rec:
        loss = (a * 1e-30).sum() + (b * 1e30).sum()
    gradients = rec.explain(loss, params={"a": a, "b": b}).gradients
    assert gradients == pytest.approx({"a": 1e-30, "b": 1e30}, rel=0.5)
    assert all(math.isfinite(found) for found in gradients.values() if not isinstance(found, str))


@pytest.mark.parametrize(("level", "look"), [("error", "alarm"), ("info", "caution"), ("note", "quiet")])
def test_the_overlay_has_the_verdict_and_the_look_of_the_gravest_cause(level: Any, look: str) -> None:
    cause = Cause("detach", level, "detach", ("w",))
    graph = Graph.of([Node("w", names=("w",))])
    for reason in ("no backward was asked for", "a" * 3000):
        found = Explanation({"w": "cut"}, (cause,), examined=Examined(reason=reason))
        overlay = found.overlay(graph)
        assert overlay.look == look
        assert overlay.verdict == (found.verdict if len(found.verdict) <= 2000 else f"{found.verdict[:1999]}…")
        assert decode(encode(overlay)) == overlay


def test_the_overlay_of_a_forward_knows_its_parameters_alone(
    told: tuple[gradir.Recorder, torch.Tensor, Model],
) -> None:
    rec, loss, _ = told
    overlay = rec.explain(loss).overlay(rec.forward())
    assert [set(channel.values) for channel in overlay.channels] == [
        {"stem.weight", "stem.bias", "head.weight", "head.bias"}
    ] * 2
    assert "[status: reached]" in rec.forward().to("tree", overlay=overlay, channel="status")
    with pytest.raises(ExportError, match="is of another graph"):
        rec.forward().to("tree", overlay=rec.explain(loss).overlay())


def test_a_cut_that_is_no_error_is_drawn_as_one_that_may_be_meant() -> None:
    model = Model()
    with gradir.record(model, flow=True) as rec:
        loss = model.head(model.stem(torch.ones(1, 3)).detach()).sum()
    found = rec.explain(loss)
    for each, word, look in (
        (found, "cut", "alarm"),
        (found.allow(["stem.*"]), "cut, may be intended", "caution"),
        (rec.explain(loss, optimizer=torch.optim.SGD(model.head.parameters())), "cut, may be intended", "caution"),
    ):
        channel = each.overlay(rec.forward()).channels[-1]
        assert channel.values["stem.weight"] == word
        assert channel.looks[word] == look
    (gradients, _) = found.overlay(rec.forward()).channels
    assert gradients.values["stem.weight"] == "none"


def test_without_an_autograd_graph_the_forward_is_what_can_be_drawn_over() -> None:
    model = Model()
    with gradir.record(model, flow=True) as rec, torch.no_grad():
        loss = model(torch.ones(1, 3)).sum()
    found = rec.explain(loss)
    with pytest.raises(GraphError, match="use the overlay of its forward graph"):
        found.overlay()
    assert set(found.overlay(rec.forward()).channels[0].values.values()) == {"cut"}
    with pytest.raises(GraphError, match="it is of something else"):
        found.overlay(gradir.Graph.of([gradir.Node("x")]))


def test_an_explanation_of_a_file_has_an_overlay_of_statuses(
    told: tuple[gradir.Recorder, torch.Tensor, Model], tmp_path: Path
) -> None:
    rec, loss, _ = told
    rec.capture(loss).save(tmp_path / "a.gir")
    assert b"overlay" not in (tmp_path / "a.gir").read_bytes()
    graph = gradir.load(tmp_path / "a.gir")
    (channel,) = explain_cuts(graph).overlay(graph).channels
    assert channel.name == "status"
    assert set(channel.values.values()) == {"reached"}


def test_an_explanation_without_values_has_no_gradients_to_draw(
    told: tuple[gradir.Recorder, torch.Tensor, Model],
) -> None:
    rec, loss, _ = told
    assert [channel.name for channel in rec.explain(loss, values=False).overlay().channels] == ["status"]
    assert isinstance(rec.explain(loss, values=False), Explanation)
