"""Models of equinox."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from jax_models.model import Models, cross_entropy, f32, i32

model = MODELS = Models()

S = jax.ShapeDtypeStruct
KEY = jax.random.key(0)


@model(":MLP", "layers:", "layers.0:Linear", "layers.1:Linear", "layers.2:Linear")
def mlp() -> Any:
    return lambda model, x: (jax.vmap(model)(x) ** 2).mean(), (eqx.nn.MLP(4, 1, 8, 2, key=KEY), S((5, 4), f32))


class Pair(eqx.Module):
    a: eqx.nn.Linear
    b: eqx.nn.Linear
    act: Callable[[Any], Any]

    def __init__(self, key: Any) -> None:
        self.a = eqx.nn.Linear(8, 8, key=key)
        self.b = eqx.nn.Linear(8, 8, key=key)
        self.act = jnp.tanh

    def __call__(self, x: Any) -> Any:
        return self.b(self.act(self.a(x)))


@model(":Pair", "a:Linear", "b:Linear")
def module_of_two_layers() -> Any:
    return lambda model, x: jax.vmap(model)(x).sum(), (Pair(KEY), S((4, 8), f32))


@model(":Pair", "a:Linear", "b:Linear")
def filter_checkpoint() -> Any:
    return lambda model, x: jax.vmap(eqx.filter_checkpoint(model))(x).sum(), (Pair(KEY), S((4, 8), f32))


@model(":Pair", "a:Linear", "b:Linear")
def loss_under_filter_jit() -> Any:
    return eqx.filter_jit(lambda model, x: jax.vmap(model)(x).sum()), (Pair(KEY), S((4, 8), f32))


@model(":Pair", "a:Linear", "b:Linear")
def filter_jit_inside() -> Any:
    def loss(model: Any, x: Any) -> Any:
        return eqx.filter_jit(lambda model, x: jax.vmap(model)(x).sum())(model, x)

    return loss, (Pair(KEY), S((4, 8), f32))


class Decoder(eqx.Module):
    """A transformer with one block, on one sequence."""

    wte: eqx.nn.Embedding
    ln: eqx.nn.LayerNorm
    attn: eqx.nn.MultiheadAttention
    mlp: Pair
    head: eqx.nn.Linear

    def __init__(self, key: Any) -> None:
        self.wte = eqx.nn.Embedding(11, 8, key=key)
        self.ln = eqx.nn.LayerNorm(8)
        self.attn = eqx.nn.MultiheadAttention(2, 8, key=key)
        self.mlp = Pair(key)
        self.head = eqx.nn.Linear(8, 11, use_bias=False, key=key)

    def __call__(self, tokens: Any) -> Any:
        x = jax.vmap(self.wte)(tokens)
        h = jax.vmap(self.ln)(x)
        x = x + self.attn(h, h, h, mask=jnp.tril(jnp.ones((len(tokens), len(tokens)), bool)))
        return jax.vmap(self.head)(x + jax.vmap(self.mlp)(x))


@model(
    ":Decoder",
    "wte:Embedding",
    "ln:LayerNorm",
    "attn:MultiheadAttention",
    *(f"attn.{name}_proj:Linear" for name in ("query", "key", "value", "output")),
    "attn.dropout:Dropout",
    "mlp:Pair",
    "mlp.a:Linear",
    "mlp.b:Linear",
    "head:Linear",
)
def transformer() -> Any:
    tokens = S((2, 6), i32)
    return lambda model, tokens: cross_entropy(jax.vmap(model)(tokens), tokens), (Decoder(KEY), tokens)


class Recurrent(eqx.Module):
    cell: eqx.nn.GRUCell
    head: eqx.nn.Linear

    def __init__(self, key: Any) -> None:
        self.cell = eqx.nn.GRUCell(4, 8, key=key)
        self.head = eqx.nn.Linear(8, 1, key=key)

    def __call__(self, xs: Any) -> Any:
        last, _ = jax.lax.scan(lambda h, x: (self.cell(x, h), None), jnp.zeros(8), xs)
        return self.head(last)


@model(":Recurrent", "cell:GRUCell", "head:Linear", rounds={"cell": 7})
def gru() -> Any:
    return lambda model, xs: (model(xs) ** 2).sum(), (Recurrent(KEY), S((7, 4), f32))


class Images(eqx.Module):
    layers: list[Any]

    def __init__(self, key: Any) -> None:
        self.layers = [
            eqx.nn.Conv2d(3, 4, 3, key=key),
            jax.nn.relu,
            eqx.nn.MaxPool2d(2, 2),
            jnp.ravel,
            eqx.nn.Linear(36, 10, key=key),
        ]

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x


@model(":Images", "layers:", "layers.0:Conv2d", "layers.2:MaxPool2d", "layers.4:Linear")
def cnn() -> Any:
    return lambda model, x: (jax.vmap(model)(x) ** 2).mean(), (Images(KEY), S((2, 3, 8, 8), f32))
