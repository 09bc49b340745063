"""Backwards inside a backward: what is counted, what parameters behind them are said to be, and what a run shows."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from nested_models import HALVES, MODELS, UNUSED, Conditional, Deep, Reversed  # noqa: E402
from tensors import leaf  # noqa: E402

import gradir  # noqa: E402
from gradir import registry  # noqa: E402
from gradir.cli.programs import summarize_graph  # noqa: E402

nn = torch.nn


def cuts(graph: gradir.Graph) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for cut in graph.cuts:
        found.setdefault(cut.kind, set()).update(cut.names)
    return found


def with_gradient(model: nn.Module, out: torch.Tensor) -> set[str]:
    out.sum().backward()
    return {name for name, parameter in model.named_parameters() if parameter.grad is not None}


def shown(graph: gradir.Graph) -> set[str]:
    return {name for node in graph.nodes.values() if node.role == "parameter" for name in node.names}


def check_reached(graph: gradir.Graph, model: nn.Module, out: torch.Tensor) -> set[str]:
    """A real backward reaches all that is shown, and of the rest only what is hidden."""
    reached = with_gradient(model, out)
    assert shown(graph) <= reached <= shown(graph) | cuts(graph).get("hidden", set())
    return reached


@pytest.mark.parametrize("name", MODELS)
def test_a_backward_inside_a_backward(name: str) -> None:
    make, hidden, unreached = MODELS[name]
    torch.manual_seed(0)
    model, x = make(), leaf(3, 2)
    with gradir.record(model) as rec:
        out = model(x)
    found = rec.verify(out)
    assert found.mismatches == ()
    assert found.executed == found.nodes > 0
    assert all(parameter.grad is None for parameter in model.parameters())
    graph = rec.capture(out)
    assert cuts(graph) == {kind: names for kind, names in (("hidden", hidden), ("unreached", unreached)) if names}
    check_reached(graph, model, out)


@pytest.mark.parametrize("name", MODELS)
def test_a_backward_inside_a_backward_without_a_recording(name: str) -> None:
    make, hidden, _ = MODELS[name]
    torch.manual_seed(0)
    model, x = make(), leaf(3, 2)
    out = model(x)
    assert gradir.verify(out, model=model).mismatches == ()
    graph = gradir.capture(out, model=model)
    assert cuts(graph).get("hidden", set()) >= hidden
    check_reached(graph, model, out)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_as_before_where_no_model_is_given(name: str) -> None:
    model = MODELS[name][0]()
    out = model(leaf(3, 2))
    model.zero_grad()
    assert gradir.verify(out).mismatches == ()
    assert [key for key, parameter in model.named_parameters() if parameter.grad is not None] == []


def test_only_parameters_inside_a_function_are_hidden() -> None:
    """The unused module stays unreached, and so does one whose result was detached, beside a Function that hides."""
    model = Reversed()
    model.trunk = nn.Linear(2, 2)
    x = leaf(3, 2)
    with gradir.record(model) as rec:
        out = model(x + model.trunk(x).detach())
    graph = rec.capture(out)
    assert cuts(graph) == {"hidden": HALVES, "unreached": {*UNUSED, "trunk.weight", "trunk.bias"}}
    assert summarize_graph(graph).endswith(", 4 parameters without gradient, 4 parameters hidden")


REGISTRY: list[Any] = []


class Registered(torch.autograd.Function):
    """Looks its module up where nothing that it holds leads."""

    @staticmethod
    def forward(ctx, x):
        import sys

        ctx.save_for_backward(x)
        return sys.modules[__name__].REGISTRY[0](x)

    @staticmethod
    def backward(ctx, gradient):
        import sys

        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            again = x.detach().requires_grad_()
            out = getattr(sys.modules[__name__], "REG" + "ISTRY")[0](again)
        out.backward(gradient)
        return again.grad


def test_what_ran_inside_a_function_is_hidden_wherever_it_came_from() -> None:
    model = nn.ModuleDict({"fc": nn.Sequential(nn.Linear(2, 2)), "unused": nn.Linear(2, 2)})
    REGISTRY[:] = [model["fc"]]
    x = leaf(3, 2)
    with gradir.record(model) as rec:
        out = Registered.apply(x)
        model["unused"](x)
    assert cuts(rec.capture(out)) == {"hidden": {"fc.0.weight", "fc.0.bias"}, "unreached": UNUSED}
    assert rec.verify(out).mismatches == ()


def test_what_a_hook_reaches_is_found_by_a_run_alone() -> None:
    """No hook of a node can be seen, so the graph cannot know; the run says where the gradient came from."""
    model = nn.ModuleDict({"used": nn.Linear(2, 1, bias=False), "aside": nn.Linear(2, 1, bias=False)})
    out = model["used"](torch.ones(1, 2))
    side = model["aside"](torch.ones(1, 2)).sum()
    out.register_hook(lambda _: side.backward(retain_graph=True))
    assert gradir.verify(out, model=model).mismatches == (
        "aside.weight: unreached in the graph, but got a gradient, by a backward inside this one",
    )


class Touchy:
    """Raises whatever it is asked."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class Holds(torch.autograd.Function):
    """Keeps what it is given, and needs none of it."""

    @staticmethod
    def forward(ctx, x, things):
        ctx.things = things
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2, None


