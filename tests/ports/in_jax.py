"""Ports to JAX of the models in `in_torch.py`: plain functions, flax and equinox; and programs for other tests.

Run here it writes their graphs beside it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import nnx

f32, i32, shaped = jnp.float32, jnp.int32, jax.ShapeDtypeStruct


def linear(inputs, outputs, bias=True):
    found = {"kernel": shaped((inputs, outputs), f32)}
    return {**found, "bias": shaped((outputs,), f32)} if bias else found


def norm(width):
    return {"scale": shaped((width,), f32), "bias": shaped((width,), f32)}


def dense(p, x):
    return x @ p["kernel"] + p["bias"] if "bias" in p else x @ p["kernel"]


def layer_norm(p, x):
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * p["scale"] + p["bias"]


def attention(p, x, heads=2):
    batch, length, width = x.shape
    q, k, v = (
        dense(p[part], x).reshape(batch, length, heads, -1).transpose(0, 2, 1, 3) for part in ("query", "key", "value")
    )
    logits = q @ k.swapaxes(-1, -2) / jnp.sqrt(width // heads)
    weights = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((length, length), bool)), logits, -jnp.inf), -1)
    return dense(p["out"], (weights @ v).transpose(0, 2, 1, 3).reshape(batch, length, width))


def block(p, x):
    x = x + attention(p["attn"], layer_norm(p["ln_1"], x))
    return x + dense(p["proj"], jax.nn.gelu(dense(p["fc"], layer_norm(p["ln_2"], x))))


def plain_mlp():
    def loss(p, x):
        return (dense(p["fc2"], jax.nn.relu(dense(p["fc1"], x))) ** 2).mean()

    return loss, ({"fc1": linear(4, 16), "fc2": linear(16, 3)}, shaped((5, 4), f32))


def cross_entropy(logits, tokens):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[..., None], -1).mean()


def plain_gpt(blocks, width=8):
    def loss(p, tokens):
        x = p["wte"]["embedding"][tokens] + p["wpe"]["embedding"][jnp.arange(tokens.shape[1])]
        for each in p["h"]:
            x = block(each, x)
        return cross_entropy(dense(p["head"], layer_norm(p["ln_f"], x)), tokens)

    each = {
        "ln_1": norm(width),
        "ln_2": norm(width),
        "attn": {part: linear(width, width) for part in ("query", "key", "value", "out")},
        "fc": linear(width, 4 * width),
        "proj": linear(4 * width, width),
    }
    params = {
        "wte": {"embedding": shaped((11, width), f32)},
        "wpe": {"embedding": shaped((6, width), f32)},
        "h": [each] * blocks,
        "ln_f": norm(width),
        "head": linear(width, 11, bias=False),
    }
    return loss, (params, shaped((2, 6), i32))


class MLP(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3, name="fc2")(nn.relu(nn.Dense(16, name="fc1")(x)))


class Block(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        mask = nn.make_causal_mask(jnp.ones(x.shape[:2]))
        x = x + nn.MultiHeadDotProductAttention(2, name="attn")(nn.LayerNorm(name="ln_1")(x), mask=mask)
        y = nn.Dense(4 * self.width, name="fc")(nn.LayerNorm(name="ln_2")(x))
        return x + nn.Dense(self.width, name="proj")(nn.gelu(y))


class GPT(nn.Module):
    blocks: int
    width: int = 8

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(11, self.width, name="wte")(tokens)
        x = x + nn.Embed(6, self.width, name="wpe")(jnp.arange(tokens.shape[1]))
        for number in range(self.blocks):
            x = Block(self.width, name=f"h_{number}")(x)
        return nn.Dense(11, use_bias=False, name="head")(nn.LayerNorm(name="ln_f")(x))


def linen_mlp():
    model, x = MLP(), shaped((5, 4), f32)
    return lambda p, x: (model.apply(p, x) ** 2).mean(), (jax.eval_shape(model.init, jax.random.key(0), x), x)


def linen_gpt(blocks):
    model, tokens = GPT(blocks), shaped((2, 6), i32)
    params = jax.eval_shape(model.init, jax.random.key(0), tokens)
    return lambda p, tokens: cross_entropy(model.apply(p, tokens), tokens), (params, tokens)


class CNN(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.BatchNorm(use_running_average=False, name="bn")(nn.Conv(8, (3, 3), name="conv")(x))
        x = nn.max_pool(nn.relu(x), (2, 2), (2, 2))
        return nn.Dense(10, name="head")(x.reshape(x.shape[0], -1))


def linen_cnn():
    model, x = CNN(), shaped((2, 8, 8, 3), f32)
    known = jax.eval_shape(model.init, jax.random.key(0), x)

    def loss(params, stats, x):
        y, _ = model.apply({"params": params, "batch_stats": stats}, x, mutable=["batch_stats"])
        return (y**2).mean()

    return loss, (known["params"], known["batch_stats"], x)


class Residual(nnx.Module):
    def __init__(self, rngs):
        self.ln = nnx.LayerNorm(8, rngs=rngs)
        self.fc1, self.fc2 = nnx.Linear(8, 32, rngs=rngs), nnx.Linear(32, 8, rngs=rngs)

    def __call__(self, x):
        return x + self.fc2(nnx.silu(self.fc1(self.ln(x))))


class Residuals(nnx.Module):
    def __init__(self, rngs):
        self.blocks = getattr(nnx, "List", list)([Residual(rngs) for _ in range(3)])

    def __call__(self, x):
        for each in self.blocks:
            x = each(x)
        return x


def nnx_residuals():
    return lambda model, x: (model(x) ** 2).mean(), (Residuals(nnx.Rngs(0)), shaped((4, 8), f32))


class EquinoxResidual(eqx.Module):
    ln: eqx.nn.LayerNorm
    fc1: eqx.nn.Linear
    fc2: eqx.nn.Linear

    def __init__(self, key):
        self.ln = eqx.nn.LayerNorm(8)
        self.fc1, self.fc2 = eqx.nn.Linear(8, 32, key=key), eqx.nn.Linear(32, 8, key=key)

    def __call__(self, x):
        return x + self.fc2(jax.nn.silu(self.fc1(self.ln(x))))


class EquinoxResiduals(eqx.Module):
    blocks: list

    def __init__(self, key):
        self.blocks = [EquinoxResidual(key) for _ in range(3)]

    def __call__(self, x):
        for each in self.blocks:
            x = each(x)
        return x


def equinox_residuals():
    return lambda model, x: (jax.vmap(model)(x) ** 2).mean(), (EquinoxResiduals(jax.random.key(0)), shaped((4, 8), f32))


def shapes(names):
    return {name: shaped((4, 4), f32) for name in names}


def loop():
    def loss(p, x):
        def step(h, x):
            h = jnp.tanh(h @ p["w"] + x)
            return h, h

        h, ys = jax.lax.scan(step, p["h"], x)
        return jax.lax.cond(h.sum() > 0, lambda h: h.sum(), lambda h: (h * 2).sum(), h) + ys.sum()

    return loss, (shapes("wh"), shaped((5, 4, 4), f32))


def checkpointed():
    def loss(p, x):
        return (jax.checkpoint(lambda w: jnp.tanh(jnp.sin(x @ w)))(p["w"]) @ p["v"]).sum()

    return loss, (shapes("wv"), shaped((4, 4), f32))


def cut():
    def loss(p, x):
        h = x @ p["w"] + jax.lax.stop_gradient(x @ p["target"]) + jnp.round(x @ p["rounded"])
        return jnp.where(x @ p["mask"] > 0, h, 0.0).sum()

    integer = {"number": shaped((2,), i32)}
    return loss, ({**shapes(["w", "target", "rounded", "mask", "unused"]), **integer}, shaped((2, 4), f32))


PORTS = {
    "plain_mlp": plain_mlp,
    "linen_mlp": linen_mlp,
    "plain_block": lambda: plain_gpt(1),
    "linen_block": lambda: linen_gpt(1),
    "plain_stack": lambda: plain_gpt(3),
    "linen_stack": lambda: linen_gpt(3),
    "linen_cnn": linen_cnn,
    "nnx_residuals": nnx_residuals,
    "equinox_residuals": equinox_residuals,
    "loop": loop,
    "checkpointed": checkpointed,
    "cut": cut,
}


def main() -> None:
    import gradir

    for name, port in PORTS.items():
        fn, arguments = port()
        gradir.save(gradir.capture(fn, *arguments), Path(__file__).with_name(f"{name}.gir"), format="msgpack")


if __name__ == "__main__":
    sys.exit(main())
