"""Conditionals: all branches stand in the graph, and one of them runs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jax_cases.model import TANH, Cases, W, X, since

case = CASES = Cases()


@case(
    {"a": W, "b": W},
    X,
    reached="a b",
    inputs=since((0, 12), "x", ""),
    held=since((0, 11), 260, 388),
    ops="dot_general sin dot_general tanh cond reduce_sum",
    slots=f"dot_general(in0=128) sin(new0=128) dot_general(in0=128) tanh({TANH}) cond(index=4)",
    scopes={"branch0": 0, "branch1": 0},
    one_way=True,
)
def cond(p, x):
    return lax.cond(x.sum() > 0, lambda h: jnp.tanh(h @ p["a"]), lambda h: jnp.sin(h @ p["b"]), x).sum()


@case(
    {"a": W, "b": W},
    X,
    reached="a b",
    inputs=since((0, 12), "x", ""),
    held=260,
    ops="dot_general dot_general sin cond reduce_sum",
    scopes={"branch0": 0, "branch1": 0},
    one_way=True,
)
def switch(p, x):
    return lax.switch(jnp.int32(1), [lambda h: h @ p["a"], lambda h: jnp.sin(h @ p["b"]), lambda h: h], x).sum()


@case(
    {"a": W, "b": W},
    X,
    reached="a b",
    held=since((0, 12), 1552, since((0, 11), 2064, 2576)),
    ops="dot_general sin dot_general tanh cond scan reduce_sum",
    scopes={"scan": 4, "scan.branch0": 0, "scan.branch1": 0},
)
def cond_in_scan(p, x):
    def step(h, i):
        return lax.cond(i > 1, lambda h: jnp.tanh(h @ p["a"]), lambda h: jnp.sin(h @ p["b"]), h), None

    return lax.scan(step, x, jnp.arange(4))[0].sum()


@case(
    {"a": W},
    X,
    reached="a",
    held=since((0, 11), 1156, 1540),
    ops="dot_general tanh scan cond reduce_sum",
    scopes={"branch1": 0, "branch1.scan": 3},
    one_way=True,
)
def scan_in_cond(p, x):
    def rounds(h):
        return lax.scan(lambda h, _: (jnp.tanh(h @ p["a"]), None), h, None, length=3)[0]

    return lax.cond(x.sum() > -1e9, rounds, lambda h: h, x).sum()


@case(
    {"a": W, "b": W},
    X,
    reached="a b",
    held=since((0, 11), 3200, 3328),
    ops="broadcast_in_dim select_n dot_general sin broadcast_in_dim select_n dot_general tanh select_n reduce_sum",
    one_way=True,
)
def vmap_of_cond(p, x):
    def row(r):
        return lax.cond(r.sum() > 0, lambda r: jnp.tanh(r @ p["a"]), lambda r: jnp.sin(r @ p["b"]), r)

    return jax.vmap(row)(x).sum()


@case(
    {"a": W, "s": W},
    X,
    reached="a",
    inputs=since((0, 12), "x", ""),
    held=260,
    ops="dot_general sin dot_general add cond reduce_sum",
    cuts=(("stop_gradient", "s", "stop_gradient"),),
    scopes={"branch0": 0, "branch1": 0},
    one_way=True,
)
def stopped_in_a_branch(p, x):
    def stopped(h):
        return lax.stop_gradient(h @ p["s"]) + h @ p["a"]  # HERE

    return lax.cond(x.sum() > 0, stopped, lambda h: jnp.sin(h @ p["a"]), x).sum()
