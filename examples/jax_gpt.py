"""A GPT-2-like model in plain JAX with named scopes: unrolled, or one scanned and checkpointed layer.

Nothing here has data: the parameters are shapes and dtypes, so a model of any size takes seconds.

    gradir capture examples/jax_gpt.py:loss -o gpt.gir
    gradir capture examples/jax_gpt.py:scanned -o scanned.gir
    gradir diff gpt.gir scanned.gir
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

LAYERS, WIDTH, HEADS, WORDS, LENGTH = 4, 64, 4, 512, 32


def norm(p: Any, x: jax.Array) -> jax.Array:
    mean, spread = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(spread + 1e-5) * p["scale"] + p["shift"]


def attention(p: Any, x: jax.Array) -> jax.Array:
    batch, length, width = x.shape
    q, k, v = (part.reshape(batch, length, HEADS, -1) for part in jnp.split(x @ p["qkv"], 3, -1))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * (width // HEADS) ** -0.5
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -jnp.inf)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)
    return mixed.reshape(x.shape) @ p["out"]


def layer(p: Any, x: jax.Array) -> jax.Array:
    with jax.named_scope("attn"):
        x = x + attention(p["attn"], norm(p["ln_1"], x))
    with jax.named_scope("mlp"):
        return x + jax.nn.gelu(norm(p["ln_2"], x) @ p["mlp"]["up"]) @ p["mlp"]["down"]


def next_word(layers: Callable[[Any, jax.Array], jax.Array], params: Any, tokens: jax.Array) -> jax.Array:
    with jax.named_scope("embed"):
        x = params["embed"]["words"][tokens] + params["embed"]["places"]
    x = layers(params["layers"], x)
    with jax.named_scope("head"):
        log = jax.nn.log_softmax(norm(params["head"], x)[:, :-1] @ params["embed"]["words"].T)
        return -jnp.take_along_axis(log, tokens[:, 1:, None], -1).mean()


def through_each(params: Any, x: jax.Array) -> jax.Array:
    for number, p in enumerate(params):
        with jax.named_scope(f"layers.{number}"):
            x = layer(p, x)
    return x


def through_scan(params: Any, x: jax.Array) -> jax.Array:
    with jax.named_scope("layers"):
        return jax.lax.scan(lambda x, p: (jax.checkpoint(layer)(p, x), None), x, params)[0]


def layer_shapes(*stacked: int) -> Any:
    shape = partial(_shape, *stacked)
    ends = {"scale": shape(WIDTH), "shift": shape(WIDTH)}
    return {
        "ln_1": ends,
        "attn": {"qkv": shape(WIDTH, 3 * WIDTH), "out": shape(WIDTH, WIDTH)},
        "ln_2": ends,
        "mlp": {"up": shape(WIDTH, 4 * WIDTH), "down": shape(4 * WIDTH, WIDTH)},
    }


def arguments(layers: Any) -> tuple[Any, ...]:
    embed = {"words": _shape(WORDS, WIDTH), "places": _shape(LENGTH, WIDTH)}
    head = {"scale": _shape(WIDTH), "shift": _shape(WIDTH)}
    return {"embed": embed, "layers": layers, "head": head}, jax.ShapeDtypeStruct((2, LENGTH), jnp.int32)


def loss() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Each layer stands in the graph."""
    return partial(next_word, through_each), arguments([layer_shapes() for _ in range(LAYERS)])


def scanned() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """One layer stands in the graph, with its rounds; it holds what a checkpoint needs."""
    return partial(next_word, through_scan), arguments(layer_shapes(LAYERS))


def _shape(*sizes: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, jnp.float32)
