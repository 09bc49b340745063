"""A multilayer perceptron in plain JAX: parameters in a dict, a loss, and a target network that gets no gradient.

gradir capture examples/jax_mlp.py:loss -o mlp.gir
gradir explain examples/jax_mlp.py:distilled
gradir capture examples/jax_mlp.py:score --input 'float32[16]' --input 'float32[4,16]' -o score.gir
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Params = dict[str, jax.Array]


def score(w: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.tanh(x @ w).sum()


def network(params: Params, x: jax.Array) -> jax.Array:
    hidden = jnp.tanh(x @ params["w1"] + params["b1"])
    return hidden @ params["w2"] + params["b2"]


def initial(key: jax.Array, inputs: int = 4, hidden: int = 16) -> Params:
    first, second = jax.random.split(key)
    return {
        "w1": jax.random.normal(first, (inputs, hidden)) / inputs**0.5,
        "b1": jnp.zeros(hidden),
        "w2": jax.random.normal(second, (hidden, 1)) / hidden**0.5,
        "b2": jnp.zeros(1),
    }


def squared_error(params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.mean((network(params, x) - y) ** 2)


def loss() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """What lies behind ``jax.grad(squared_error)(params, x, y)``."""
    return squared_error, (initial(jax.random.key(0)), jnp.ones((8, 4)), jnp.ones((8, 1)))


def distillation(params: dict[str, Params], x: jax.Array) -> jax.Array:
    target = jax.lax.stop_gradient(network(params["teacher"], x))
    return jnp.mean((network(params["student"], x) - target) ** 2)


def distilled() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The same with a teacher beside it, whose parameters get no gradient."""
    params = {"student": initial(jax.random.key(0)), "teacher": initial(jax.random.key(1))}
    return distillation, (params, jnp.ones((8, 4)))
