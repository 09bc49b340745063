"""Models of flax.linen."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jax_models.model import Models, cross_entropy, f32, i32

model = MODELS = Models()

S = jax.ShapeDtypeStruct
TOKENS = S((2, 16), i32)


def shapes_of(module: nn.Module, *inputs: Any) -> Any:
    return jax.eval_shape(module.init, jax.random.key(0), *inputs)


def language_model(module: nn.Module) -> Any:
    return lambda params, tokens: cross_entropy(module.apply(params, tokens), tokens), (
        shapes_of(module, TOKENS),
        TOKENS,
    )


class Block(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x: Any) -> Any:
        mask = nn.make_causal_mask(jnp.ones(x.shape[:2]))
        x = x + nn.MultiHeadDotProductAttention(num_heads=2, name="attn")(nn.LayerNorm(name="ln_1")(x), mask=mask)
        h = nn.Dense(4 * self.width, name="fc")(nn.LayerNorm(name="ln_2")(x))
        return x + nn.Dense(self.width, name="proj")(nn.gelu(h))


class GPT(nn.Module):
    layers: int = 2
    width: int = 16
    block: Any = Block

    @nn.compact
    def __call__(self, tokens: Any) -> Any:
        wte = nn.Embed(65, self.width, name="wte")
        x = wte(tokens) + nn.Embed(16, self.width, name="wpe")(jnp.arange(tokens.shape[1]))
        for number in range(self.layers):
            x = self.block(self.width, name=f"h_{number}")(x)
        return wte.attend(nn.LayerNorm(name="ln_f")(x))


def block_of(path: str) -> list[str]:
    attention = [f"{path}.attn.{name}:DenseGeneral" for name in ("query", "key", "value", "out")]
    layers = [f"{path}.ln_1:LayerNorm", f"{path}.ln_2:LayerNorm", f"{path}.fc:Dense", f"{path}.proj:Dense"]
    return [f"{path}:Block", f"{path}.attn:MultiHeadDotProductAttention", *attention, *layers]


GPT_MODULES = (":GPT", "wte:Embed", "wte.attend:", "wpe:Embed", "ln_f:LayerNorm", *block_of("h_0"), *block_of("h_1"))


@model(*GPT_MODULES)
def gpt_with_tied_embeddings() -> Any:
    return language_model(GPT())


@model(*GPT_MODULES)
def gpt_checkpointed() -> Any:
    return language_model(GPT(block=nn.remat(Block)))


class CNN(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        for number, channels in enumerate((4, 8)):
            x = nn.Conv(channels, (3, 3), name=f"conv{number}")(x)
            x = nn.BatchNorm(use_running_average=False, name=f"bn{number}")(x)
            x = nn.max_pool(nn.relu(x), (2, 2), (2, 2))
        return nn.Dense(10, name="head")(x.reshape(x.shape[0], -1))


@model(":CNN", "conv0:Conv", "bn0:BatchNorm", "conv1:Conv", "bn1:BatchNorm", "head:Dense", has_aux=True)
def cnn_with_batch_statistics() -> Any:
    module, images = CNN(), S((2, 8, 8, 3), f32)
    made = shapes_of(module, images)

    def loss(params: Any, batch_stats: Any, images: Any) -> Any:
        variables = {"params": params, "batch_stats": batch_stats}
        logits, changed = module.apply(variables, images, mutable=["batch_stats"])
        return (logits**2).mean(), changed

    return loss, (made["params"], made["batch_stats"], images)


class Recurrent(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nn.Dense(1, name="head")(nn.RNN(nn.LSTMCell(16), name="rnn")(x))


GATES = [f"LSTMCell_0.{gate}:Dense*2" for gate in ("if", "ig", "ii", "io", "hf", "hg", "hi", "ho")]


@model(":Recurrent", "rnn:RNN", "LSTMCell_0:LSTMCell*2", *GATES, "head:Dense", rounds={"LSTMCell_0": 5})
def lstm() -> Any:
    module, inputs = Recurrent(), S((2, 5, 8), f32)
    return lambda params, x: module.apply(params, x).sum(), (shapes_of(module, inputs), inputs)


class Layer(nn.Module):
    @nn.compact
    def __call__(self, x: Any, _: Any) -> Any:
        return x + nn.Dense(8, name="proj")(nn.gelu(nn.Dense(16, name="fc")(x))), None


class Stack(nn.Module):
    layer: Any = Layer

    @nn.compact
    def __call__(self, tokens: Any) -> Any:
        x = nn.Embed(11, 8, name="wte")(tokens)
        stacked = nn.scan(self.layer, variable_axes={"params": 0}, split_rngs={"params": True}, length=6)
        x, _ = stacked(name="layers")(x, None)
        return nn.Dense(11, name="head")(x)


STACK_MODULES = ":Stack", "wte:Embed", "layers:Layer*2", "layers.fc:Dense*2", "layers.proj:Dense*2", "head:Dense"


@model(*STACK_MODULES, rounds={"layers": 6})
def scanned_stack() -> Any:
    module, tokens = Stack(), S((2, 5), i32)
    return lambda params, tokens: (module.apply(params, tokens) ** 2).mean(), (shapes_of(module, tokens), tokens)


@model(*STACK_MODULES, rounds={"layers": 6})
def scanned_stack_checkpointed() -> Any:
    module, tokens = Stack(nn.remat(Layer, prevent_cse=False)), S((2, 5), i32)
    return lambda params, tokens: (module.apply(params, tokens) ** 2).mean(), (shapes_of(module, tokens), tokens)


class Twice(nn.Module):
    def setup(self) -> None:
        self.dense = nn.Dense(8)

    def __call__(self, x: Any) -> Any:
        return self.dense(jnp.tanh(self.dense(x)))


@model(":Twice", "dense:Dense*2")
def module_called_twice() -> Any:
    module, inputs = Twice(), S((4, 8), f32)
    return lambda params, x: module.apply(params, x).sum(), (shapes_of(module, inputs), inputs)


class Policy(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        kept = nn.remat(nn.Dense, policy=jax.checkpoint_policies.dots_with_no_batch_dims_saveable)
        return kept(8, name="kept")(jnp.tanh(nn.Dense(8, name="fc")(x)))


@model(":Policy", "fc:Dense", "kept:Dense")
def policy_of_a_checkpoint() -> Any:
    module, inputs = Policy(), S((4, 8), f32)
    return lambda params, x: jnp.sin(module.apply(params, x)).sum(), (shapes_of(module, inputs), inputs)


class Mixture(nn.Module):
    """Experts weighed by a router that takes the best two of three for each token."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        weights, chosen = jax.lax.top_k(jax.nn.softmax(nn.Dense(3, name="router")(x)), 2)
        gates = (jax.nn.one_hot(chosen, 3) * weights[..., None]).sum(-2)
        results = [nn.Dense(8, name=f"expert_{number}")(x) for number in range(3)]
        return (jnp.stack(results, -1) * gates[..., None, :]).sum(-1)


