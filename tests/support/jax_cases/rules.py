"""Functions with a rule of their own, of JAX and of a program."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jax_cases.model import B, Cases, S, W, X

case = CASES = Cases()


@case(
    {"w": W},
    X,
    reached="w",
    inputs="x",
    held=288,
    ops="dot_general relu reduce_sum",
    slots="dot_general(in0=128) relu(new0=32 new1=128)",
)
def relu(p, x):
    return jax.nn.relu(x @ p["w"]).sum()


@jax.custom_vjp
def clip_grad(x):
    return x


clip_grad.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -1, 1),))


@case(
    {"w": W},
    X,
    reached="w",
    inputs="x",
    held=256,
    ops="dot_general clip_grad integer_pow reduce_sum",
    slots="dot_general(in0=128) integer_pow(new0=128)",
)
def custom_vjp(p, x):
    return (clip_grad(x @ p["w"]) ** 2).sum()


@jax.custom_vjp
def product(x, w, dead):
    return jnp.sin(x @ w) + 0 * dead.sum()


product.defvjp(
    lambda x, w, dead: (jnp.sin(x @ w), (x, w, x @ w)),
    lambda kept, g: ((g * jnp.cos(kept[2])) @ kept[1].T, kept[0].T @ (g * jnp.cos(kept[2])), jnp.zeros((8,))),
)


@case(
    {"w": W, "dead": B},
    X,
    reached="w",
    inputs="x",
    held=512,
    ops="product reduce_sum",
    slots="product(in0=128 in1=256 new0=128)",
    cuts=(("custom_rule", "dead", "product"),),
)
def custom_vjp_returns_zeros(p, x):
    return product(x, p["w"], p["dead"]).sum()  # HERE


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def applied(f, x):
    return f(x)


applied.defvjp(lambda f, x: (f(x), x), lambda _, kept, g: (g * jnp.cos(kept),))


@case(
    {"w": W},
    X,
    reached="w",
    inputs="x",
    held=256,
    ops="dot_general applied reduce_sum",
    slots="dot_general(in0=128) applied(in0=128)",
)
def custom_vjp_with_a_function_beside(p, x):
    return applied(jnp.sin, x @ p["w"]).sum()


@case({"w": W}, X, reached="w", inputs="x", held=256, ops="dot_general called reduce_sum")
def custom_vjp_around_a_callback(p, x):
    @jax.custom_vjp
    def called(h):
        return jax.pure_callback(np.sin, S(h.shape, h.dtype), h)

    called.defvjp(lambda h: (called(h), h), lambda h, g: (g * jnp.cos(h),))
    return called(x @ p["w"]).sum()


@jax.custom_jvp
def pair(x, y):
    return jnp.sin(x), y * 2


pair.defjvp(lambda primals, tangents: (pair(*primals), (tangents[0] * jnp.cos(primals[0]), jnp.zeros_like(primals[1]))))


@case(
    {"a": W, "b": W},
    X,
    reached="a",
    inputs="x",
    held=384,
    ops="dot_general pair mul reduce_sum",
    slots="dot_general(in0=128) pair(new0=128) mul(in1=128)",
    cuts=(("custom_rule", "b", "pair"),),
)
def custom_jvp_with_a_zero_tangent(p, x):
    u, v = pair(x @ p["a"], x @ p["b"])  # HERE
    return (u * v).sum()
