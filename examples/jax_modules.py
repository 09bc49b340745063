"""The same network as a module of flax.linen, of flax.nnx and of equinox, each with scopes and classes of its modules.

gradir capture examples/jax_modules.py:Linen --input 'float32[8,4]' -o linen.gir
gradir capture examples/jax_modules.py:Nnx --input 'float32[8,4]' -o nnx.gir
gradir capture examples/jax_modules.py:Equinox --input 'float32[4]' -o equinox.gir
"""

from __future__ import annotations

import equinox as eqx
import flax.linen as nn
import jax
from flax import nnx


class Linen(nn.Module):
    """Two dense layers; the parameters are beside the module."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """One score."""
        return nn.Dense(1, name="head")(nn.tanh(nn.Dense(16, name="hidden")(x)))


class Nnx(nnx.Module):
    """Two linear layers that hold their parameters, which the module may change."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.hidden = nnx.Linear(4, 16, rngs=rngs)
        self.head = nnx.Linear(16, 1, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """One score."""
        return self.head(nnx.tanh(self.hidden(x)))


class Equinox(eqx.Module):
    """Two linear layers in a pytree, for one example."""

    hidden: eqx.nn.Linear
    head: eqx.nn.Linear

    def __init__(self, key: jax.Array) -> None:
        first, second = jax.random.split(key)
        self.hidden = eqx.nn.Linear(4, 16, key=first)
        self.head = eqx.nn.Linear(16, 1, key=second)

    def __call__(self, x: jax.Array) -> jax.Array:
        """One score."""
        return self.head(jax.nn.tanh(self.hidden(x)))