@model(":Mixture", "router:Dense", "expert_0:Dense", "expert_1:Dense", "expert_2:Dense")
def mixture_of_experts() -> Any:
    module, inputs = Mixture(), S((4, 8), f32)
    return lambda params, x: (module.apply(params, x) ** 2).mean(), (shapes_of(module, inputs), inputs)


class ViT(nn.Module):
    """Patches, a class token, a block, and a head on that token."""

    @nn.compact
    def __call__(self, images: Any) -> Any:
        x = nn.Conv(16, (4, 4), (4, 4), name="patches")(images)
        x = x.reshape(x.shape[0], -1, 16)
        token = self.param("token", nn.initializers.zeros, (1, 1, 16))
        x = jnp.concatenate([jnp.tile(token, (x.shape[0], 1, 1)), x], 1)
        x = x + self.param("positions", nn.initializers.normal(), (1, x.shape[1], 16))
        h = nn.LayerNorm(name="ln")(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=2, name="attn")(h)
        return nn.Dense(10, name="head")(x[:, 0])


@model(
    ":ViT",
    "patches:Conv",
    "ln:LayerNorm",
    "attn:MultiHeadDotProductAttention",
    *(f"attn.{name}:DenseGeneral" for name in ("query", "key", "value", "out")),
    "head:Dense",
)
def vision_transformer() -> Any:
    module, images = ViT(), S((2, 8, 8, 3), f32)
    return lambda params, x: (module.apply(params, x) ** 2).mean(), (shapes_of(module, images), images)


class Autoencoder(nn.Module):
    """Down and up with transposed convolutions, and noise by a key."""

    @nn.compact
    def __call__(self, x: Any, key: Any) -> Any:
        h = nn.Conv(8, (3, 3), (2, 2), name="down")(x)
        mean, spread = nn.Dense(4, name="mean")(h), nn.Dense(4, name="spread")(h)
        z = mean + jnp.exp(spread) * jax.random.normal(key, mean.shape)
        return nn.ConvTranspose(3, (3, 3), (2, 2), name="up")(z)


@model(":Autoencoder", "down:Conv", "mean:Dense", "spread:Dense", "up:ConvTranspose")
def variational_autoencoder() -> Any:
    module, images, key = Autoencoder(), S((2, 8, 8, 3), f32), jax.random.key(1)
    return lambda params, x, key: ((module.apply(params, x, key) - x) ** 2).mean(), (
        shapes_of(module, images, key),
        images,
        key,
    )