def test_what_a_function_holds_is_asked_nothing() -> None:
    model = nn.Linear(2, 2)
    out = Holds.apply(leaf(2), {"a": Touchy()})
    assert cuts(gradir.capture(out, model=model)) == {"unreached": {"weight", "bias"}}
    assert gradir.verify(out, model=model).mismatches == ()


def test_a_function_that_holds_more_than_can_be_looked_through_hides_everything() -> None:
    model = nn.Linear(2, 2)
    few, many = ([[] for _ in range(count)] for count in (1_000, 400_000))
    assert cuts(gradir.capture(Holds.apply(leaf(2), few), model=model)) == {"unreached": {"weight", "bias"}}
    numbers = list(range(400_000))
    assert cuts(gradir.capture(Holds.apply(leaf(2), numbers), model=model)) == {"unreached": {"weight", "bias"}}
    assert cuts(gradir.capture(Holds.apply(leaf(2), many), model=model)) == {"hidden": {"weight", "bias"}}


def test_backwards_nested_deeper_than_one_thread_holds_them() -> None:
    found = gradir.verify(Deep.apply(leaf(2), 80).sum())
    assert found.mismatches == ()
    assert found.executed == 3


def test_a_node_that_only_an_inner_backward_runs_is_missing() -> None:
    """A hook on the outermost node runs others first; what it runs does not count for the run that is checked."""
    x = leaf(2)
    hidden = x.exp()
    out, beside = hidden.sin(), hidden.cos()
    out.register_hook(lambda gradient: torch.autograd.grad(beside, x, gradient, retain_graph=True)[0])
    live = registry.frontend("torch").capture(gradir.CaptureRequest(target=out))
    assert live.verify().mismatches == ()
    wrong = {beside.grad_fn if fn is out.grad_fn else fn: node_id for fn, node_id in live.grad_fns.items()}
    assert live._replace(grad_fns=wrong).verify().mismatches == (
        "sin:1: the engine did not run it",
        "the engine ran 1 more SinBackward0 than were captured",
    )


def test_torch_cond() -> None:
    if not hasattr(torch, "cond"):
        pytest.skip("this torch has no cond")
    model = Conditional()
    out = model(leaf(1, 2))
    found = gradir.verify(out, model=model)
    assert found.mismatches == ()
    graph = gradir.capture(out, model=model)
    assert with_gradient(model, out) <= shown(graph) | cuts(graph).get("hidden", set())


def test_reformer() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.ReformerConfig(
        vocab_size=20,
        hidden_size=8,
        attention_head_size=4,
        num_attention_heads=2,
        feed_forward_size=8,
        attn_layers=["local", "lsh"],
        axial_pos_shape=(2, 4),
        axial_pos_embds_dim=(4, 4),
        lsh_attn_chunk_length=4,
        local_attn_chunk_length=4,
        num_buckets=2,
        num_hashes=1,
        max_position_embeddings=8,
    )
    torch.manual_seed(0)
    model = transformers.ReformerModel(config).train()
    with gradir.record(model) as rec:
        out = model(torch.arange(8)[None]).last_hidden_state
    assert rec.verify(out).mismatches == ()
    graph = rec.capture(out)
    found = cuts(graph)
    assert found.get("hidden")
    reached = check_reached(graph, model, out)
    assert reached.isdisjoint(found.get("unreached", set()))
    # A module that ran and has parameters is in the graph, or behind the reversible layers.
    ran = {path for path, scope in graph.scopes.items() if scope.calls}
    assert not [cut for cut in graph.cuts if cut.kind == "unreached" and cut.scope in ran]
