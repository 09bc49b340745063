"""Leaves that get no gradient, and the line that takes it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jax_cases.model import B, Cases, S, W, X, i32, since

case = CASES = Cases()


@case(
    {"w": W, "unused": B},
    X,
    reached="w",
    inputs="x",
    held=128,
    ops="dot_general reduce_sum",
    cuts=(("unused", "unused", ""),),
)
def unused(p, x):
    return (x @ p["w"]).sum()


@case(
    {"w": W, "t": W},
    X,
    reached="w",
    inputs="x",
    held=256,
    ops="dot_general sub integer_pow reduce_sum div",
    cuts=(("stop_gradient", "t", "stop_gradient"),),
)
def stop_gradient_of_a_target(p, x):
    target = lax.stop_gradient(x @ p["t"])  # HERE
    return jnp.mean((x @ p["w"] - target) ** 2)


@case(
    {"w": W, "r": W},
    X,
    reached="w",
    inputs="x",
    held=256,
    ops="dot_general mul reduce_sum",
    cuts=(("nondifferentiable", "r", "round"),),
)
def round_(p, x):
    whole = jnp.round(x @ p["r"])  # HERE
    return (whole * (x @ p["w"])).sum()


@case(
    {"w": W, "a": W},
    X,
    reached="w",
    inputs="x",
    held=since((0, 9), 136, 132),
    ops="dot_general dynamic_slice squeeze reduce_sum",
    cuts=(("nondifferentiable", "a", "argmax"),),
)
def argmax_as_an_index(p, x):
    i = jnp.argmax((x @ p["a"]).sum(1))  # HERE
    return (x @ p["w"])[i].sum()


@case(
    {"w": W, "m": W},
    X,
    reached="w",
    inputs="x",
    held=288,
    ops="dot_general select_n reduce_sum",
    slots="dot_general(in0=128) select_n(in0=32 new0=128)",
    cuts=(("nondifferentiable", "m", "gt"),),
)
def comparison_as_a_mask(p, x):
    mask = x @ p["m"] > 0  # HERE
    return jnp.where(mask, x @ p["w"], 0.0).sum()


@case(
    {"w": W, "n": S((), i32)},
    X,
    reached="w",
    inputs="x",
    held=132,
    ops="dot_general reduce_sum mul",
    cuts=(("integer", "n", ""),),
)
def integer_leaf(p, x):
    return (x @ p["w"]).sum() * p["n"]


@case(
    {"w": W, "on": S((), jnp.bool_)},
    X,
    reached="w",
    inputs="on x",
    held=257,
    ops="dot_general select_n reduce_sum",
    cuts=(("integer", "on", ""),),
)
def bool_leaf(p, x):
    return jnp.where(p["on"], x @ p["w"], 0.0).sum()


@case(
    {"a": W, "tied": W},
    X,
    reached="a",
    inputs="x",
    held=640,
    ops="dot_general tanh transpose dot_general reduce_sum",
    cuts=(("unused", "tied", ""),),
)
def tied_by_hand(p, x):
    return (jnp.tanh(x @ p["a"]) @ p["a"].T).sum()


@case(
    {"w": W, "t": W},
    X,
    reached="w",
    inputs="x",
    held=132,
    ops="dot_general reduce_sum mul",
    cuts=(("unused", "t", ""),),
)
def while_beside_the_path(p, x):
    n = lax.while_loop(lambda s: s < 5, lambda s: s + 1, 0)
    return (x @ p["w"]).sum() * n


@case(
    {"w": W, "g": B},
    X,
    reached="g w",
    inputs="x",
    held=448,
    ops="dot_general sub exp reduce_sum broadcast_in_dim div add sub broadcast_in_dim mul reduce_sum",
)
def hard_gumbel_straight_through(p, x):
    y = jax.nn.softmax(x @ p["w"])
    hard = jax.nn.one_hot(jnp.argmax(y, -1), 8)
    return ((hard + y - lax.stop_gradient(y)) * p["g"]).sum()


@case(
    {"w": W, "t": W},
    X,
    reached="w",
    inputs="x",
    held=128,
    ops="dot_general reduce_sum add",
    cuts=(("stop_gradient", "t", "stop_gradient"),),
)
def stop_gradient_of_a_leaf(p, x):
    held = lax.stop_gradient(p["t"])  # HERE
    return (x @ p["w"]).sum() + (held**2).sum()


@case(
    {"w": W, "a": W, "b": W},
    X,
    reached="w",
    inputs="x",
    held=256,
    ops="dot_general mul reduce_sum",
    cuts=(("nondifferentiable", "a", "floor"), ("nondifferentiable", "b", "floor")),
)
def one_operation_cuts_two(p, x):
    whole = jnp.floor(x @ p["a"] + x @ p["b"])  # HERE
    return (whole * (x @ p["w"])).sum()


@case(
    {"w": W, "c": W},
    X,
    reached="w",
    inputs="x",
    held=256,
    ops="dot_general mul reduce_sum",
    cuts=(("nondifferentiable", "c", "convert_element_type"),),
)
def cast_to_integers(p, x):
    whole = (x @ p["c"]).astype(i32)  # HERE
    return (whole * (x @ p["w"])).sum()
