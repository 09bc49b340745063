"""What lies on a path, what is kept for the backward, and functions that JAX runs inside others."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jax_cases.model import TANH, B, Cases, S, W, X, f32, i32, since

case = CASES = Cases()


@case(
    {"w1": S((4, 8), f32), "b1": B, "w2": S((8, 1), f32), "b2": S((1,), f32)},
    S((2, 4), f32),
    S((2, 1), f32),
    reached="b1 b2 w1 w2",
    inputs="x",
    held=since((0, 11), 200, 200),
    ops="dot_general broadcast_in_dim add tanh dot_general broadcast_in_dim add sub integer_pow reduce_sum div",
    slots=f"dot_general(in0=32) tanh({since((0, 11), '', 'out0=64 ')}new0=64) dot_general(in0=64 in1=32) "
    "integer_pow(new0=8)",
)
def mlp(p, x, y):
    h = jnp.tanh(x @ p["w1"] + p["b1"])
    return jnp.mean((h @ p["w2"] + p["b2"] - y) ** 2)


@case(
    {"w": W},
    X,
    reached="w",
    inputs="x",
    held=256,
    ops="dot_general mul reduce_sum",
    slots="dot_general(in0=128) mul(in0=128)",
)
def same_input_twice(p, x):
    h = x @ p["w"]
    return (h * h).sum()


@case({"w": W}, X, reached="w", inputs="x", held=256, ops="dot_general add integer_pow reduce_sum")
def straight_through(p, x):
    h = x @ p["w"]
    return ((h + lax.stop_gradient(jnp.round(h) - h)) ** 2).sum()


@case({"w": W}, X, reached="w", inputs="x", held=512, ops="dot_general logistic mul reduce_sum")
def silu_has_a_jit_inside(p, x):
    return jax.nn.silu(x @ p["w"]).sum()


@case(
    {"w": W},
    X,
    reached="w",
    inputs="x",
    held=304,
    ops="dot_general sub exp reduce_sum broadcast_in_dim div slice squeeze log reduce_sum",
    slots="dot_general(in0=128) exp(out0=128) div(in0=128 in1=16 new0=16) log(in0=16)",
)
def softmax(p, x):
    return jnp.log(jax.nn.softmax(x @ p["w"])[:, 0]).sum()


@case(
    {"w": W},
    X,
    reached="w",
    inputs="x",
    held=since((0, 11), 768, 896),
    ops="dot_general tanh dot_general tanh reduce_sum",
    slots=f"dot_general(in0=128) tanh({TANH}) dot_general(in0=128 in1=256) tanh({TANH})",
)
def jit_called_twice(p, x):
    f = jax.jit(lambda a: jnp.tanh(a @ p["w"]))
    return f(f(x)).sum()


@case(
    {"a": W, "b": W},
    X,
    reached="a",
    inputs="x",
    held=since((0, 11), 256, 384),
    ops="dot_general tanh reduce_sum",
    cuts=(("unused", "b", ""),),
)
def jit_with_a_dead_output(p, x):
    f = jax.jit(lambda a, b: (x @ a, jnp.sin(x @ b)))
    return jnp.tanh(f(p["a"], p["b"])[0]).sum()


CONSTANT = jnp.ones((8, 8))


@case(
    {"w": W},
    X,
    reached="w",
    inputs="x",
    held=since((0, 11), 512, 640),
    ops="dot_general dot_general tanh reduce_sum",
    slots=f"dot_general(in0=128) dot_general(in1=256) tanh({TANH})",
)
def closed_over_constant(p, x):
    return jnp.tanh(x @ p["w"] @ CONSTANT).sum()


@case({"w": W}, X, reached="w", inputs="x", held=128, ops="dot_general reduce_sum", scopes={"attn": 0})
def einsum_whose_spec_is_no_scope(p, x):
    with jax.named_scope("attn"):
        return jnp.einsum("bi,ij->bj", x, p["w"]).sum()


@case(
    {"w": W},
    X,
    S((4, 8), f32),
    reached="w",
    inputs="x",
    held=since((0, 11), 384, 512),
    ops="dot_general tanh sub integer_pow reduce_sum reduce_sum div",
)
def vmap_of_an_example(p, x, y):
    return jax.vmap(lambda xi, yi: ((jnp.tanh(xi @ p["w"]) - yi) ** 2).sum())(x, y).mean()


@case(
    {"e": S((11, 8), f32)},
    S((3,), i32),
    reached="e",
    held=108,
    ops="gather integer_pow reduce_sum",
    slots="gather(in1=12) integer_pow(new0=96)",
)
def embedding(p, ids):
    return (p["e"][ids] ** 2).sum()


@case(
    {"w": W},
    jax.random.key(0),
    X,
    reached="w",
    inputs="x",
    held=288,
    ops="dot_general div select_n reduce_sum",
    slots="dot_general(in0=128) select_n(in0=32 new0=128)",
)
def dropout_by_a_key(p, key, x):
    return jnp.where(jax.random.bernoulli(key, 0.5, (4, 8)), x @ p["w"] / 0.5, 0.0).sum()


@case({"w": W}, X, reached="w", inputs="x", held=128, ops="dot_general reduce_sum")
def debug_print_is_not_seen(p, x):
    h = x @ p["w"]
    jax.debug.callback(lambda _: None, h.sum())
    return h.sum()


@case({"w": W}, X, reached="w", inputs="x", held=256, ops="dot_general sin optimization_barrier reduce_sum")
def optimization_barrier(p, x):
    return lax.optimization_barrier(jnp.sin(x @ p["w"])).sum()


@case({"w": W}, X, reached="w", inputs="x", held=since((0, 11), 256, 384), ops="shard_map reduce_sum")
def shard_map_on_one_device(p, x):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("i",))
    spec = jax.sharding.PartitionSpec
    f = jax.shard_map(lambda x, w: jnp.tanh(x @ w), mesh=mesh, in_specs=(spec("i"), spec()), out_specs=spec("i"))
    return f(x, p["w"]).sum()


@case({"w": W}, X, reached="w", inputs="x", held=128, ops="dot_general mul reduce_sum dot_general reduce_sum add")
def zero_times_beside_another_way(p, x):
    return (x @ p["w"] * 0.0).sum() + (x @ p["w"]).sum()


@case({"w": W}, X, reached="w", inputs="x", held=160, ops="dot_general mul reduce_sum", one_way=True)
def zeros_times(p, x):
    return (x @ p["w"] * jnp.zeros(8)).sum()


@case({"w": W}, X, reached="w", inputs="x", held=256, ops="dot_general name sin reduce_sum")
def name_without_checkpoint(p, x):
    return jnp.sin(jax.ad_checkpoint.checkpoint_name(x @ p["w"], "h")).sum()
