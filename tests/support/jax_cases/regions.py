"""Functions of which JAX traces a part apart: checkpoints, loops, branches and gradients inside."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from jax_cases.model import B, Cases, S, W, X, f32

__all__ = ["branches", "checkpoints", "loops", "nested"]

branches, checkpoints, loops, nested = (Cases() for _ in __all__)

# Checkpointed regions, whose policy says which values are saved.


def block(p, x):
    return x + jnp.tanh(jnp.sin(x @ p["w1"]) @ p["w2"])


def named_block(p, x):
    return x + jnp.tanh(checkpoint_name(jnp.sin(x @ p["w1"]), "mid") @ p["w2"])


@checkpoints({"w1": W, "w2": W}, X)
def no_checkpoint(p, x):
    return block(p, block(p, x)).sum()


@checkpoints({"w1": W, "w2": W}, X)
def checkpoint(p, x):
    f = jax.checkpoint(block)
    return f(p, f(p, x)).sum()


@checkpoints({"w1": W, "w2": W}, X)
def dots_saveable(p, x):
    f = jax.checkpoint(block, policy=jax.checkpoint_policies.dots_saveable)
    return f(p, f(p, x)).sum()


@checkpoints({"w1": W, "w2": W}, X)
def save_only_these_names(p, x):
    f = jax.checkpoint(named_block, policy=jax.checkpoint_policies.save_only_these_names("mid"))
    return f(p, f(p, x)).sum()


@checkpoints({"w1": W, "w2": W}, X)
def everything_saveable(p, x):
    f = jax.checkpoint(block, policy=jax.checkpoint_policies.everything_saveable)
    return f(p, f(p, x)).sum()


@checkpoints({"a": W, "b": W}, X)
def checkpoint_with_a_dead_output(p, x):
    f = jax.checkpoint(lambda a, b: (jnp.sin(x @ a), jnp.sin(x @ b)))
    return jnp.tanh(f(p["a"], p["b"])[0]).sum()


@checkpoints({"w": W}, X)
def checkpoint_around_a_closed_over_leaf(p, x):
    @jax.checkpoint
    def f(h):
        return jnp.sin(h @ p["w"])

    return f(x).sum()


@checkpoints({"a": W, "b": W}, X)
def checkpoint_in_jit_in_vmap(p, x):
    f = jax.vmap(jax.jit(jax.checkpoint(lambda row: jnp.tanh(jnp.sin(row @ p["a"]) @ p["b"]))))
    return f(x).sum()


@checkpoints({"w1": W, "w2": W}, X)
def checkpoint_in_a_checkpoint(p, x):
    f = jax.checkpoint(block)
    return jax.checkpoint(lambda p, x: f(p, f(p, x)))(p, x).sum()


# Loops, whose bodies are in the graph once.


@loops({"wx": S((8, 16), f32), "wh": S((16, 16), f32), "b": S((16,), f32)}, S((5, 8), f32))
def rnn(p, xs):
    def step(h, x):
        return jnp.tanh(x @ p["wx"] + h @ p["wh"] + p["b"]), None

    h, _ = lax.scan(step, jnp.zeros((16,)), xs)
    return (h**2).sum()


@loops({"wx": S((8, 16), f32), "wh": S((16, 16), f32), "early": S((16,), f32)}, S((5, 8), f32))
def gradient_through_a_later_round_alone(p, xs):
    def step(carry, x):
        h, m = carry
        return (jnp.tanh(x @ p["wx"] + m), h @ p["wh"] + p["early"]), None

    (h, _), _ = lax.scan(step, (jnp.zeros(16), jnp.zeros(16)), xs)
    return (h**2).sum()


STACK = {"layers": {"w": S((3, 8, 8), f32), "b": S((3, 8), f32)}}


@loops(STACK, X)
def stacked_layers(p, x):
    def layer(h, given):
        return jnp.tanh(h @ given["w"] + given["b"]), None

    return lax.scan(layer, x, p["layers"])[0].sum()


@loops({"layers": {"w": S((300, 8, 8), f32), "b": S((300, 8), f32)}}, X)
def many_stacked_layers(p, x):
    def layer(h, given):
        return jnp.tanh(h @ given["w"] + given["b"]), None

    return lax.scan(layer, x, p["layers"])[0].sum()


@loops(STACK, X)
def stacked_checkpointed_layers(p, x):
    @jax.checkpoint
    def layer(h, given):
        return jnp.tanh(jnp.sin(h @ given["w"] + given["b"])), None

    return lax.scan(layer, x, p["layers"])[0].sum()


@loops({"w": W, "dead": W}, X)
def results_of_rounds_unused(p, x):
    def step(h, _):
        return jnp.tanh(h @ p["w"]), h @ p["dead"]

    return lax.scan(step, x, None, length=3)[0].sum()


@loops({"w": W}, X)
def fori_loop(p, x):
    return lax.fori_loop(0, 3, lambda _, h: jnp.tanh(h @ p["w"]), x).sum()


@loops({"w": W}, X)
def scan_unrolled_by_xla(p, x):
    return lax.scan(lambda h, _: (jnp.tanh(h @ p["w"]), None), x, None, length=3, unroll=3)[0].sum()


@loops({"w": W, "b": B}, X)
def scan_in_scan_checkpointed(p, x):
    @jax.checkpoint
    def inner(h, _):
        return jnp.tanh(h @ p["w"]), None

    def outer(h, _):
        h, _ = lax.scan(inner, h, None, length=2)
        return h + p["b"], h.sum()

    h, ys = lax.scan(outer, x, None, length=3)
    return h.sum() + ys.sum()


@loops({"w": S((32, 8, 8), f32)}, X)
def what_does_not_vary_is_kept_once(p, x):
    mask = jnp.tril(jnp.ones((4, 4)))

    def layer(h, w):
        table = jnp.cos(jnp.arange(4.0) * 3)[:, None]
        return mask @ jnp.sin(h @ w) * table, None

    return lax.scan(layer, x, p["w"])[0].sum()


@loops({"w": W, "s": W}, X)
def stopped_in_a_round(p, x):
    def step(h, _):
        held = lax.stop_gradient(x @ p["s"])  # HERE
        return jnp.sin(h @ p["w"]) + held, None

    return lax.scan(step, x, None, length=3)[0].sum()


@loops({"w": W}, X)
def inner_loop_that_does_not_vary(p, x):
    def outer(h, _):
        inner, _ = lax.scan(lambda g, _: (jnp.sin(g @ p["w"]), None), x, None, length=2)
        return h + inner, None

    return lax.scan(outer, x, None, length=3)[0].sum()


# Conditionals: all branches are in the graph, and one of them runs.


@branches({"a": W, "b": W}, X, one_way=True)
def cond(p, x):
    return lax.cond(x.sum() > 0, lambda h: jnp.tanh(h @ p["a"]), lambda h: jnp.sin(h @ p["b"]), x).sum()


@branches({"a": W, "b": W}, X, one_way=True)
def switch(p, x):
    return lax.switch(jnp.int32(1), [lambda h: h @ p["a"], lambda h: jnp.sin(h @ p["b"]), lambda h: h], x).sum()


@branches({"a": W, "b": W}, X)
def cond_in_scan(p, x):
    def step(h, i):
        return lax.cond(i > 1, lambda h: jnp.tanh(h @ p["a"]), lambda h: jnp.sin(h @ p["b"]), h), None

    return lax.scan(step, x, jnp.arange(4))[0].sum()


@branches({"a": W}, X, one_way=True)
def scan_in_cond(p, x):
    def rounds(h):
        return lax.scan(lambda h, _: (jnp.tanh(h @ p["a"]), None), h, None, length=3)[0]

    return lax.cond(x.sum() > -1e9, rounds, lambda h: h, x).sum()


@branches({"a": W, "b": W}, X, one_way=True)
def vmap_of_cond(p, x):
    def row(r):
        return lax.cond(r.sum() > 0, lambda r: jnp.tanh(r @ p["a"]), lambda r: jnp.sin(r @ p["b"]), r)

    return jax.vmap(row)(x).sum()


@branches({"a": W, "s": W}, X, one_way=True)
def stopped_in_a_branch(p, x):
    def stopped(h):
        return lax.stop_gradient(h @ p["s"]) + h @ p["a"]  # HERE

    return lax.cond(x.sum() > 0, stopped, lambda h: jnp.sin(h @ p["a"]), x).sum()


# Gradients inside the function, whose backward pass is operations like any other.


@nested({"w": W, "v": B}, X)
def gradient_penalty(p, x):
    def critic(xi):
        with jax.named_scope("critic"):
            return jnp.tanh(xi @ p["w"]) @ p["v"]

    g = jax.vmap(jax.grad(critic))(x)
    return ((jnp.sqrt((g**2).sum(-1)) - 1) ** 2).mean()


@nested({"w": W}, X)
def hessian_vector_product(p, x):
    def f(w):
        return jnp.tanh(x @ w).sum()

    return (jax.jvp(jax.grad(f), (p["w"],), (jnp.ones((8, 8)),))[1] ** 2).sum()


@nested({"w": W}, X)
def gradient_through_scan(p, x):
    def f(x):
        return lax.scan(lambda h, _: (jnp.tanh(h @ p["w"]), None), x, None, length=3)[0].sum()

    return (jax.grad(f)(x) ** 2).sum()


@nested({"w": W, "lr": S((), f32)}, X)
def step_of_maml(p, x):
    def f(w):
        return (jnp.tanh(x @ w) ** 2).mean()

    return f(p["w"] - p["lr"] * jax.grad(f)(p["w"]))
