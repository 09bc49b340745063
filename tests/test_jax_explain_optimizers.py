"""Steps of JAX whose optimizer freezes leaves, moves nothing, or adds gradients unchanged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import optax  # noqa: E402
from flax.training.train_state import TrainState  # noqa: E402
from jax import lax  # noqa: E402

import gradir  # noqa: E402
from gradir.explanations.model import Explanation  # noqa: E402

P = {"enc": jnp.ones((3, 2)), "dec": jnp.ones((2, 1))}
X = jnp.arange(12.0).reshape(4, 3) / 12
Y = jnp.ones((4, 1))
OPTIMIZER = optax.adam(1e-2)
S = jax.ShapeDtypeStruct


def loss(p: Any, x: Any, y: Any) -> Any:
    hidden = lax.stop_gradient(jnp.tanh(x @ p["enc"]))
    return jnp.mean((hidden @ p["dec"] - y) ** 2)


def told(found: Explanation) -> list[tuple[str, str, tuple[str, ...], str]]:
    return [
        (each.kind, each.level, each.names, "" if each.source is None else each.source.function)
        for each in found.causes
        if each.kind != "inner_gradient"
    ]


def loss_of(p: Any) -> Any:
    return (jnp.tanh(X @ p["enc"]) @ p["dec"]).sum()


# What no optimizer moves.


def of_labels(p: Any) -> Any:
    return {name: "trained" if name == "dec" else "frozen" for name in p}


FREEZING: dict[str, Any] = {
    "labels": optax.multi_transform({"trained": optax.adam(0.1), "frozen": optax.set_to_zero()}, of_labels),
    "mask": optax.chain(
        optax.sgd(0.1), optax.masked(optax.set_to_zero(), lambda p: {name: name == "enc" for name in p})
    ),
    "partition": optax.partition({"trained": optax.sgd(0.1, 0.9), "frozen": optax.set_to_zero()}, of_labels),
    "no state": optax.multi_transform({"trained": optax.sgd(0.1), "frozen": optax.set_to_zero()}, of_labels),
    "clipped": optax.chain(
        optax.clip(1.0), optax.partition({"trained": optax.sgd(0.1), "frozen": optax.set_to_zero()}, of_labels)
    ),
}
IS_TRAINED = {"enc": False, "dec": True}


def step_of(optimizer: Any, loss: Callable[..., Any]) -> Callable[..., Any]:
    @jax.jit
    def step(p: Any, state: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(p)
        updates, state = optimizer.update(gradient, state, p)
        return optax.apply_updates(p, updates), state, value

    return step


@pytest.mark.parametrize("is_abstract", [False, True], ids=["arrays", "shapes"])
@pytest.mark.parametrize("optimizer", FREEZING.values(), ids=FREEZING)
def test_a_leaf_outside_the_optimizer_is_no_alarm(optimizer: Any, is_abstract: bool) -> None:
    def given() -> Any:
        args = (P, optimizer.init(P))
        return jax.tree.map(lambda leaf: S(leaf.shape, leaf.dtype), args) if is_abstract else args

    new, *_ = step_of(optimizer, loss_of)(P, optimizer.init(P))
    assert {name for name in P if np.array_equal(new[name], P[name])} == {"enc"}
    found = gradir.explain(step_of(optimizer, loss_of), *given())
    assert (found.level, found.statuses) == ("none", {"dec": "reached", "enc": "reached"})
    assert [(each.kind, each.level, each.names) for each in found.causes[1:]] == [
        ("not_in_optimizer", "note", ("enc",))
    ]
    found = gradir.explain(step_of(optimizer, lambda p: loss(p, X, Y)), *given())
    assert found.statuses == {"dec": "reached", "enc": "cut"}
    assert told(found) == [("stop_gradient", "note", ("enc",), "loss")]


@pytest.mark.parametrize("optimizer", [optax.sgd(0.1), optax.adam(0.1), optax.adamw(0.1)])
def test_a_leaf_inside_the_optimizer_is_an_alarm(optimizer: Any) -> None:
    found = gradir.explain(step_of(optimizer, lambda p: loss(p, X, Y)), P, optimizer.init(P))
    assert found.level == "error"
    found = gradir.explain(step_of(optimizer, loss_of), P, optimizer.init(P))
    assert (found.level, [each.kind for each in found.causes]) == ("none", ["inner_gradient"])


WARM_UP = optax.warmup_cosine_decay_schedule(0.0, 0.1, 10, 100)
ZEROED = {
    "rate": optax.sgd(0.0),
    "adaptive": optax.adamw(0.0),
    "norm": optax.chain(optax.clip_by_global_norm(0.0), optax.adam(0.1)),
    "injected": optax.inject_hyperparams(optax.adam)(learning_rate=0.0),
    "warm-up": optax.chain(optax.clip_by_global_norm(1.0), optax.adam(WARM_UP)),
    "injected warm-up": optax.inject_hyperparams(optax.sgd)(learning_rate=WARM_UP, momentum=0.0),
}


@pytest.mark.parametrize("name", ZEROED)
def test_an_optimizer_that_multiplies_by_a_constant_zero_is_an_error(name: str) -> None:
    found = gradir.explain(step_of(ZEROED[name], loss_of), P, ZEROED[name].init(P))
    causes = [(cause.kind, cause.level, cause.names) for cause in found.causes if cause.kind != "inner_gradient"]
    assert causes == ([] if "warm-up" in name else [("no_movement", "error", ("dec", "enc"))])


MANUAL: dict[str, Callable[[Any, Any], Any]] = {
    "sub": lambda p, g: p - g,
    "rate": lambda p, g: p - 0.1 * g,
    "sign": lambda p, g: p + -jnp.sign(g),
    "sum": lambda p, g: p + g,
    "applied": optax.apply_updates,
}


@pytest.mark.parametrize("update", MANUAL.values(), ids=MANUAL)
def test_a_step_that_treats_all_leaves_alike_is_still_an_alarm(update: Callable[[Any, Any], Any]) -> None:
    def step(p: Any) -> Any:
        return jax.tree.map(update, p, jax.grad(loss)(p, X, Y))

    assert told(gradir.explain(step, P)) == [("stop_gradient", "error", ("enc",), "loss")]


def test_a_gradient_that_equals_its_leaf_is_not_taken_for_a_leaf_that_stays() -> None:
    p = {**P, "bias": jnp.ones(())}

    @jax.jit
    def gradients(p: Any) -> Any:
        return jax.value_and_grad(lambda p: loss(p, X, Y) + p["bias"])(p)

    assert gradients(p)[1]["bias"] == p["bias"]
    assert told(gradir.explain(gradients, p)) == [("stop_gradient", "error", ("enc",), "loss")]


def test_a_leaf_that_a_step_does_not_touch_is_no_alarm() -> None:
    def step(p: Any) -> Any:
        return {**p, "dec": p["dec"] - 0.1 * jax.grad(loss)(p, X, Y)["dec"]}

    assert told(gradir.explain(step, P)) == [("stop_gradient", "note", ("enc",), "loss")]


# What an optimizer passes on as it is.

PASSING: dict[str, Any] = {
    "masked": optax.masked(optax.sgd(0.1), IS_TRAINED),
    "masked with a state": optax.masked(optax.adam(0.1), IS_TRAINED),
    "identity": optax.partition({"trained": optax.adamw(0.1), "frozen": optax.identity()}, of_labels),
    "before a mask": optax.chain(optax.masked(optax.scale_by_adam(), IS_TRAINED), optax.masked(OPTIMIZER, IS_TRAINED)),
}


@pytest.mark.parametrize("is_abstract", [False, True], ids=["arrays", "shapes"])
@pytest.mark.parametrize("optimizer", PASSING.values(), ids=PASSING)
def test_a_gradient_that_is_added_as_it_is_is_an_error(optimizer: Any, is_abstract: bool) -> None:
    args = (P, optimizer.init(P))
    step, gradient = step_of(optimizer, loss_of), jax.grad(loss_of)(P)
    new = step(*args)[0]
    assert np.allclose(new["enc"], P["enc"] + gradient["enc"])
    assert loss_of({**P, "enc": new["enc"]}) > loss_of(P) > loss_of({**P, "dec": new["dec"]})
    found = gradir.explain(step, *(jax.tree.map(lambda leaf: S(leaf.shape, leaf.dtype), args) if is_abstract else args))
    assert found.statuses == {"dec": "reached", "enc": "reached"}
    assert told(found) == [("raw_update", "error", ("enc",), "step")]
    assert "optax.masked" in found.causes[1].advice
    # A gradient of zeros moves nothing, which may be why it is masked.
    found = gradir.explain(step_of(optimizer, lambda p: loss(p, X, Y)), *args)
    assert told(found) == [("stop_gradient", "note", ("enc",), "loss")]


def test_leaves_whose_gradients_one_line_adds_as_they_are_are_one_error() -> None:
    p = {**P, "bias": jnp.ones(())}
    optimizer = optax.masked(optax.sgd(0.1), {**IS_TRAINED, "bias": False})
    found = gradir.explain(step_of(optimizer, lambda p: loss_of(p) + p["bias"] ** 2), p, optimizer.init(p))
    assert told(found) == [("raw_update", "error", ("bias", "enc"), "step")]


def test_a_gradient_that_the_state_of_training_adds_as_it_is_is_an_error() -> None:
    state = TrainState.create(apply_fn=loss_of, params=P, tx=PASSING["masked with a state"])

    @jax.jit
    def step(state: Any) -> Any:
        value, gradient = jax.value_and_grad(state.apply_fn)(state.params)
        return state.apply_gradients(grads=gradient), {"loss": value}

    assert told(gradir.explain(step, state)) == [("raw_update", "error", ("enc",), "step")]


def climbing(p: Any) -> Any:
    """Dual ascent: of a multiplier, the gradient itself is the step."""
    gradient = jax.grad(loss_of)(p)
    return {"enc": p["enc"] + gradient["enc"], "dec": p["dec"] - 0.1 * gradient["dec"]}


def applied(p: Any) -> Any:
    return optax.apply_updates(p, jax.grad(loss_of)(p))


def scaled_behind(p: Any) -> Any:
    optimizer = optax.chain(optax.masked(optax.clip(1.0), IS_TRAINED), optax.scale(-0.1))
    return optax.apply_updates(p, optimizer.update(jax.grad(loss_of)(p), optimizer.init(p))[0])


@pytest.mark.parametrize("step", [climbing, applied, scaled_behind])
def test_a_gradient_that_may_be_meant_to_be_added_is_no_alarm(step: Callable[[Any], Any]) -> None:
    found = gradir.explain(step, P)
    assert (found.level, told(found)) == ("none", [])


# An optimizer that moves nothing.

OF_DEC = optax.partition({"trained": optax.sgd(0.1), "frozen": optax.set_to_zero()}, of_labels)
DEAD = {**P, "dec": -P["dec"]}
IDLE: dict[str, tuple[Any, Callable[[Any], Any], list[tuple[str, str, tuple[str, ...]]]]] = {
    "unused": (P, lambda p: (X @ p["enc"]).sum(), [("moves_nothing", "error", ("dec",)), ("unused", "info", ("dec",))]),
    "cut": (
        P,
        lambda p: (X @ p["enc"] @ lax.stop_gradient(p["dec"])).sum(),
        [("stop_gradient", "error", ("dec",))],
    ),
    "dead": (
        DEAD,
        lambda p: jax.nn.relu(jnp.tanh(X @ jnp.abs(p["enc"])) @ p["dec"]).sum() + p["enc"].sum(),
        [("dead", "error", ("dec",))],
    ),
    "at its minimum": (
        P,
        lambda p: ((p["dec"] - P["dec"]) ** 2).sum() + p["enc"].sum(),
        [("captured", "note", ("P.dec",)), ("equal", "info", ("dec",))],
    ),
}


@pytest.mark.parametrize(("p", "fn", "causes"), IDLE.values(), ids=IDLE)
def test_an_optimizer_that_moves_nothing_is_an_error(
    p: Any, fn: Callable[[Any], Any], causes: list[tuple[str, str, tuple[str, ...]]]
) -> None:
    step = step_of(OF_DEC, fn)
    new, *_ = step(p, OF_DEC.init(p))
    assert all(np.array_equal(new[name], p[name]) for name in p)
    found = gradir.explain(step, p, OF_DEC.init(p))
    assert [each[:3] for each in told(found)] == [*causes, ("not_in_optimizer", "note", ("enc",))]


def test_an_optimizer_that_another_loss_moves_is_no_alarm() -> None:
    def step(p: Any) -> Any:
        both = (jax.grad(fn)(p) for fn in (lambda p: (X @ p["enc"]).sum(), loss_of))
        updates, _ = OF_DEC.update(jax.tree.map(jnp.add, *both), OF_DEC.init(p))
        return optax.apply_updates(p, updates)

    found = gradir.explain(step, P)
    assert [each[:2] for each in told(found)] == [("unused", "info"), ("not_in_optimizer", "note")]
