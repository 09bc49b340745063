"""Models of flax.nnx."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jax_models.model import Models, cross_entropy, f32, i32

model = MODELS = Models()

S = jax.ShapeDtypeStruct
listed = getattr(nnx, "List", list)


class MLP(nnx.Module):
    def __init__(self, width: int, rngs: nnx.Rngs) -> None:
        self.fc1 = nnx.Linear(width, width, rngs=rngs)
        self.fc2 = nnx.Linear(width, width, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return x + self.fc2(nnx.relu(self.fc1(x)))


class Normed(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.blocks = listed([MLP(8, rngs) for _ in range(2)])
        self.bn = nnx.BatchNorm(8, rngs=rngs)
        self.drop = nnx.Dropout(0.1, rngs=rngs)
        self.head = nnx.Linear(8, 1, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.head(self.drop(self.bn(x)))


def block_of(path: str) -> list[str]:
    return [f"{path}:MLP", f"{path}.fc1:Linear", f"{path}.fc2:Linear"]


@model(
    ":Normed",
    "blocks:List*0",
    *block_of("blocks.0"),
    *block_of("blocks.1"),
    "bn:BatchNorm",
    "drop:Dropout",
    "head:Linear",
)
def residual_mlp_with_batch_norm_and_dropout() -> Any:
    return lambda model, x: (model(x) ** 2).mean(), (Normed(nnx.Rngs(0)), S((4, 8), f32))


class Checkpointed(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.mlp = MLP(8, rngs)
        self.head = nnx.Linear(8, 1, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.head(nnx.remat(MLP.__call__)(self.mlp, x))


@model(":Checkpointed", *block_of("mlp"), "head:Linear")
def remat() -> Any:
    return lambda model, x: model(x).sum(), (Checkpointed(nnx.Rngs(0)), S((4, 8), f32))


@model(":Checkpointed", *block_of("mlp"), "head:Linear")
def split_and_merged_by_the_program() -> Any:
    definition, state = nnx.split(Checkpointed(nnx.Rngs(0)))
    return lambda state, x: nnx.merge(definition, state)(x).sum(), (state, S((4, 8), f32))


class Compiled(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.mlp = MLP(8, rngs)

    def __call__(self, x: Any) -> Any:
        return nnx.jit(MLP.__call__)(self.mlp, x)


@model(":Compiled", *block_of("mlp"))
def jit() -> Any:
    return lambda model, x: model(x).sum(), (Compiled(nnx.Rngs(0)), S((4, 8), f32))


class Stack(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        @nnx.split_rngs(splits=3)
        @nnx.vmap(in_axes=(0,), out_axes=0)
        def made(rngs: nnx.Rngs) -> MLP:
            return MLP(8, rngs)

        self.layers = made(rngs)

    def __call__(self, x: Any) -> Any:
        @nnx.scan(in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
        def run(layer: MLP, x: Any) -> Any:
            return layer(x)

        return run(self.layers, x)


@model(":Stack", *block_of("layers"), rounds={"layers": 3})
def scanned_stack() -> Any:
    return lambda model, x: model(x).sum(), (Stack(nnx.Rngs(0)), S((4, 8), f32))


class Decoder(nnx.Module):
    """A transformer with one block and an embedding that is its head too."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.wte = nnx.Embed(11, 8, rngs=rngs)
        self.ln = nnx.LayerNorm(8, rngs=rngs)
        self.attn = nnx.MultiHeadAttention(2, 8, 8, decode=False, rngs=rngs)
        self.mlp = MLP(8, rngs)

    def __call__(self, tokens: Any) -> Any:
        x = self.wte(tokens)
        mask = nnx.make_causal_mask(jnp.ones(tokens.shape))
        x = x + self.attn(self.ln(x), mask=mask)
        return self.wte.attend(self.mlp(x))


@model(
    ":Decoder",
    "wte:Embed",
    "ln:LayerNorm",
    "attn:MultiHeadAttention",
    *(f"attn.{name}:LinearGeneral" for name in ("query", "key", "value", "out")),
    *block_of("mlp"),
)
def transformer_with_tied_embeddings() -> Any:
    tokens = S((2, 6), i32)
    return lambda model, tokens: cross_entropy(model(tokens), tokens), (Decoder(nnx.Rngs(0)), tokens)


@model(":Compiled", *block_of("mlp"))
def loss_under_jit() -> Any:
    return nnx.jit(lambda model, x: model(x).sum()), (Compiled(nnx.Rngs(0)), S((4, 8), f32))
