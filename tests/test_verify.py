"""A graph beside the engine: what agrees, and that sabotage is found."""

from __future__ import annotations

import weakref

import pytest

torch = pytest.importorskip("torch")

from example_files import GRAPHS, attribute, live  # noqa: E402
from msgspec.structs import replace  # noqa: E402
from tensors import leaf  # noqa: E402

import gradir  # noqa: E402
from gradir.errors import CaptureError  # noqa: E402
from gradir.frontends.pytorch import private  # noqa: E402
from gradir.frontends.pytorch.target import capture_target  # noqa: E402
from gradir.frontends.pytorch.verifying import untouched  # noqa: E402
from gradir.ir import Graph, TensorMeta  # noqa: E402
from gradir.request import CaptureRequest  # noqa: E402

nn = torch.nn


class Widened(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.float()

    @staticmethod
    def backward(ctx, grad):
        return grad


class NoGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return None


@pytest.mark.parametrize("spec", GRAPHS)
def test_every_example_agrees_with_the_engine(spec: str) -> None:
    found = live(attribute(spec)).verify()
    assert found.mismatches == ()
    assert found.executed == found.nodes > 0


def test_gradients_are_as_before() -> None:
    model = nn.ModuleDict({"used": nn.Linear(2, 1), "unused": nn.Linear(2, 1)})
    model["used"].weight.grad = kept = torch.ones(1, 2)
    found = gradir.verify(model["used"](torch.ones(1, 2)), model=model)
    assert found == gradir.Verification(nodes=4, edges=5, executed=4, mismatches=())
    assert model["used"].weight.grad is kept
    assert model["used"].bias.grad is None


def test_the_graph_is_kept_and_the_hooks_are_gone() -> None:
    x = leaf(3)
    y = x.exp().sum()
    gradir.verify(y)
    y.backward()
    assert x.grad is not None


def test_a_freed_graph_is_one_clear_error() -> None:
    loss = leaf(3).exp().sum()
    loss.backward()
    with pytest.raises(
        CaptureError, match="verifying needs a backward, which failed: RuntimeError: Trying to backward"
    ):
        gradir.verify(loss)


@pytest.mark.parametrize("function", [NoGradient.apply, lambda x: torch.norm(x, p=0)])
def test_a_function_that_returns_no_gradient_is_no_mismatch(function) -> None:
    x = leaf(2)
    found = gradir.verify(function(x), params={"x": x})
    assert found.mismatches == ()
    assert found.executed == found.nodes == 2


def test_a_leaf_that_the_engine_does_not_come_to_is_found() -> None:
    x, y = leaf(2), leaf(2)
    found = capture_target(CaptureRequest(target=x.exp(), params={"x": x}))
    other = found._replace(leaves=dict.fromkeys(found.leaves, y))
    assert other.verify().mismatches == ("x: reached in the graph, but got no gradient",)


@pytest.mark.skipif(not hasattr(torch.Tensor, "grad_dtype"), reason="torch before 2.11 has gradients of one dtype")
@pytest.mark.parametrize("asked", [torch.float32, None])
def test_a_leaf_may_ask_for_a_gradient_of_another_dtype(asked: torch.dtype | None) -> None:
    x = torch.ones(3, dtype=torch.bfloat16, requires_grad=True)
    x.grad_dtype = asked
    assert gradir.verify(Widened.apply(x).sum()).mismatches == ()


def test_verify_finds_errors_of_the_graph() -> None:
    x, y = leaf(2), leaf(2)
    live = capture_target(CaptureRequest(target=x.exp() * y.sin(), params={"x": x, "y": y}))
    wrong = {**live.graph.nodes, "exp:1": replace(live.graph.nodes["exp:1"], outputs=(TensorMeta("float64", (2,)),))}
    lost = {fn: node_id for fn, node_id in live.grad_fns.items() if node_id != "sin:1"}
    extra = {**lost, x.cos().grad_fn: "mul:1"}
    found = live._replace(graph=Graph.of(wrong.values()), grad_fns=extra).verify()
    assert set(found.mismatches) == {
        "mul:1: the engine did not run it",
        "the engine ran 1 more SinBackward0 than were captured",
        "exp:1: float32[2] arrived at output 0, recorded as float64[2]",
    }


def test_a_parameter_wrongly_called_unreached_is_found() -> None:
    model = nn.Linear(2, 1, bias=False)
    live = capture_target(CaptureRequest(target=model(torch.ones(1, 2)), model=model))
    cut = gradir.Cut("unreached", ("weight",))
    graph = Graph.of(live.graph.nodes.values(), cuts=[cut])
    found = live._replace(graph=graph, leaves={}, unreached=[model.weight]).verify()
    assert found.mismatches == ("weight: unreached in the graph, but got a gradient",)


class Renamed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.name = "x"
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def test_a_function_that_keeps_an_attribute_called_name() -> None:
    assert gradir.verify(Renamed.apply(leaf(2)).sum()).mismatches == ()


def test_an_optimizer_in_the_backward_takes_no_gradient_away() -> None:
    model = nn.Linear(2, 1)
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda tensor: setattr(tensor, "grad", None))
    assert gradir.verify(model(torch.ones(1, 2)), model=model).mismatches == ()


