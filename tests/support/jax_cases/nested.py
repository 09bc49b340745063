"""Gradients inside the function, whose backward is operations like any other."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jax_cases.model import B, Cases, S, W, X, f32, since

case = CASES = Cases()


@case(
    {"w": W, "v": B},
    X,
    reached="v w",
    inputs="x",
    held=since((0, 11), 1088, 1216),
    ops=since(
        (0, 11),
        "dot_general broadcast_in_dim dot_general tanh one_minus_square mul dot_general",
        "dot_general broadcast_in_dim dot_general tanh sub mul mul add_any dot_general",
    )
    + " integer_pow reduce_sum sqrt sub integer_pow reduce_sum div",
    scopes={"critic": 0},
)
def gradient_penalty(p, x):
    def critic(xi):
        with jax.named_scope("critic"):
            return jnp.tanh(xi @ p["w"]) @ p["v"]

    g = jax.vmap(jax.grad(critic))(x)
    return ((jnp.sqrt((g**2).sum(-1)) - 1) ** 2).mean()


@case(
    {"w": W},
    X,
    reached="w",
    inputs="x",
    held=since((0, 11), 1152, 1536),
    ops=since(
        (0, 11),
        "dot_general tanh one_minus_square mul mul mul mul dot_general",
        "dot_general tanh mul add sub mul neg mul mul sub mul mul add_any add_any dot_general",
    )
    + " transpose integer_pow reduce_sum",
)
def hessian_vector_product(p, x):
    def f(w):
        return jnp.tanh(x @ w).sum()

    return (jax.jvp(jax.grad(f), (p["w"],), (jnp.ones((8, 8)),))[1] ** 2).sum()


@case(
    {"w": W},
    X,
    reached="w",
    held=since((0, 11), None, 3456),
    ops=since((0, 11), None, "dot_general tanh sub scan mul mul add_any dot_general scan integer_pow reduce_sum"),
    scopes={"scan": 3, "scan_2": 3},
)
def gradient_through_scan(p, x):
    def f(x):
        return lax.scan(lambda h, _: (jnp.tanh(h @ p["w"]), None), x, None, length=3)[0].sum()

    return (jax.grad(f)(x) ** 2).sum()


@case(
    {"w": W, "lr": S((), f32)},
    X,
    reached="lr w",
    inputs="x",
    held=since((0, 11), 1284, since((0, 9), 1540, 1668)),
    ops=since(
        (0, 11),
        "dot_general tanh mul mul one_minus_square mul dot_general",
        since((0, 9), "dot_general tanh", "dot_general tanh integer_pow") + " mul mul sub mul mul add_any dot_general",
    )
    + " transpose mul sub dot_general tanh integer_pow reduce_sum div",
)
def step_of_maml(p, x):
    def f(w):
        return (jnp.tanh(x @ w) ** 2).mean()

    return f(p["w"] - p["lr"] * jax.grad(f)(p["w"]))
