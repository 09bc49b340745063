"""In which operation a gradient of JAX becomes infinite, NaN or zero, and why."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

jax = pytest.importorskip("jax")

import equinox as eqx  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402

import gradir  # noqa: E402
from gradir.explanations.model import Cause  # noqa: E402
from gradir.vocabulary.operations import _OPERATIONS  # noqa: E402

Compute = Callable[[Any], Any]

X = jnp.array([0.0, 1.0, 4.0])
NONE = jnp.zeros(3)
AT = "at tests/test_jax_explain_values.py:{line}"
INFINITE = "its input is 0 somewhere, where its derivative is infinite"
TAKES = f"{INFINITE}; `where` {AT} takes another value there"
BASE = "its base is 0 somewhere, where the derivative of a power below 1 is infinite"


@jax.custom_vjp
def spoiling(x: Any) -> Any:
    return x * 2


spoiling.defvjp(lambda x: (x * 2, x), lambda x, g: (g / (x * 0),))


@jax.custom_jvp
def halved(x: Any) -> Any:
    return x / 2


halved.defjvp(lambda x, t: (x[0] / 2, jnp.log(x[0] * 0) * t[0]))


def normalised(large: Any) -> Any:
    return large / large.sum()


def centred(u: Any) -> Any:
    return u - u.mean(1, keepdims=True)


# What is computed of X, the kind and operation of the cause, and what is known beside.
BROKEN: dict[str, tuple[Compute, str, str, str]] = {
    "sqrt": (lambda x: jnp.sqrt(x) + 1, "nonfinite", "sqrt", INFINITE),
    "log": (lambda x: jnp.log(x) + 1, "nonfinite", "log", INFINITE),
    "log of a sum": (lambda x: jnp.log(x[0] + x[0]), "nonfinite", "log", INFINITE),
    "below zero": (lambda x: jnp.sqrt(x - 2), "nonfinite", "sqrt", "its input is below 0 somewhere, where it is NaN"),
    "rsqrt": (lambda x: lax.rsqrt(x) + 1, "nonfinite", "rsqrt", "its input, which it divides by, is 0 somewhere"),
    "norm": (lambda x: jnp.linalg.norm(x * 0), "nonfinite", "sqrt", f"{INFINITE}; `norm` calls it"),
    "log1p": (
        lambda x: jnp.log1p(-x),
        "nonfinite",
        "log1p",
        "its input is -1 somewhere, where its derivative is infinite",
    ),
    "power": (lambda x: x**0.5, "nonfinite", "pow", BASE),
    "power of an array": (lambda x: x ** jnp.array([0.3, 2.0, 1.0]), "nonfinite", "pow", BASE),
    "whole power": (lambda x: x**-2, "nonfinite", "integer_pow", "its divisor is 0 somewhere"),
    "division": (lambda x: 1 / x, "nonfinite", "div", "its divisor is 0 somewhere"),
    "nothing by nothing": (lambda x: x / x, "nonfinite", "div", "its divisor is 0 somewhere (0 / 0)"),
    "arccos": (
        lambda x: jnp.arccos(x / 4),
        "nonfinite",
        "acos",
        "its input is 1 or -1 somewhere, where its derivative is infinite",
    ),
    "arcsin beyond": (
        lambda x: jnp.arcsin(x[1:] * 2),
        "nonfinite",
        "asin",
        "its input is beyond 1 or -1 somewhere, where it is not defined",
    ),
    "arctan2": (
        lambda x: jnp.arctan2(x, x),
        "nonfinite",
        "atan2",
        "both of its inputs are 0 somewhere, where it has no derivative (0 / 0)",
    ),
    "where": (lambda x: jnp.where(x > 0, jnp.sqrt(x), 0.0), "where_trap", "sqrt", TAKES),
    "where the other way round": (lambda x: jnp.where(x <= 0, 0.0, jnp.log(x) * 2), "where_trap", "log", TAKES),
    "where with something between": (
        lambda x: jnp.where(x > 0, -jnp.exp(jnp.sqrt(x) * 2 + 1), 0.0),
        "where_trap",
        "sqrt",
        TAKES,
    ),
    "where of what is too large": (
        lambda x: jnp.where(x < 3, jnp.exp(x * 1000 * (x > 3)), 0.0),
        "where_trap",
        "exp",
        f"its result is too large for its dtype somewhere; `where` {AT} takes another value there",
    ),
    "where under vmap in jit": (
        lambda x: jax.jit(jax.vmap(lambda x: lax.select(x > 0, jnp.sqrt(x), 0.0)))(x) + 1,
        "where_trap",
        "sqrt",
        TAKES,
    ),
    # The where is not to blame: it takes what is infinite, or an infinite gradient comes through it.
    "where that takes it": (lambda x: jnp.where(x >= 0, jnp.sqrt(x), 0.0), "nonfinite", "sqrt", INFINITE),
    "where before": (lambda x: jnp.sqrt(jnp.where(x > 0, x, x)), "nonfinite", "sqrt", INFINITE),
    "a zero of the program": (lambda x: jnp.sqrt(x) * NONE, "nonfinite", "sqrt", INFINITE),
    "where of numbers that changed places": (
        lambda x: jnp.where(jnp.array([False, True]), jnp.flip(jnp.sqrt(x[:2])), 0.0) * jnp.array([1.0, 0.0]),
        "nonfinite",
        "sqrt",
        INFINITE,
    ),
    "a round of a loop": (
        lambda x: lax.scan(lambda c, x: (c + jnp.sqrt(x), c), 0.0, x)[0],
        "nonfinite",
        "sqrt",
        INFINITE,
    ),
    "a later round": (
        lambda x: lax.fori_loop(0, 4, lambda i, c: jnp.sqrt(jnp.abs(c - 1)), x + 0.5 * (x > 3)),
        "nonfinite",
        "sqrt",
        INFINITE,
    ),
    "backwards": (
        lambda x: lax.scan(lambda c, x: (c, jnp.log(x)), 0.0, x, reverse=True)[1],
        "nonfinite",
        "log",
        INFINITE,
    ),
    "the branch that runs": (lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.sqrt, x), "nonfinite", "sqrt", INFINITE),
    "a checkpoint": (lambda x: jax.checkpoint(lambda x: jnp.sqrt(x) * 2)(x) + 1, "nonfinite", "sqrt", INFINITE),
    "a rule for the backward": (lambda x: spoiling(x) + 1, "nonfinite", "spoiling", ""),
    "a rule for the forward": (lambda x: halved(x) + 1, "nonfinite", "halved", ""),
    "an error of before": (
        lambda x: jnp.sin(x / NONE),
        "born",
        "div",
        "its divisor is 0 somewhere (0 / 0)",
    ),
    "NaN of infinities of before": (
        lambda x: normalised(jnp.exp(x * 100)),
        "born",
        "exp",
        "its result is too large for its dtype somewhere",
    ),
    "NaN of an infinity that is given": (lambda x: jnp.sin(x * jnp.array(jnp.inf)), "born", "mul", ""),
    "a row that is masked out": (
        lambda x: jax.nn.softmax(jnp.where(jnp.tri(3, 3, -1) > 0, 0.5, -jnp.inf)) @ x,
        "all_masked",
        "softmax",
        f"`where` {AT} leaves nothing in some row",
    ),
    "a row that is masked out by adding": (
        lambda x: jax.nn.log_softmax(x + jnp.full(3, -jnp.inf)),
        "all_masked",
        "log_softmax",
        f"`add` {AT} leaves nothing in some row",
    ),
}


@pytest.mark.parametrize(("compute", "kind", "op", "detail"), BROKEN.values(), ids=BROKEN)
def test_the_first_gradient_that_is_not_finite_is_reported_with_what_made_it(
    compute: Compute, kind: str, op: str, detail: str
) -> None:
    def loss(p: Any) -> Any:
        return compute(p["a"]).sum() + p["c"]

    given = {"a": X, "c": 1.0}
    found = gradir.explain(loss, given)
    assert not np.isfinite(jax.grad(loss)(given)["a"]).all()
    assert found.statuses == {"a": "nonfinite", "c": "reached"}
    (cause,) = found.causes
    line = compute.__code__.co_firstlineno
    assert (cause.kind, cause.level, cause.op, cause.names) == (kind, "error", op, ("a",))
    assert cause.source is not None
    assert cause.source.function.rpartition(".")[2] == "<lambda>"
    lines = {cause.source.line, *range(line, line + 3)}
    assert cause.source.line - line in range(3)
    assert cause.detail in {detail.format(line=each) for each in lines}


@pytest.mark.parametrize(
    ("term", "op", "detail"),
    [
        (lambda data: jnp.log(data / data).sum(), "div", "its divisor is 0 somewhere (0 / 0)"),
        (lambda data: jnp.exp(data + 100), "exp", "its result is too large for its dtype somewhere"),
        (lambda data: lax.scan(lambda c, x: (c + jnp.log(x), c), 0.0, data)[0], "log", INFINITE),
        (lambda data: jnp.sin(data * jnp.nan), "mul", ""),
    ],
)
def test_a_term_of_data_that_makes_the_loss_nan_is_reported_at_its_line(term: Compute, op: str, detail: str) -> None:
    def loss(p: Any, data: Any) -> Any:
        return (p["a"] ** 2).sum() + term(data).sum()

    found = gradir.explain(loss, {"a": X}, jnp.zeros(3))
    assert found.statuses == {"a": "reached"}
    (cause,) = found.causes
    assert (cause.kind, cause.level, cause.op, cause.detail) == ("loss_undefined", "error", op, detail)
    assert cause.source is not None
    assert cause.source.line == term.__code__.co_firstlineno


def test_an_undefined_loss_whose_gradients_are_zero_has_its_origin() -> None:
    found = gradir.explain(lambda a: jax.nn.softmax(jnp.where(a > 99, a, -jnp.inf)).sum(), X)
    assert [(each.kind, each.op) for each in found.causes] == [("loss_undefined", "softmax"), ("lost", "where")]


def test_masked_logits_are_no_loss_that_is_infinite() -> None:
    assert not gradir.explain(lambda p: jnp.where(jnp.array([True, False, True]), p, -jnp.inf), X).causes


SAFE: list[Compute] = [
    lambda x: jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1.0)), 0.0),
    lambda x: jnp.sqrt(x + 1e-6),
    lambda x: x**2,
    jnp.std,
    lambda x: lax.cond(x[0] > 0, jnp.sqrt, jnp.sin, x),
    lambda x: jnp.log(jnp.maximum(x, 1e-3)),
    lambda x: jax.nn.softmax(jnp.where(jnp.tri(3) > 0, 0.5, -jnp.inf)) @ x,
    lambda x: jnp.linalg.svd(jnp.outer(x, x) + jnp.diag(jnp.arange(3.0)), compute_uv=False),
]


@pytest.mark.parametrize("compute", SAFE)
def test_a_safe_function_is_no_alarm(compute: Compute) -> None:
    def loss(x: Any) -> Any:
        return compute(x).sum()

    assert np.isfinite(jax.grad(loss)(X)).all()
    found = gradir.explain(loss, X)
    assert (found.level, found.causes) == ("none", ())


def test_the_advice_for_where_is_that_which_helps() -> None:
    advice = Cause("where_trap", "error", "sqrt", ("x",), framework="jax").advice
    code = advice.rpartition("as well: ")[2]

    def loss(x: Any) -> Any:
        return eval(code, {"jnp": jnp, "mask": x > 0, "sqrt": jnp.sqrt, "x": x, "other": NONE}).sum()

    assert jax.grad(loss)(X).tolist() == [0.0, 0.5, 0.25]


OF_JAX = (
    *("all_masked", "born", "captured", "custom_rule", "dead", "equal", "factor", "inner_gradient", "integer", "lost"),
    *("masked", "moves_nothing", "nondifferentiable", "nonfinite", "nonfinite_input", "not_chosen", "not_in_optimizer"),
    *("one_entry", "raised", "raw_update", "saturated", "starting", "stop_gradient", "stuck", "unused", "where_trap"),
    *("underflow", "while_loop", "zero"),
)


@pytest.mark.parametrize("kind", OF_JAX)
def test_no_advice_of_jax_names_torch(kind: str) -> None:
    of_torch = re.compile(r"torch|detach|requires_grad|\.clamp|rsample|no_grad|backward\(|hard=True|log_prob")
    for op in {"f", *(op for ops in _OPERATIONS.values() for op in ops)}:
        assert not of_torch.search(Cause(kind, "error", op, ("x",), framework="jax").advice.replace(op, ""))


def test_a_leaf_that_is_no_number_is_named() -> None:
    def loss(p: Any, x: Any) -> Any:
        return jnp.sin(p["a"] * x).sum()

    (own,) = gradir.explain(loss, {"a": X / 0}, X).causes
    (given,) = gradir.explain(loss, {"a": X}, X / 0).causes
    assert (own.kind, own.op, own.detail) == ("born", "mul", "`a` contains NaN or infinity itself")
    assert (given.kind, given.op, given.detail) == ("nonfinite_input", "mul", "`x` contains NaN or infinity itself")


def test_a_loop_of_many_rounds_is_named_as_a_whole() -> None:
    def loss(x: Any) -> Any:
        return lax.fori_loop(0, 5_000, lambda i, c: jnp.sqrt(c) * (i < 4_999), x).sum()

    assert not np.isfinite(jax.grad(loss)(X)).all()
    (cause,) = gradir.explain(loss, X).causes
    assert (cause.kind, cause.op) == ("nonfinite", "scan")
    assert cause.detail == "in which operation of a round is not known, since there are too many"


def test_of_too_many_operations_the_one_is_not_guessed() -> None:
    def loss(x: Any) -> Any:
        for _ in range(4_001):
            x = x + 1
        return jnp.sqrt(x - 4_001).sum()

    (cause,) = gradir.explain(loss, X).causes
    assert (cause.kind, cause.op, cause.detail) == ("nonfinite", "", "in which operation is not known")


HALF = jnp.float16

# What is computed of `a` and `b`, which of them get zero, and the kind, level and operation of the cause.
ZEROS: dict[str, tuple[Callable[[Any, Any], Any], str, tuple[str, str, str]]] = {
    "relu": (lambda a, b: jax.nn.relu(a - 9) + b, "a", ("dead", "info", "relu")),
    "maximum": (lambda a, b: jnp.maximum(a - 9, 0) + b, "a", ("dead", "info", "max")),
    "clip": (lambda a, b: jnp.clip(a - 9, 0, 1) + b, "a", ("dead", "info", "clip")),
    "relu in a loop": (
        lambda a, b: lax.scan(lambda c, x: (c + jax.nn.relu(x - 9), c), 0.0, a)[0] + b,
        "a",
        ("dead", "info", "relu"),
    ),
    "softmax": (lambda a, b: jax.nn.softmax(a[:, None]) * b[:, None], "a", ("one_entry", "error", "softmax")),
    "log_softmax": (lambda a, b: jax.nn.log_softmax(a[:1]) + b, "a", ("one_entry", "error", "log_softmax")),
    "centring": (
        lambda a, b: centred(jnp.sin(a[:, None])) * X + b,
        "a",
        ("one_entry", "error", "reduce_sum"),
    ),
    "tanh": (lambda a, b: jnp.tanh(a + 99) * b, "a", ("saturated", "error", "tanh")),
    "sigmoid": (lambda a, b: jax.nn.sigmoid(a - 200) + b, "a", ("saturated", "error", "logistic")),
    "adapter": (lambda a, b: (X @ jnp.outer(a, X)) @ jnp.outer(X, b * 0 + b), "", ("", "", "")),
    "mask": (lambda a, b: a * NONE + b, "a", ("factor", "info", "mul")),
    "float16": (lambda a, b: a.astype(HALF) * HALF(1e-4) * HALF(1e-4) + b, "a", ("underflow", "error", "mul")),
    "cast to float16": (
        lambda a, b: a.astype(HALF).astype("float32") * 1e-9 + b,
        "a",
        ("underflow", "error", "convert_element_type"),
    ),
    "mask of float16": (
        lambda a, b: a.astype(HALF) * NONE.astype(HALF) * HALF(1e-4) + b,
        "a",
        ("factor", "info", "mul"),
    ),
    "mask of a matrix": (lambda a, b: jnp.zeros((2, 3)) @ a + b.sum(), "a", ("factor", "info", "dot_general")),
    "where": (lambda a, b: jnp.where(b > 99, a, b), "a", ("masked", "info", "where")),
    "mean square": (lambda a, b: (a - X) ** 2 + b, "a", ("equal", "info", "integer_pow")),
    "maximum of two": (lambda a, b: jnp.maximum(a, b + 9), "a", ("not_chosen", "info", "max")),
    "branch": (lambda a, b: lax.cond(b[0] > 9, lambda: a * b, lambda: b), "a", ("not_chosen", "info", "cond")),
    "no number": (
        lambda a, b: jax.nn.softmax(jnp.where(b > 99, a, -jnp.inf)),
        "ab",
        ("lost", "error", "where"),
    ),
}


@pytest.mark.parametrize(("compute", "zeros", "told"), ZEROS.values(), ids=ZEROS)
def test_a_gradient_of_zero_is_reported_with_its_kind(
    compute: Callable[[Any, Any], Any], zeros: str, told: tuple[str, str, str]
) -> None:
    def loss(p: Any) -> Any:
        return compute(p["a"], p["b"]).sum()

    given = {"a": X, "b": X + 1}
    found = gradir.explain(loss, given)
    real = jax.grad(loss)(given)
    expected = {name: "cut" if status == "cut" else "reached" for name, status in found.statuses.items()}
    assert {name for name in "ab" if not real[name].any()} == {
        name for name in "ab" if found.statuses[name] != "reached"
    }
    assert {name for name, status in found.statuses.items() if status == "zero"} <= {*zeros}, expected
    others = {"loss_undefined", "nondifferentiable"}
    assert [(each.kind, each.level, each.op) for each in found.causes if each.kind not in others] == [told] * bool(
        zeros
    )


@pytest.mark.parametrize(
    ("compute", "told"),
    [
        (lambda p: X @ p["a"] @ p["b"], ("starting", "note", "dot_general", ("a",))),
        (lambda p: (X @ p["a"]) @ p["b"].T.T + p["a"].sum() * 0, ("starting", "note", "dot_general", ("a",))),
        (lambda p: p["a"] * 0 @ X * p["b"][0, 0] + p["b"], ("factor", "info", "mul", ("a",))),
    ],
)
def test_a_factor_that_starts_at_zero_is_no_alarm(compute: Compute, told: tuple[Any, ...]) -> None:
    given = {"a": jnp.ones((3, 3)), "b": jnp.zeros((3, 3))}
    found = gradir.explain(lambda p: compute(p).sum(), given)
    assert told in [(each.kind, each.level, each.op, each.names) for each in found.causes]
    assert found.statuses == {"a": "zero", "b": "reached"}


def test_factors_that_wait_for_each_other_are_an_alarm() -> None:
    found = gradir.explain(lambda p: (X @ p["a"] @ p["b"]).sum(), {name: jnp.zeros((3, 3)) for name in "ab"})
    assert found.level == "error"
    assert {each.kind for each in found.causes} == {"stuck"}
    assert {name for each in found.causes for name in each.names} == {"a", "b"}


def test_a_module_under_filter_jit_keeps_its_lines() -> None:
    @eqx.filter_jit
    def loss(model: Any, x: Any) -> Any:
        return jnp.sqrt(jax.vmap(model)(x) * 0).sum()

    found = gradir.explain(loss, eqx.nn.Linear(3, 2, key=jax.random.key(0)), jnp.ones((4, 3)))
    (cause,) = found.causes
    assert (cause.kind, cause.op) == ("nonfinite", "sqrt")
    assert cause.source is not None
    assert cause.source.function.endswith("loss")