@pytest.mark.parametrize("error", [ValueError("mine"), KeyError("k"), RuntimeError("in\ntwo lines")])
def test_a_hook_that_raises_is_one_clear_error(error: Exception) -> None:
    def raises(_: torch.Tensor) -> None:
        raise error

    y = leaf(2).exp()
    y.register_hook(raises)
    with pytest.raises(CaptureError, match=r"verifying needs a backward, which failed: \w+Error: ") as caught:
        gradir.verify(y.sum())
    assert "\n" not in str(caught.value)


def test_verify_works_under_a_profiler() -> None:
    with torch.autograd.profiler.profile():
        found = gradir.verify(leaf(2).exp().sum())
    assert found.mismatches == ()
    assert found.executed == 3


def test_a_sparse_output() -> None:
    x = leaf(2, 2)
    assert gradir.verify(x.to_sparse() * 2).mismatches == ()


def test_an_output_that_retains_its_gradient_has_it_as_before() -> None:
    x = leaf(2)
    y = x.exp()
    y.retain_grad()
    gradir.verify(y)
    assert y.grad is None
    y.sum().backward(retain_graph=True)
    kept = y.grad
    gradir.verify(y)
    assert y.grad is kept


def test_tensors_that_retain_their_gradient_have_the_one_they_had() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    gradients = []
    for verifies in (False, True):
        model.zero_grad()
        hidden = model[0](torch.ones(2, 4))
        hidden.retain_grad()
        loss = model[2](model[1](hidden)).sum()
        if verifies:
            assert gradir.verify(loss, model=model)
            assert hidden.grad is None
        loss.backward()
        gradients.append(hidden.grad)
    assert torch.equal(*gradients)


def test_a_hidden_tensor_keeps_the_gradient_that_an_earlier_backward_gave_it() -> None:
    hidden = leaf(2).exp()
    hidden.retain_grad()
    loss = (hidden * hidden.sin()).sum()
    loss.backward(retain_graph=True)
    kept = hidden.grad
    before = kept.clone()
    assert gradir.verify(loss)
    assert hidden.grad is kept
    assert torch.equal(kept, before)


def test_a_hidden_tensor_has_no_gradient_of_a_backward_that_fails() -> None:
    x = leaf(2).exp()
    hidden = x.sin()
    hidden.retain_grad()

    def fail(_: torch.Tensor) -> None:
        raise ValueError("no")

    x.register_hook(fail)
    with pytest.raises(CaptureError, match="ValueError"):
        gradir.verify(hidden.sum())
    assert hidden.grad is None


def test_neither_verify_nor_explain_looks_at_the_objects_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Linear(3, 1)
    with gradir.record(model, flow=True) as rec:
        hidden = model(torch.ones(2, 3))
        loss = hidden.sum()
    optimizer = torch.optim.SGD(model.parameters())

    def refuse(*_: object) -> None:
        raise AssertionError("looked at all objects")

    with monkeypatch.context() as patch:
        patch.setattr("gc.get_objects", refuse)
        assert gradir.verify(loss)
        assert gradir.verify(loss, model=model)
        assert rec.explain(loss, optimizer=optimizer).level == "none"
        # Only to find a tensor that retains its gradient takes that.
        hidden.retain_grad()
        with pytest.raises(AssertionError, match="all objects"):
            gradir.verify(loss)
        hidden.grad = None
    assert gradir.verify(loss)
    assert hidden.grad is None


def test_a_backward_runs_its_operations_past_what_looks_for_retained_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    see = untouched._Replaced.__torch_dispatch__

    def note(self, func, *rest):
        seen.append(func)
        return see(self, func, *rest)

    monkeypatch.setattr(untouched._Replaced, "__torch_dispatch__", note)
    hidden = leaf(2).exp()
    loss = (hidden.sin() * hidden.cos()).sum()
    assert gradir.verify(loss)
    assert seen == []
    hidden.retain_grad()
    assert gradir.verify(loss)
    assert seen == [torch.ops.aten.clone.default]


def test_gradients_do_not_outlive_their_node() -> None:
    arrived: list[weakref.ref[torch.Tensor]] = []
    alive: list[int] = []

    def note(gradient: torch.Tensor) -> None:
        alive.append(sum(reference() is not None for reference in arrived))
        arrived.append(weakref.ref(gradient))

    x = torch.ones(3, requires_grad=True)
    for _ in range(50):
        x = x.sin()
        x.register_hook(note)
    assert gradir.verify(x.sum())
    assert len(alive) == 50
    assert max(alive) < 5


def test_the_engine_is_asked_for_its_nodes_and_not_for_the_operations_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(*(layer for _ in range(10) for layer in (nn.Linear(4, 4), nn.GELU(), nn.LayerNorm(4))))
    stop, events = private.stop_profile, []

    def stopped():
        threads = stop()
        events.extend(event for thread in threads for event in thread)
        return threads

    monkeypatch.setattr(private, "stop_profile", stopped)
    found = gradir.verify(model(torch.ones(2, 4)).sum(), model=model)
    assert found.mismatches == ()
    # One begins, one ends; there would be ten for each node.
    assert found.nodes * 2 <= len(events) <= found.nodes * 2 + 10
    with torch.profiler.profile() as profile:
        torch.ones(2).exp()
    assert "aten::exp" in {event.name for event in profile.events()}
