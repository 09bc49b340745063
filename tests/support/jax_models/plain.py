"""A LLaMA in plain JAX, with named scopes for its parts: of 7 billion parameters, or small."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jax_models.model import Models, cross_entropy, i32

model = MODELS = Models()

S = jax.ShapeDtypeStruct


class Sizes(NamedTuple):
    width: int
    layers: int
    heads: int
    hidden: int
    words: int
    length: int


BILLIONS = Sizes(4096, 32, 32, 11008, 32000, 2048)
SMALL = Sizes(16, 3, 2, 24, 31, 8)


def llama(sizes: Sizes, *, scanned: bool, checkpointed: bool = False) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The loss of a LLaMA and its arguments, of which none has data."""
    run = partial(_layer, sizes.heads)
    layer = jax.checkpoint(run) if checkpointed else run

    def through_scan(layers: Any, x: Any) -> Any:
        with jax.named_scope("layers"):
            return lax.scan(lambda x, given: (layer(given, x), None), x, layers)[0]

    def through_each(layers: Any, x: Any) -> Any:
        for number, given in enumerate(layers):
            with jax.named_scope(f"layers.{number}"):
                x = layer(given, x)
        return x

    def loss(params: Any, tokens: Any) -> Any:
        x = (through_scan if scanned else through_each)(params["layers"], params["embed"][tokens])
        with jax.named_scope("head"):
            return cross_entropy((_rms(x, params["norm"]) @ params["lm_head"]).astype(jnp.float32), tokens)

    def of(*shape: int) -> Any:
        return S(shape, jnp.bfloat16)

    layers = _shapes(sizes, (sizes.layers,)) if scanned else [_shapes(sizes, ()) for _ in range(sizes.layers)]
    ends = {"embed": of(sizes.words, sizes.width), "norm": of(sizes.width), "lm_head": of(sizes.width, sizes.words)}
    return loss, ({**ends, "layers": layers}, S((1, sizes.length), i32))


def _shapes(sizes: Sizes, stacked: tuple[int, ...]) -> dict[str, Any]:
    d, f = sizes.width, sizes.hidden
    shapes = {"n1": (d,), "wq": (d, d), "wk": (d, d), "wv": (d, d), "wo": (d, d), "n2": (d,)}
    shapes |= {"gate": (d, f), "up": (d, f), "down": (f, d)}
    return {name: S((*stacked, *shape), jnp.bfloat16) for name, shape in shapes.items()}


def _layer(heads: int, p: Any, x: Any) -> Any:
    b, t, d = x.shape
    with jax.named_scope("attn"):
        h = _rms(x, p["n1"])
        q, k, v = (jnp.reshape(h @ p[name], (b, t, heads, d // heads)) for name in ("wq", "wk", "wv"))
        scores = jnp.einsum("bqhd,bkhd->bhqk", _rope(q), _rope(k)).astype(jnp.float32) * (d // heads) ** -0.5
        scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -1e9)
        o = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores).astype(x.dtype), v)
        x = x + o.reshape(b, t, d) @ p["wo"]
    with jax.named_scope("mlp"):
        h = _rms(x, p["n2"])
        return x + (jax.nn.silu(h @ p["gate"]) * (h @ p["up"])) @ p["down"]


def _rms(x: Any, w: Any) -> Any:
    mean = jnp.mean(jnp.square(x.astype(jnp.float32)), -1, keepdims=True)
    return (x * lax.rsqrt(mean + 1e-6)).astype(x.dtype) * w


def _rope(x: Any) -> Any:
    half = x.shape[-1] // 2
    turns = jnp.arange(x.shape[1])[:, None] / 10000 ** (jnp.arange(half) / half)
    c, s = (f(turns)[None, :, None].astype(x.dtype) for f in (jnp.cos, jnp.sin))
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * c - b * s, b * c + a * s], -1)


def layer_of(path: str) -> list[str]:
    return [f"{path}:", f"{path}.attn:", f"{path}.mlp:"]


EACH = ("layers:", *(shown for number in range(3) for shown in layer_of(f"layers.{number}")))


@model(":", *EACH, "head:")
def small_llama() -> Any:
    return llama(SMALL, scanned=False)


@model(":", *EACH, "head:")
def small_llama_checkpointed() -> Any:
    return llama(SMALL, scanned=False, checkpointed=True)


@model(":", *layer_of("layers"), "head:", rounds={"layers.attn": 3, "layers.mlp": 3})
def small_llama_scanned() -> Any:
    return llama(SMALL, scanned=True)


@model(":", *layer_of("layers"), "head:", rounds={"layers.attn": 3, "layers.mlp": 3})
def small_llama_scanned_and_checkpointed() -> Any:
    return llama(SMALL, scanned=True, checkpointed=True)


@model(":", *layer_of("layers"), "head:", rounds={"layers.attn": 3, "layers.mlp": 3})
def loss_under_jit() -> Any:
    loss, args = llama(SMALL, scanned=True)
    return jax.jit(loss), args
