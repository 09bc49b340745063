"""Checkpointed regions: the same operations, and what is held of them by policy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from jax_cases.model import Cases, W, X, since

case = CASES = Cases()

TWICE = "dot_general sin dot_general tanh add " * 2 + "reduce_sum"
AGAIN = since((0, 11), "tanh(new0~)", "tanh(out0~ new0~)")


def block(p, x):
    return x + jnp.tanh(jnp.sin(x @ p["w1"]) @ p["w2"])


def named_block(p, x):
    return x + jnp.tanh(checkpoint_name(jnp.sin(x @ p["w1"]), "mid") @ p["w2"])


@case({"w1": W, "w2": W}, X, reached="w1 w2", inputs="x", held=since((0, 11), 1536, 1792), ops=TWICE)
def no_checkpoint(p, x):
    return block(p, block(p, x)).sum()


@case(
    {"w1": W, "w2": W},
    X,
    reached="w1 w2",
    inputs="x",
    held=768,
    ops=TWICE,
    slots=f"dot_general(in0=128 kept=256) sin(new0~) dot_general(in0~ in1=256) {AGAIN} "
    f"dot_general(in0=128 in1=256) sin(new0~) dot_general(in0~ in1=256) {AGAIN}",
)
def checkpoint(p, x):
    f = jax.checkpoint(block)
    return f(p, f(p, x)).sum()


@case({"w1": W, "w2": W}, X, reached="w1 w2", inputs="x", held=1280, ops=TWICE)
def dots_saveable(p, x):
    f = jax.checkpoint(block, policy=jax.checkpoint_policies.dots_saveable)
    return f(p, f(p, x)).sum()


@case(
    {"w1": W, "w2": W},
    X,
    reached="w1 w2",
    inputs="x",
    held=1024,
    ops="dot_general sin name dot_general tanh add " * 2 + "reduce_sum",
    slots=f"dot_general(in0=128 kept=256) sin(new0~) dot_general(in0=128 in1=256) {AGAIN} "
    f"dot_general(in0=128 in1=256) sin(new0~) dot_general(in0=128 in1=256) {AGAIN}",
)
def save_only_these_names(p, x):
    f = jax.checkpoint(named_block, policy=jax.checkpoint_policies.save_only_these_names("mid"))
    return f(p, f(p, x)).sum()


@case({"w1": W, "w2": W}, X, reached="w1 w2", inputs="x", held=since((0, 11), 1536, 1792), ops=TWICE)
def everything_saveable(p, x):
    f = jax.checkpoint(block, policy=jax.checkpoint_policies.everything_saveable)
    return f(p, f(p, x)).sum()


@case(
    {"a": W, "b": W},
    X,
    reached="a",
    inputs="x",
    held=since((0, 11), 512, 640),
    ops="dot_general sin tanh reduce_sum",
    cuts=(("unused", "b", ""),),
)
def checkpoint_with_a_dead_output(p, x):
    f = jax.checkpoint(lambda a, b: (jnp.sin(x @ a), jnp.sin(x @ b)))
    return jnp.tanh(f(p["a"], p["b"])[0]).sum()


@case(
    {"w": W},
    X,
    reached="w",
    inputs="x",
    held=384,
    ops="dot_general sin reduce_sum",
    slots="dot_general(in0=128 kept=256) sin(new0~)",
)
def checkpoint_around_a_closed_over_leaf(p, x):
    @jax.checkpoint
    def f(h):
        return jnp.sin(h @ p["w"])

    return f(x).sum()


@case({"a": W, "b": W}, X, reached="a b", inputs="x", held=640, ops="dot_general sin dot_general tanh reduce_sum")
def checkpoint_in_jit_in_vmap(p, x):
    f = jax.vmap(jax.jit(jax.checkpoint(lambda row: jnp.tanh(jnp.sin(row @ p["a"]) @ p["b"]))))
    return f(x).sum()


@case({"w1": W, "w2": W}, X, reached="w1 w2", inputs="x", held=640, ops=TWICE)
def checkpoint_in_a_checkpoint(p, x):
    f = jax.checkpoint(block)
    return jax.checkpoint(lambda p, x: f(p, f(p, x)))(p, x).sum()
