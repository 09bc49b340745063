"""Operations of one equation or several, each as JAX differentiates it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jax_cases.model import B, Cases, W, X, since

case = CASES = Cases()


@case({"w": W}, X, reached="w", inputs="x", held=384, ops="dot_general convert_element_type fft abs reduce_sum")
def fft(p, x):
    return jnp.abs(jnp.fft.fft(x @ p["w"])).sum()


@case({"w": W}, X, reached="w", inputs="x", held=288, ops="dot_general sort mul reduce_sum")
def sort(p, x):
    return (jnp.sort(x @ p["w"]) * jnp.arange(8.0)).sum()


@case({"w": W}, X, reached="w", inputs="x", held=192, ops="dot_general top_k mul reduce_sum")
def top_k(p, x):
    v, i = lax.top_k(x @ p["w"], 2)
    return (v * i).sum()


@case({"a": W, "y": B}, reached="a y", held=1088, ops="transpose dot_general add custom_linear_solve reduce_sum")
def linear_solve(p):
    return jnp.linalg.solve(p["a"] @ p["a"].T + 8 * jnp.eye(8), p["y"]).sum()


@case(
    {"a": W},
    reached="a",
    held=since((0, 11), 2304, 1664),
    ops="transpose dot_general add transpose add div cholesky select_n reduce_sum",
)
def cholesky(p):
    return jnp.linalg.cholesky(p["a"] @ p["a"].T + 8 * jnp.eye(8)).sum()


@case({"a": W}, reached="a", held=576, ops="svd reduce_sum")
def svd(p):
    return jnp.linalg.svd(p["a"], compute_uv=False).sum()


@case({"a": W}, reached="a", held=1344, ops="qr mul reduce_sum")
def qr(p):
    q, r = jnp.linalg.qr(p["a"])
    return (q * r).sum()


@case(
    {"w": W},
    X,
    reached="w",
    inputs="x",
    held=180,
    ops=since(
        (0, 9),
        "dot_general slice squeeze broadcast_in_dim conv_general_dilated squeeze integer_pow cumsum reduce_sum",
        "dot_general slice squeeze broadcast_in_dim conv_general_dilated slice squeeze integer_pow cumsum reduce_sum",
    ),
)
def convolve_and_cumsum(p, x):
    return jnp.cumsum(jnp.convolve((x @ p["w"])[0], jnp.ones(3)) ** 2).sum()


@case({"w": W}, X, reached="w", inputs="x", held=528, ops="dot_general scatter-add integer_pow reduce_sum")
def scatter_add(p, x):
    return (jnp.zeros((6, 8)).at[jnp.array([0, 0, 2, 3])].add(x @ p["w"]) ** 2).sum()


@case({"w": W}, X, reached="w", inputs="x", held=512, ops="dot_general dynamic_update_slice integer_pow reduce_sum")
def dynamic_update_slice(p, x):
    return (lax.dynamic_update_slice(jnp.ones((6, 8)), x @ p["w"], (1, 0)) ** 2).sum()


@case({"w": W}, X, reached="w", inputs="x", held=272, ops="dot_general scatter-add integer_pow reduce_sum")
def segment_sum(p, x):
    return (jax.ops.segment_sum(x @ p["w"], jnp.array([0, 0, 1, 1]), 2) ** 2).sum()


@case(
    {"w": W},
    X,
    reached="w",
    inputs="x",
    held=since((0, 11), 512, 640),
    ops="dot_general tanh slice slice slice mul slice slice slice mul slice slice mul concatenate pad pad add "
    "slice slice mul concatenate pad pad add reduce_sum",
)
def associative_scan(p, x):
    return lax.associative_scan(jnp.multiply, jnp.tanh(x @ p["w"])).sum()


@case({"w": W}, X, reached="w", inputs="x", held=648, ops="dot_general max reduce_max dot_general min reduce_min add")
def maximum_and_minimum(p, x):
    return jnp.maximum(x @ p["w"], 0).max() + jnp.minimum(x @ p["w"], 0).min()
