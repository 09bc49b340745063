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
    assert "`spoilt` is explained" in found.causes[0].text


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
def test_what_the_optimizer_leaves_out_is_no_alarm(optimizer: Any, is_abstract: bool) -> None:
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
def test_what_the_optimizer_moves_is_still_an_alarm(optimizer: Any) -> None:
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


def test_what_else_has_no_derivative_is_reported_with_what_jax_says() -> None:
    def fn(p: Any) -> Any:
        return jax.pure_callback(lambda x: x, S((4, 2), jnp.float32), X @ p["enc"]).sum() + p["dec"].sum()

    with pytest.raises(ValueError, match="Pure callbacks do not support JVP"):
        jax.grad(fn)(P)
    (cause,) = gradir.explain(fn, P).causes
    assert (cause.kind, cause.op, cause.names) == ("raised", "pure_callback", ("enc",))
    assert cause.detail.startswith("Pure callbacks do not support JVP")
    assert "jax.custom_vjp" in cause.advice
