"""Functions of straight code: paths, cuts, rules of their own, arguments of any kind, and single operations."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jax_cases.model import B, Cases, S, W, X, f32, i32

__all__ = ["cuts", "flow", "operations", "pytrees", "rules"]

cuts, flow, operations, pytrees, rules = (Cases() for _ in __all__)

# Operations on a path, and functions that JAX calls inside others.


@flow({"w1": S((4, 8), f32), "b1": B, "w2": S((8, 1), f32), "b2": S((1,), f32)}, S((2, 4), f32), S((2, 1), f32))
def mlp(p, x, y):
    h = jnp.tanh(x @ p["w1"] + p["b1"])
    return jnp.mean((h @ p["w2"] + p["b2"] - y) ** 2)


@flow({"w": W}, X)
def same_input_twice(p, x):
    h = x @ p["w"]
    return (h * h).sum()


@flow({"w": W}, X)
def straight_through(p, x):
    h = x @ p["w"]
    return ((h + lax.stop_gradient(jnp.round(h) - h)) ** 2).sum()


@flow({"w": W}, X)
def silu_has_a_jit_inside(p, x):
    return jax.nn.silu(x @ p["w"]).sum()


@flow({"w": W}, X)
def softmax(p, x):
    return jnp.log(jax.nn.softmax(x @ p["w"])[:, 0]).sum()


@flow({"w": W}, X)
def jit_called_twice(p, x):
    f = jax.jit(lambda a: jnp.tanh(a @ p["w"]))
    return f(f(x)).sum()


@flow({"a": W, "b": W}, X)
def jit_with_a_dead_output(p, x):
    f = jax.jit(lambda a, b: (x @ a, jnp.sin(x @ b)))
    return jnp.tanh(f(p["a"], p["b"])[0]).sum()


CONSTANT = jnp.ones((8, 8))


@flow({"w": W}, X)
def closed_over_constant(p, x):
    return jnp.tanh(x @ p["w"] @ CONSTANT).sum()


@flow({"w": W}, X)
def einsum_whose_spec_is_no_scope(p, x):
    with jax.named_scope("attn"):
        return jnp.einsum("bi,ij->bj", x, p["w"]).sum()


@flow({"w": W}, X, S((4, 8), f32))
def vmap_of_an_example(p, x, y):
    return jax.vmap(lambda xi, yi: ((jnp.tanh(xi @ p["w"]) - yi) ** 2).sum())(x, y).mean()


@flow({"e": S((11, 8), f32)}, S((3,), i32))
def embedding(p, ids):
    return (p["e"][ids] ** 2).sum()


@flow({"w": W}, jax.random.key(0), X)
def dropout_by_a_key(p, key, x):
    return jnp.where(jax.random.bernoulli(key, 0.5, (4, 8)), x @ p["w"] / 0.5, 0.0).sum()


@flow({"w": W}, X)
def debug_print_is_not_seen(p, x):
    h = x @ p["w"]
    jax.debug.callback(lambda _: None, h.sum())
    return h.sum()


@flow({"w": W}, X)
def optimization_barrier(p, x):
    return lax.optimization_barrier(jnp.sin(x @ p["w"])).sum()


@flow({"w": W}, X)
def shard_map_on_one_device(p, x):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("i",))
    spec = jax.sharding.PartitionSpec
    f = jax.shard_map(lambda x, w: jnp.tanh(x @ w), mesh=mesh, in_specs=(spec("i"), spec()), out_specs=spec("i"))
    return f(x, p["w"]).sum()


@flow({"w": W}, X)
def zero_times_beside_another_way(p, x):
    return (x @ p["w"] * 0.0).sum() + (x @ p["w"]).sum()


@flow({"w": W}, X, one_way=True)
def zeros_times(p, x):
    return (x @ p["w"] * jnp.zeros(8)).sum()


@flow({"w": W}, X)
def name_without_checkpoint(p, x):
    return jnp.sin(jax.ad_checkpoint.checkpoint_name(x @ p["w"], "h")).sum()


# Leaves that get no gradient, and the line that cuts them off.


@cuts({"w": W, "unused": B}, X)
def unused(p, x):
    return (x @ p["w"]).sum()


@cuts({"w": W, "t": W}, X)
def stop_gradient_of_a_target(p, x):
    target = lax.stop_gradient(x @ p["t"])  # HERE
    return jnp.mean((x @ p["w"] - target) ** 2)


@cuts({"w": W, "r": W}, X)
def round_(p, x):
    whole = jnp.round(x @ p["r"])  # HERE
    return (whole * (x @ p["w"])).sum()


@cuts({"w": W, "a": W}, X)
def argmax_as_an_index(p, x):
    i = jnp.argmax((x @ p["a"]).sum(1))  # HERE
    return (x @ p["w"])[i].sum()


@cuts({"w": W, "m": W}, X)
def comparison_as_a_mask(p, x):
    mask = x @ p["m"] > 0  # HERE
    return jnp.where(mask, x @ p["w"], 0.0).sum()


@cuts({"w": W, "n": S((), i32)}, X)
def integer_leaf(p, x):
    return (x @ p["w"]).sum() * p["n"]


@cuts({"w": W, "on": S((), jnp.bool_)}, X)
def bool_leaf(p, x):
    return jnp.where(p["on"], x @ p["w"], 0.0).sum()


@cuts({"a": W, "tied": W}, X)
def tied_by_hand(p, x):
    return (jnp.tanh(x @ p["a"]) @ p["a"].T).sum()


@cuts({"w": W, "t": W}, X)
def while_beside_the_path(p, x):
    n = lax.while_loop(lambda s: s < 5, lambda s: s + 1, 0)
    return (x @ p["w"]).sum() * n


@cuts({"w": W, "g": B}, X)
def hard_gumbel_straight_through(p, x):
    y = jax.nn.softmax(x @ p["w"])
    hard = jax.nn.one_hot(jnp.argmax(y, -1), 8)
    return ((hard + y - lax.stop_gradient(y)) * p["g"]).sum()


@cuts({"w": W, "t": W}, X)
def stop_gradient_of_a_leaf(p, x):
    held = lax.stop_gradient(p["t"])  # HERE
    return (x @ p["w"]).sum() + (held**2).sum()


@cuts({"w": W, "a": W, "b": W}, X)
def one_operation_cuts_two(p, x):
    whole = jnp.floor(x @ p["a"] + x @ p["b"])  # HERE
    return (whole * (x @ p["w"])).sum()


@cuts({"w": W, "c": W}, X)
def cast_to_integers(p, x):
    whole = (x @ p["c"]).astype(i32)  # HERE
    return (whole * (x @ p["w"])).sum()


# Functions with a rule of their own, of JAX and of a program.


@rules({"w": W}, X)
def relu(p, x):
    return jax.nn.relu(x @ p["w"]).sum()


@jax.custom_vjp
def clip_grad(x):
    return x


clip_grad.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -1, 1),))


@rules({"w": W}, X)
def custom_vjp(p, x):
    return (clip_grad(x @ p["w"]) ** 2).sum()


@jax.custom_vjp
def product(x, w, dead):
    return jnp.sin(x @ w) + 0 * dead.sum()


product.defvjp(
    lambda x, w, dead: (jnp.sin(x @ w), (x, w, x @ w)),
    lambda kept, g: ((g * jnp.cos(kept[2])) @ kept[1].T, kept[0].T @ (g * jnp.cos(kept[2])), jnp.zeros((8,))),
)


@rules({"w": W, "dead": B}, X)
def custom_vjp_returns_zeros(p, x):
    return product(x, p["w"], p["dead"]).sum()  # HERE


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def applied(f, x):
    return f(x)


applied.defvjp(lambda f, x: (f(x), x), lambda _, kept, g: (g * jnp.cos(kept),))


@rules({"w": W}, X)
def custom_vjp_with_a_function_beside(p, x):
    return applied(jnp.sin, x @ p["w"]).sum()


@rules({"w": W}, X)
def custom_vjp_around_a_callback(p, x):
    @jax.custom_vjp
    def called(h):
        return jax.pure_callback(np.sin, S(h.shape, h.dtype), h)

    called.defvjp(lambda h: (called(h), h), lambda h, g: (g * jnp.cos(h),))
    return called(x @ p["w"]).sum()


@jax.custom_jvp
def pair(x, y):
    return jnp.sin(x), y * 2


pair.defjvp(lambda primals, tangents: (pair(*primals), (tangents[0] * jnp.cos(primals[0]), jnp.zeros_like(primals[1]))))


@rules({"a": W, "b": W}, X)
def custom_jvp_with_a_zero_tangent(p, x):
    u, v = pair(x @ p["a"], x @ p["b"])  # HERE
    return (u * v).sum()


# Arguments: trees of any kind, which of them are differentiated, and dtypes.


@pytrees({"w": W}, X, argnums=(0, 1))
def two_arguments(p, x):
    return jnp.tanh(x @ p["w"]).sum()


@pytrees({"w": W}, X, argnums=1)
def the_second_argument(p, x):
    return jnp.tanh(x @ p["w"]).sum()


@pytrees({"w": W}, X, argnums=-1)
def the_last_argument(p, x):
    return jnp.tanh(x @ p["w"]).sum()


@pytrees(W, X)
def bare_array(w, x):
    return jnp.tanh(x @ w).sum()


@pytrees({"w": W}, X, has_aux=True)
def aux(p, x):
    h = x @ p["w"]
    return (h**2).sum(), {"acc": jnp.argmax(h), "h": h}


@pytrees({"w": W}, X)
def several_outputs(p, x):
    h = x @ p["w"]
    return {"a": jnp.sin(h).sum(), "b": (h**2).sum(), "count": jnp.argmax(h)}


@pytrees({"w": W, "scale": 2.0, "name": "static", "none": None, "on": True, "n": 3}, X)
def values_of_python(p, x):
    assert p["on"] is True
    assert p["n"] == 3
    assert p["name"] == "static"
    return (x @ p["w"]).sum() * p["scale"]


@pytrees([W, (B, {"c": B})], X)
def nested_containers(p, x):
    return ((x @ p[0] + p[1][0]) * p[1][1]["c"]).sum()


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    w: object
    b: object


@pytrees(Layer(W, B), X)
def dataclass_of_leaves(p, x):
    return jnp.tanh(x @ p.w + p.b).sum()


@pytrees({"params": {"fc": {"w": W}}}, X)
def variables_of_flax(variables, x):
    return (x @ variables["params"]["fc"]["w"]).sum()


@pytrees({"w": W}, X)
def bfloat16(p, x):
    return (x.astype(jnp.bfloat16) @ p["w"].astype(jnp.bfloat16)).astype(f32).sum()


@pytrees({"w": S((8, 8), jnp.bfloat16), "s": S((8,), jnp.float16)}, S((4, 8), jnp.bfloat16))
def mixed_precision(p, x):
    return ((x @ p["w"]).astype(f32) * p["s"]).mean()


@pytrees({"w": S((8, 8), jnp.complex64)}, S((4, 8), jnp.complex64))
def complex_parameter(p, x):
    return jnp.abs(x @ p["w"]).sum()


# Operations of one equation or several, each as JAX differentiates it.


@operations({"w": W}, X)
def fft(p, x):
    return jnp.abs(jnp.fft.fft(x @ p["w"])).sum()


@operations({"w": W}, X)
def sort(p, x):
    return (jnp.sort(x @ p["w"]) * jnp.arange(8.0)).sum()


@operations({"w": W}, X)
def top_k(p, x):
    v, i = lax.top_k(x @ p["w"], 2)
    return (v * i).sum()


@operations({"a": W, "y": B})
def linear_solve(p):
    return jnp.linalg.solve(p["a"] @ p["a"].T + 8 * jnp.eye(8), p["y"]).sum()


@operations({"a": W})
def cholesky(p):
    return jnp.linalg.cholesky(p["a"] @ p["a"].T + 8 * jnp.eye(8)).sum()


@operations({"a": W})
def svd(p):
    return jnp.linalg.svd(p["a"], compute_uv=False).sum()


@operations({"a": W})
def qr(p):
    q, r = jnp.linalg.qr(p["a"])
    return (q * r).sum()


@operations({"w": W}, X)
def convolve_and_cumsum(p, x):
    return jnp.cumsum(jnp.convolve((x @ p["w"])[0], jnp.ones(3)) ** 2).sum()


@operations({"w": W}, X)
def scatter_add(p, x):
    return (jnp.zeros((6, 8)).at[jnp.array([0, 0, 2, 3])].add(x @ p["w"]) ** 2).sum()


@operations({"w": W}, X)
def dynamic_update_slice(p, x):
    return (lax.dynamic_update_slice(jnp.ones((6, 8)), x @ p["w"], (1, 0)) ** 2).sum()


@operations({"w": W}, X)
def segment_sum(p, x):
    return (jax.ops.segment_sum(x @ p["w"], jnp.array([0, 0, 1, 1]), 2) ** 2).sum()


@operations({"w": W}, X)
def associative_scan(p, x):
    return lax.associative_scan(jnp.multiply, jnp.tanh(x @ p["w"])).sum()


@operations({"w": W}, X)
def maximum_and_minimum(p, x):
    return jnp.maximum(x @ p["w"], 0).max() + jnp.minimum(x @ p["w"], 0).min()
