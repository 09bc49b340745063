"""The functions of gradir with functions and modules of JAX: what they take, and what they refuse in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

for package in ("jax", "flax", "equinox"):
    pytest.importorskip(package)

import equinox as eqx  # noqa: E402
import flax.linen as nn  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import jax_told  # noqa: E402
import numpy as np  # noqa: E402
from flax import nnx  # noqa: E402
from jax_cases.model import B, S, W, X, f32, i32  # noqa: E402

import gradir  # noqa: E402
from gradir.errors import CaptureError, GradirError  # noqa: E402

P = {"w": jnp.full((8, 8), 0.1)}
ARRAY = jnp.ones((4, 8))


def loss(p: Any, x: Any) -> Any:
    return jnp.sin(x @ p["w"]).sum()


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(GradirError) as raised:
        call()
    text = str(raised.value)
    assert "\n" not in text
    return text


def test_a_function_that_depends_on_none_of_its_leaves_is_a_finding() -> None:
    found = gradir.explain(lambda w, x: jnp.ones(3).sum(), W, W, argnums=(0, 1))
    assert (found.level, set(found.statuses.values())) == ("error", {"unused"})
    assert gradir.explain(lambda w, x: w.sum(), W, W, argnums=(0, 1)).level == "info"


def test_arrays_shapes_and_both_give_the_same_graph() -> None:
    graph = gradir.capture(loss, P, ARRAY)
    assert gradir.capture(loss, {"w": W}, X) == gradir.capture(loss, P, X) == graph
    assert gradir.capture(loss, {"w": np.full((8, 8), 0.1, np.float32)}, X, frontend="jax") == graph


def test_nothing_runs() -> None:
    ran = []

    def noisy(p: Any, x: Any) -> Any:
        jax.debug.callback(lambda value: ran.append(float(value)), x.sum())
        return loss(p, x)

    gradir.capture(noisy, P, ARRAY)
    jax.effects_barrier()
    assert ran == []


def test_the_frontend_may_be_named() -> None:
    assert gradir.capture(loss, P, ARRAY, frontend="jax") == gradir.capture(loss, P, ARRAY)
    assert refused(lambda: gradir.capture(loss, P, ARRAY, frontend="none")).startswith("unknown front-end 'none'")


def test_functions_that_jax_has_wrapped() -> None:
    plain = jax_told.ops(gradir.capture(loss, P, ARRAY))
    for wrapped in (jax.jit(loss), jax.checkpoint(loss), jax.named_call(loss, name="loss")):
        graph = gradir.capture(wrapped, P, ARRAY)
        assert jax_told.ops(graph) == plain
        assert (jax_told.names(graph, "parameter"), jax_told.names(graph, "input")) == ("w", "x")


def test_the_gradient_of_a_gradient() -> None:
    def norm(p: Any, x: Any) -> Any:
        return (jax.grad(loss)(p, x)["w"] ** 2).sum()

    graph = gradir.capture(norm, P, ARRAY)
    assert "transpose.jvp" in {node.attrs.get("phase") for node in graph.nodes.values()}
    assert gradir.verify(norm, P, ARRAY).mismatches == ()


@pytest.mark.parametrize(
    ("argnums", "reached", "beside"),
    [
        (0, "w", "x"),
        (1, "x", "p.w"),
        (-1, "x", "p.w"),
        ((0, 1), "p.w x", ""),
        ((1, 0), "p.w x", ""),
        ((0,), "w", "x"),
        ([1], "x", "p.w"),
    ],
)
def test_argnums_are_those_of_grad(argnums: Any, reached: str, beside: str) -> None:
    graph = gradir.capture(loss, P, ARRAY, argnums=argnums)
    assert (jax_told.names(graph, "parameter"), jax_told.names(graph, "input")) == (reached, beside)
    assert gradir.verify(loss, P, ARRAY, argnums=argnums)


def test_has_aux() -> None:
    def with_aux(p: Any, x: Any) -> Any:
        h = x @ p["w"]
        return h.sum(), {"acc": jnp.argmax(h), "h": h, "text": "free"}

    graph = gradir.capture(with_aux, P, ARRAY, has_aux=True)
    assert jax_told.ops(graph) == "dot_general reduce_sum"
    assert gradir.verify(with_aux, P, ARRAY, has_aux=True)
    assert gradir.explain(with_aux, P, ARRAY, has_aux=True).statuses == {"w": "reached"}


class Linen(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.Dense(2, name="fc")(x)


class Nnx(nnx.Module):
    def __init__(self) -> None:
        self.fc = nnx.Linear(8, 2, rngs=nnx.Rngs(0))

    def __call__(self, x: Any) -> Any:
        return self.fc(x)


def test_a_module_is_captured_on_its_inputs() -> None:
    linen = Linen()
    variables = linen.init(jax.random.key(0), ARRAY)
    for graph, names in (
        (gradir.capture(linen, variables, ARRAY), "fc.bias fc.kernel"),
        (gradir.capture(Nnx(), ARRAY), "fc.bias fc.kernel"),
        (gradir.capture(eqx.nn.MLP(8, 2, 4, 1, key=jax.random.key(0)), jnp.ones(8)), None),
    ):
        if names is not None:
            assert jax_told.names(graph, "parameter") == names
            assert graph.scopes["fc"].class_name in {"Dense", "Linear"}
        assert graph.scopes[""].class_name in {"Linen", "Nnx", "MLP"}


def test_a_capture_leaves_modules_as_they_were() -> None:
    model = Nnx()
    before, call = dict(vars(model.fc)), Nnx.__call__
    gradir.capture(model, ARRAY)
    assert vars(model.fc).keys() == before.keys()
    assert Nnx.__call__ is call
    assert nnx.Linear.__call__.__qualname__ == "Linear.__call__"
    assert not hasattr(nnx.Linear.__call__, "__wrapped__")


def test_a_capture_that_fails_leaves_modules_as_they_were() -> None:
    class Wrong(nnx.Module):
        def __init__(self) -> None:
            self.fc = nnx.Linear(8, 2, rngs=nnx.Rngs(0))

        def __call__(self, x: Any) -> Any:
            self.fc(x)
            raise ZeroDivisionError

    model, call = Wrong(), nnx.Linear.__call__
    with pytest.raises(ZeroDivisionError):
        gradir.capture(model, ARRAY)
    assert nnx.Linear.__call__ is call


def test_values_of_jax_have_no_graph() -> None:
    text = "JAX has no graph of an object of type ArrayImpl; pass the function that computes it"
    assert refused(lambda: gradir.capture(loss(P, ARRAY))).startswith(text)


def test_nobody_knows_a_function_without_arguments() -> None:
    assert "is called without an argument" in refused(lambda: gradir.capture(loss, frontend="jax"))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: gradir.record(frontend="jax"), "front-end 'jax' cannot record"),
        (lambda: gradir.record(flow=True, frontend="jax"), "front-end 'jax' cannot record"),
        (lambda: gradir.record(Nnx(), frontend="jax"), "front-end 'jax' cannot record"),
        (lambda: gradir.capture(loss, P, ARRAY, model=Nnx()), "front-end 'jax' cannot name tensors by a model"),
        (lambda: gradir.capture(loss, P, ARRAY, params={"w": ARRAY}), "front-end 'jax' cannot name tensors by a model"),
        (lambda: gradir.capture(loss, P, ARRAY, cost="flops"), "front-end 'jax' cannot count the cost of operations"),
        (lambda: gradir.capture(loss, P, ARRAY, argnums=2), "argnums is 2, and the function is called with 2"),
        (lambda: gradir.capture(loss, P, ARRAY, argnums=()), "argnums is ()"),
        (lambda: gradir.explain(loss, {"w": W}, X, values=True), "gradients need values of the arguments"),
    ],
)
def test_requests_that_jax_does_not_support_are_one_line(call: Callable[[], object], words: str) -> None:
    assert refused(call).startswith(words)


def test_verify_counts_comparisons() -> None:
    result = gradir.verify(loss, P, ARRAY)
    assert result
    assert (result.nodes, result.edges, result.mismatches) == (3, 4, ())


def test_explain_lists_each_leaf_and_each_cut() -> None:
    def partly(p: Any, x: Any) -> Any:
        target = jax.lax.stop_gradient(x @ p["target"])
        index = jnp.argmax(x @ p["chosen"])
        return ((x @ p["w"] - target) ** 2).sum() + p["table"][index % 8] * p["zero"] * 0 + p["n"]

    given = {"w": W, "target": W, "chosen": W, "table": B, "zero": S((), f32), "n": S((), i32), "unused": B}
    found = gradir.explain(partly, given, X)
    assert found.statuses == {
        "chosen": "cut",
        "n": "frozen",
        "table": "reached",
        "target": "cut",
        "unused": "unused",
        "w": "reached",
        "zero": "reached",
    }
    first = partly.__code__.co_firstlineno
    told = {(cause.kind, cause.op, cause.names, cause.source and cause.source.line - first) for cause in found.causes}
    assert told == {
        ("stop_gradient", "stop_gradient", ("target",), 1),
        ("nondifferentiable", "argmax", ("chosen",), 2),
        ("unused", "", ("unused",), None),
        ("integer", "", ("n",), None),
    }


def test_explain_looks_at_values_where_there_are_some() -> None:
    def partly(p: Any) -> Any:
        return (p["a"] * 0).sum() + jnp.sqrt(p["b"]).sum() + p["c"].sum()

    found = gradir.explain(partly, {"a": jnp.ones(2), "b": jnp.zeros(2), "c": jnp.ones(2)})
    assert found.statuses == {"a": "zero", "b": "nonfinite", "c": "reached"}
    assert found.gradients["c"] == pytest.approx(2**0.5)
    shapes = {name: S((2,), f32) for name in "abc"}
    assert set(gradir.explain(partly, shapes).statuses.values()) == {"reached"}
    assert set(gradir.explain(partly, {name: jnp.ones(2) for name in "abc"}, values=False).statuses.values()) == {
        "reached"
    }


def test_explain_names_a_function_whose_gradient_ends_everywhere() -> None:
    found = gradir.explain(lambda p, x: jnp.floor(x @ p["w"]).sum(), {"w": W}, X)
    assert found.statuses == {"w": "cut"}
    assert [(cause.kind, cause.op) for cause in found.causes] == [("nondifferentiable", "floor")]


def test_a_capture_inside_of_jit_is_a_capture() -> None:
    graphs = []

    @jax.jit
    def step(p: Any, x: Any) -> Any:
        graphs.append(gradir.capture(loss, p, x))
        return loss(p, x)

    step(P, ARRAY)
    assert jax_told.ops(graphs[0]) == "dot_general sin reduce_sum"


def test_an_old_jax_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from gradir.frontends.jax.frontend import JaxFrontend

    monkeypatch.setattr(jax, "__version_info__", (0, 6, 2))
    monkeypatch.setattr(jax, "__version__", "0.6.2")
    with pytest.raises(CaptureError, match=r"capturing needs jax 0.7 or later, and this is 0.6.2: update it"):
        JaxFrontend()
