"""Loops, whose bodies stand once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jax_cases.model import B, Cases, S, W, X, f32, since

case = CASES = Cases()


def tanh_of(size: int) -> str:
    return since((0, 11), f"new0={size}", f"out0={size} new0={size}")


@case(
    {"wx": S((8, 16), f32), "wh": S((16, 16), f32), "b": S((16,), f32)},
    S((5, 8), f32),
    reached="b wh wx",
    inputs="xs",
    held=since((0, 11), 1888, 2208),
    ops="dot_general dot_general add add tanh scan integer_pow reduce_sum",
    slots=f"dot_general(in0=160) dot_general(in0=320 in1=1024) tanh({tanh_of(320)}) integer_pow(new0=64)",
    scopes={"scan": 5},
)
def rnn(p, xs):
    def step(h, x):
        return jnp.tanh(x @ p["wx"] + h @ p["wh"] + p["b"]), None

    h, _ = lax.scan(step, jnp.zeros((16,)), xs)
    return (h**2).sum()


@case(
    {"wx": S((8, 16), f32), "wh": S((16, 16), f32), "early": S((16,), f32)},
    S((5, 8), f32),
    reached="early wh wx",
    inputs="xs",
    held=since((0, 11), 1888, 2208),
    ops="dot_general add tanh dot_general add scan integer_pow reduce_sum",
    scopes={"scan": 5},
)
def gradient_through_a_later_round_alone(p, xs):
    def step(carry, x):
        h, m = carry
        return (jnp.tanh(x @ p["wx"] + m), h @ p["wh"] + p["early"]), None

    (h, _), _ = lax.scan(step, (jnp.zeros(16), jnp.zeros(16)), xs)
    return (h**2).sum()


STACK = {"layers": {"w": S((3, 8, 8), f32), "b": S((3, 8), f32)}}


@case(
    STACK,
    X,
    reached="layers.b layers.w",
    held=since((0, 11), 1536, 1920),
    ops="dot_general broadcast_in_dim add tanh scan reduce_sum",
    slots=f"dot_general(in0=384 in1=768) tanh({tanh_of(384)})",
    scopes={"layers": 0, "scan": 3},
)
def stacked_layers(p, x):
    def layer(h, given):
        return jnp.tanh(h @ given["w"] + given["b"]), None

    return lax.scan(layer, x, p["layers"])[0].sum()


@case(
    {"layers": {"w": S((300, 8, 8), f32), "b": S((300, 8), f32)}},
    X,
    reached="layers.b layers.w",
    held=since((0, 11), 153_600, 192_000),
    ops="dot_general broadcast_in_dim add tanh scan reduce_sum",
    scopes={"layers": 0, "scan": 300},
)
def many_stacked_layers(p, x):
    def layer(h, given):
        return jnp.tanh(h @ given["w"] + given["b"]), None

    return lax.scan(layer, x, p["layers"])[0].sum()


@case(
    STACK,
    X,
    reached="layers.b layers.w",
    held=1248,
    ops="dot_general broadcast_in_dim add sin tanh scan reduce_sum",
    scopes={"layers": 0, "scan": 3},
)
def stacked_checkpointed_layers(p, x):
    @jax.checkpoint
    def layer(h, given):
        return jnp.tanh(jnp.sin(h @ given["w"] + given["b"])), None

    return lax.scan(layer, x, p["layers"])[0].sum()


@case(
    {"w": W, "dead": W},
    X,
    reached="w",
    held=since((0, 11), 1024, 1408),
    ops="dot_general tanh scan reduce_sum",
    cuts=(("unused", "dead", ""),),
    scopes={"scan": 3},
)
def results_of_rounds_unused(p, x):
    def step(h, _):
        return jnp.tanh(h @ p["w"]), h @ p["dead"]

    return lax.scan(step, x, None, length=3)[0].sum()


@case(
    {"w": W},
    X,
    reached="w",
    held=since((0, 11), 1024, 1408),
    ops="dot_general tanh scan reduce_sum",
    scopes={"scan": 3},
)
def fori_loop(p, x):
    return lax.fori_loop(0, 3, lambda _, h: jnp.tanh(h @ p["w"]), x).sum()


@case(
    {"w": W},
    X,
    reached="w",
    held=since((0, 11), 1024, 1408),
    ops="dot_general tanh scan reduce_sum",
    scopes={"scan": 3},
)
def scan_unrolled_by_xla(p, x):
    return lax.scan(lambda h, _: (jnp.tanh(h @ p["w"]), None), x, None, length=3, unroll=3)[0].sum()


@case(
    {"w": W, "b": B},
    X,
    reached="b w",
    held=1024,
    ops="dot_general tanh scan broadcast_in_dim add reduce_sum scan reduce_sum reduce_sum add",
    scopes={"scan": 3, "scan.scan": 2},
)
def scan_in_scan_checkpointed(p, x):
    @jax.checkpoint
    def inner(h, _):
        return jnp.tanh(h @ p["w"]), None

    def outer(h, _):
        h, _ = lax.scan(inner, h, None, length=2)
        return h + p["b"], h.sum()

    h, ys = lax.scan(outer, x, None, length=3)
    return h.sum() + ys.sum()


@case(
    {"w": S((32, 8, 8), f32)},
    X,
    reached="w",
    held=16464,
    ops="dot_general sin dot_general mul scan reduce_sum",
    slots="dot_general(in0=4096 in1=8192) sin(new0=4096) dot_general(in0=64) mul(in1=16)",
    scopes={"scan": 32},
)
def what_does_not_vary_is_kept_once(p, x):
    mask = jnp.tril(jnp.ones((4, 4)))

    def layer(h, w):
        table = jnp.cos(jnp.arange(4.0) * 3)[:, None]
        return mask @ jnp.sin(h @ w) * table, None

    return lax.scan(layer, x, p["w"])[0].sum()


@case(
    {"w": W, "s": W},
    X,
    reached="w",
    held=1024,
    ops="dot_general sin add scan reduce_sum",
    cuts=(("stop_gradient", "s", "stop_gradient"),),
    scopes={"scan": 3},
)
def stopped_in_a_round(p, x):
    def step(h, _):
        held = lax.stop_gradient(x @ p["s"])  # HERE
        return jnp.sin(h @ p["w"]) + held, None

    return lax.scan(step, x, None, length=3)[0].sum()


@case(
    {"w": W},
    X,
    reached="w",
    held=768,
    ops="dot_general sin scan add scan reduce_sum",
    scopes={"scan": 3, "scan.scan": 2},
)
def inner_loop_that_does_not_vary(p, x):
    def outer(h, _):
        inner, _ = lax.scan(lambda g, _: (jnp.sin(g @ p["w"]), None), x, None, length=2)
        return h + inner, None

    return lax.scan(outer, x, None, length=3)[0].sum()
