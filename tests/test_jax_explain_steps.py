"""Explaining steps of training, arrays that a function captures, and loops without a reverse mode."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

jax = pytest.importorskip("jax")

import equinox as eqx  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from flax import linen, nnx  # noqa: E402
from flax.training.train_state import TrainState  # noqa: E402
from jax import lax  # noqa: E402

import gradir  # noqa: E402
from gradir.explanations.model import Explanation  # noqa: E402

P = {"enc": jnp.ones((3, 2)), "dec": jnp.ones((2, 1))}
X = jnp.arange(12.0).reshape(4, 3) / 12
Y = jnp.ones((4, 1))
OPTIMIZER = optax.adam(1e-2)
STATE = OPTIMIZER.init(P)
S = jax.ShapeDtypeStruct


def loss(p: Any, x: Any, y: Any) -> Any:
    hidden = lax.stop_gradient(jnp.tanh(x @ p["enc"]))
    return jnp.mean((hidden @ p["dec"] - y) ** 2)


MADE_BEFORE = jax.value_and_grad(loss)


def updated(p: Any, state: Any, gradient: Any) -> Any:
    updates, state = OPTIMIZER.update(gradient, state)
    return optax.apply_updates(p, updates), state


def plain(p: Any, state: Any, x: Any, y: Any) -> Any:
    return updated(p, state, jax.grad(loss)(p, x, y))


@jax.jit
def compiled(p: Any, state: Any, x: Any, y: Any) -> Any:
    value, gradient = MADE_BEFORE(p, x, y)
    return *updated(p, state, gradient), value


def by_vjp(p: Any, state: Any, x: Any, y: Any) -> Any:
    value, pull = jax.vjp(lambda p: loss(p, x, y), p)
    return updated(p, state, pull(jnp.ones_like(value))[0])


@jax.jit
def adversarial(p: Any, state: Any, x: Any, y: Any) -> Any:
    noise = jnp.sign(jax.grad(loss, argnums=1)(p, x, y))
    return updated(p, state, jax.grad(lambda p: loss(p, x + 0.1 * noise, y))(p))


@jax.jit
def accumulating(p: Any, state: Any, x: Any, y: Any) -> Any:
    def add(total: Any, both: Any) -> Any:
        return jax.tree.map(jnp.add, total, jax.grad(loss)(p, *both)), None

    total, _ = lax.scan(add, jax.tree.map(jnp.zeros_like, p), (x[None], y[None]))
    return updated(p, state, total)


def of_each_example(p: Any, state: Any, x: Any, y: Any) -> Any:
    each = jax.vmap(jax.grad(lambda p, x, y: loss(p, x[None], y[None])), (None, 0, 0))(p, x, y)
    return updated(p, state, jax.tree.map(lambda gradient: gradient.mean(0), each))


def with_aux(p: Any, state: Any, x: Any, y: Any) -> Any:
    (_, seen), gradient = jax.value_and_grad(lambda p: (loss(p, x, y), x), has_aux=True)(p)
    return updated(p, state, gradient), seen


STEPS = [plain, compiled, by_vjp, adversarial, accumulating, of_each_example, with_aux]


def told(found: Explanation) -> list[tuple[str, str, tuple[str, ...], str]]:
    return [
        (each.kind, each.level, each.names, "" if each.source is None else each.source.function)
        for each in found.causes
        if each.kind != "inner_gradient"
    ]


@pytest.mark.parametrize("is_abstract", [False, True], ids=["arrays", "shapes"])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_of_a_step_the_loss_inside_is_explained(step: Callable[..., Any], is_abstract: bool) -> None:
    args = (P, STATE, X, Y)
    given = jax.tree.map(lambda leaf: S(leaf.shape, leaf.dtype), args) if is_abstract else args
    before = sys.getprofile()
    found = gradir.explain(step, *given)
    assert sys.getprofile() is before
    assert found.statuses == {"dec": "reached", "enc": "cut"}
    assert not np.any(jax.grad(loss)(P, X, Y)["enc"])
    note, *_ = found.causes
    assert (note.kind, note.level, note.op) == ("inner_gradient", "note", step.__name__)
    assert note.source is not None
    assert note.source.file == "tests/test_jax_explain_steps.py"
    assert told(found) == [("stop_gradient", "error", ("enc",), "loss")]


def test_the_loss_gets_the_arguments_that_the_step_gives_it() -> None:
    def spoilt(p: Any, x: Any) -> Any:
        return jnp.sqrt(x @ p["enc"]).sum()

    @jax.jit
    def step(p: Any, x: Any) -> Any:
        return jax.tree.map(lambda p, g: p - g, p, jax.grad(spoilt)(p, x * 0))

    found = gradir.explain(step, {"enc": P["enc"]}, X)
    assert found.statuses == {"enc": "nonfinite"}
    assert told(found) == [("nonfinite", "error", ("enc",), "spoilt")]
    assert "takes a gradient itself: gradir explains `spoilt`, which it differentiates" in found.causes[0].text


def test_a_step_of_modules_is_explained_by_their_loss() -> None:
    class Net(nnx.Module):
        def __init__(self) -> None:
            self.a = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
            self.b = nnx.Linear(2, 1, rngs=nnx.Rngs(0))

        def __call__(self, x: Any) -> Any:
            return self.b(lax.stop_gradient(self.a(x)))

    @nnx.jit
    def step(model: Any, x: Any) -> Any:
        return nnx.value_and_grad(lambda model, x: model(x).sum())(model, x)

    found = gradir.explain(step, Net(), X)
    assert found.statuses == {"a.bias": "cut", "a.kernel": "cut", "b.bias": "reached", "b.kernel": "reached"}
    assert told(found) == [("stop_gradient", "error", ("a.bias", "a.kernel"), "Net.__call__")]
    assert found.causes[0].kind == "inner_gradient"


def test_a_step_of_equinox_is_explained_by_its_loss() -> None:
    @eqx.filter_value_and_grad
    def of_model(model: Any, x: Any) -> Any:
        return jax.vmap(model)(x * 0).sum()

    @eqx.filter_jit
    def step(model: Any, x: Any) -> Any:
        value, gradient = of_model(model, x)
        return eqx.apply_updates(model, gradient), value

    found = gradir.explain(step, eqx.nn.Linear(3, 2, key=jax.random.key(0)), X)
    assert found.statuses == {"bias": "reached", "weight": "zero"}
    assert [each.kind for each in found.causes] == ["inner_gradient", "factor"]


def test_a_state_of_training_is_explained_by_its_parameters() -> None:
    class Net(linen.Module):
        @linen.compact
        def __call__(self, x: Any) -> Any:
            return linen.Dense(1, name="b")(lax.stop_gradient(linen.Dense(2, name="a")(x)))

    net = Net()
    state = TrainState.create(apply_fn=net.apply, params=net.init(jax.random.key(0), X)["params"], tx=optax.sgd(0.1))

    @jax.jit
    def step(state: Any, x: Any) -> Any:
        gradient = jax.grad(lambda params: state.apply_fn({"params": params}, x).sum())(state.params)
        return state.apply_gradients(grads=gradient)

    found = gradir.explain(step, state, X)
    assert found.statuses == {"a.bias": "cut", "a.kernel": "cut", "b.bias": "reached", "b.kernel": "reached"}


LOSSES: list[Callable[[Any], Any]] = [
    lambda p: ((jax.grad(lambda x: jnp.tanh(x @ p["enc"] @ p["dec"]).sum())(X)) ** 2).sum(),
    lambda p: loss_of(jax.tree.map(lambda p, g: p - g, p, jax.grad(loss_of)(p))),
    lambda p: (X @ p["enc"] @ p["dec"]).sum(),
]


def loss_of(p: Any) -> Any:
    return (jnp.tanh(X @ p["enc"]) @ p["dec"]).sum()


@pytest.mark.parametrize("fn", LOSSES, ids=["penalty", "adaptation", "plain"])
def test_a_loss_that_takes_a_gradient_is_itself_explained(fn: Callable[[Any], Any]) -> None:
    found = gradir.explain(fn, P)
    assert (found.level, found.causes) == ("none", ())
    assert all(np.any(each) for each in jax.tree.leaves(jax.grad(fn)(P)))


def test_a_gradient_that_is_asked_for_in_another_way_is_not_guessed(monkeypatch: pytest.MonkeyPatch) -> None:
    from gradir.frontends.jax import steps

    monkeypatch.setattr(steps, "_READERS", {})
    found = gradir.explain(plain, P, STATE, X, Y)
    assert found.causes[0].text.endswith(
        "gradir cannot find the function that it differentiates, and explains its result"
    )


# Arrays of outside.

OTHER = {"w": jnp.ones((3, 2))}
SINGLE = jnp.full((3, 2), 2.0)
LINEAR = eqx.nn.Linear(3, 2, key=jax.random.key(0))


def helper(x: Any) -> Any:
    return x @ P["enc"]


def by_helper(p: Any) -> Any:
    return helper(X).sum() + p["dec"].sum()


def by_closure(table: Any) -> Callable[[Any], Any]:
    return lambda p: (X @ table["w"]).sum() + p["dec"].sum()


def by_module(p: Any) -> Any:
    return jax.jit(jax.vmap(LINEAR))(X).sum() + p["dec"].sum()


def by_name(p: Any) -> Any:
    return (X @ SINGLE).sum() + p["dec"].sum()


@pytest.mark.parametrize(
    ("fn", "level", "names"),
    [
        (by_helper, "error", ("enc",)),
        (partial(by_helper), "error", ("enc",)),
        (jax.jit(by_helper), "error", ("enc",)),
        (by_closure({"w": jnp.ones((3, 4))}), "note", ("table.w",)),
        (by_module, "note", ("LINEAR.weight", "LINEAR.bias")),
        (by_name, "note", ("SINGLE",)),
    ],
    ids=["leaf", "partial", "compiled", "closure", "module", "array"],
)
def test_an_array_of_outside_is_reported(fn: Callable[[Any], Any], level: str, names: tuple[str, ...]) -> None:
    found = gradir.explain(fn, P)
    assert not np.any(jax.grad(fn)(P)["enc"])
    assert found.statuses == {"dec": "reached", "enc": "unused"}
    (cause,) = [each for each in found.causes if each.kind == "captured"]
    assert (cause.level, cause.names) == (level, names)
    assert cause.source is not None
    assert cause.source.file == "tests/test_jax_explain_steps.py"


def test_data_of_outside_is_not_reported() -> None:
    found = gradir.explain(lambda p: ((X @ p["enc"] @ p["dec"] - Y) ** 2).sum() * jnp.float32(2), P)
    assert (found.level, found.causes) == ("none", ())


def test_a_start_that_is_the_parameters_themselves_is_no_alarm() -> None:
    def kept_near(p: Any) -> Any:
        return loss_of(p) + sum(((p[name] - P[name]) ** 2).sum() for name in p)

    found = gradir.explain(kept_near, P)
    assert found.level == "none"
    assert [(each.kind, each.level, each.names) for each in found.causes] == [("captured", "note", ("P.dec", "P.enc"))]


# Loops without a reverse mode.


def by_while(p: Any) -> Any:
    return lax.while_loop(lambda c: c.sum() < 10, lambda c: c * p["enc"].sum() + 1, X).sum() + p["dec"].sum()


@jax.jit
def by_bounds(p: Any) -> Any:
    return lax.fori_loop(0, p["enc"].argmax(), lambda i, c: c * p["enc"].sum(), 1.0) + p["dec"].sum()


def inside_scan(p: Any) -> Any:
    def once(c: Any, _: Any) -> Any:
        return lax.while_loop(lambda c: c < 10, lambda c: c * p["enc"].sum() + 1, c), None

    return lax.scan(once, 1.0, None, length=2)[0] + p["dec"].sum()


@pytest.mark.parametrize("is_abstract", [False, True], ids=["arrays", "shapes"])
@pytest.mark.parametrize("fn", [by_while, by_bounds, inside_scan])
def test_a_while_loop_on_a_path_is_reported_with_its_line(fn: Callable[[Any], Any], is_abstract: bool) -> None:
    with pytest.raises(ValueError, match="Reverse-mode differentiation does not work"):
        jax.grad(fn)(P)
    found = gradir.explain(fn, jax.tree.map(lambda leaf: S(leaf.shape, leaf.dtype), P) if is_abstract else P)
    assert found.statuses == {"dec": "error", "enc": "error"}
    (cause,) = found.causes
    assert (cause.kind, cause.level, cause.op, cause.names) == ("while_loop", "error", "while_loop", ("enc",))
    assert cause.source is not None
    assert (
        cause.source.function == ("inside_scan.<locals>.once" if fn is inside_scan else fn.__name__).rpartition(">.")[2]
    )
    assert "jax.lax.scan" in cause.advice
    assert found.by_node is None


def test_a_loop_whose_bounds_are_numbers_where_nothing_is_compiled_is_reported_so() -> None:
    fn = by_bounds.__wrapped__
    assert np.any(jax.grad(fn)({**P, "enc": P["enc"].at[0, 1].set(2.0)})["enc"])
    found = gradir.explain(fn, P)
    assert found.statuses == {"dec": "reached", "enc": "reached"}
    assert [(each.kind, each.level, each.detail) for each in found.causes] == [
        ("while_loop", "info", "but only where it is compiled, as by jax.jit")
    ]


def test_a_while_loop_beside_a_path_is_no_alarm() -> None:
    def fn(p: Any) -> Any:
        return loss_of(p) * lax.while_loop(lambda c: c < 10, lambda c: c + 1, X.sum())

    assert gradir.explain(fn, P).level == "none"
    assert np.any(jax.grad(fn)(P)["enc"])


def test_a_callback_without_a_derivative_is_reported_with_the_reason() -> None:
    def fn(p: Any) -> Any:
        return jax.pure_callback(lambda x: x, S((4, 2), jnp.float32), X @ p["enc"]).sum() + p["dec"].sum()

    with pytest.raises(ValueError, match="Pure callbacks do not support JVP"):
        jax.grad(fn)(P)
    (cause,) = gradir.explain(fn, P).causes
    assert (cause.kind, cause.op, cause.names) == ("raised", "pure_callback", ("enc",))
    assert cause.detail.startswith("Pure callbacks do not support JVP")
    assert "jax.custom_vjp" in cause.advice
