"""Arguments: trees of any kind, which of them are differentiated, and dtypes."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from jax_cases.model import TANH, B, Cases, S, W, X, f32, since

case = CASES = Cases()


@case(
    {"w": W},
    X,
    argnums=(0, 1),
    reached="p.w x",
    held=since((0, 11), 512, 640),
    ops="dot_general tanh reduce_sum",
    slots=f"dot_general(in0=128 in1=256) tanh({TANH})",
    scopes={"p": 0},
)
def two_arguments(p, x):
    return jnp.tanh(x @ p["w"]).sum()


@case(
    {"w": W},
    X,
    argnums=1,
    reached="x",
    inputs="p.w",
    held=since((0, 11), 384, 512),
    ops="dot_general tanh reduce_sum",
    slots=f"dot_general(in1=256) tanh({TANH})",
)
def the_second_argument(p, x):
    return jnp.tanh(x @ p["w"]).sum()


@case(
    {"w": W}, X, argnums=-1, reached="x", inputs="p.w", held=since((0, 11), 384, 512), ops="dot_general tanh reduce_sum"
)
def the_last_argument(p, x):
    return jnp.tanh(x @ p["w"]).sum()


@case(W, X, reached="w", inputs="x", held=since((0, 11), 256, 384), ops="dot_general tanh reduce_sum")
def bare_array(w, x):
    return jnp.tanh(x @ w).sum()


@case({"w": W}, X, has_aux=True, reached="w", inputs="x", held=256, ops="dot_general integer_pow reduce_sum")
def aux(p, x):
    h = x @ p["w"]
    return (h**2).sum(), {"acc": jnp.argmax(h), "h": h}


@case({"w": W}, X, reached="w", inputs="x", held=384, ops="dot_general sin reduce_sum integer_pow reduce_sum")
def several_outputs(p, x):
    h = x @ p["w"]
    return {"a": jnp.sin(h).sum(), "b": (h**2).sum(), "count": jnp.argmax(h)}


@case(
    {"w": W, "scale": 2.0, "name": "static", "none": None, "on": True, "n": 3},
    X,
    reached="scale w",
    inputs="x",
    held=136,
    ops="dot_general reduce_sum convert_element_type mul",
)
def values_of_python(p, x):
    assert p["on"] is True
    assert p["n"] == 3
    assert p["name"] == "static"
    return (x @ p["w"]).sum() * p["scale"]


@case(
    [W, (B, {"c": B})],
    X,
    reached="0 1.0 1.1.c",
    inputs="x",
    held=288,
    ops="dot_general broadcast_in_dim add broadcast_in_dim mul reduce_sum",
    scopes={"1": 0, "1.1": 0},
)
def nested_containers(p, x):
    return ((x @ p[0] + p[1][0]) * p[1][1]["c"]).sum()


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    w: object
    b: object


@case(
    Layer(W, B),
    X,
    reached="b w",
    inputs="x",
    held=since((0, 11), 256, 384),
    ops="dot_general broadcast_in_dim add tanh reduce_sum",
)
def dataclass_of_leaves(p, x):
    return jnp.tanh(x @ p.w + p.b).sum()


@case(
    {"params": {"fc": {"w": W}}},
    X,
    reached="fc.w",
    inputs="x",
    held=128,
    ops="dot_general reduce_sum",
    scopes={"fc": 0},
)
def variables_of_flax(variables, x):
    return (x @ variables["params"]["fc"]["w"]).sum()


@case(
    {"w": W},
    X,
    reached="w",
    held=64,
    ops="convert_element_type dot_general convert_element_type reduce_sum",
    slots="dot_general(in0=64)",
)
def bfloat16(p, x):
    return (x.astype(jnp.bfloat16) @ p["w"].astype(jnp.bfloat16)).astype(f32).sum()


@case(
    {"w": S((8, 8), jnp.bfloat16), "s": S((8,), jnp.float16)},
    S((4, 8), jnp.bfloat16),
    reached="s w",
    inputs="x",
    held=224,
    ops="dot_general convert_element_type convert_element_type broadcast_in_dim mul reduce_sum div",
)
def mixed_precision(p, x):
    return ((x @ p["w"]).astype(f32) * p["s"]).mean()


@case(
    {"w": S((8, 8), jnp.complex64)},
    S((4, 8), jnp.complex64),
    reached="w",
    inputs="x",
    held=512,
    ops="dot_general abs reduce_sum",
)
def complex_parameter(p, x):
    return jnp.abs(x @ p["w"]).sum()
