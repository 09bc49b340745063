"""Models in plain JAX, flax.linen, flax.nnx and equinox, as programs write them."""

from __future__ import annotations

from jax_models import equinox, linen, nnx, plain
from jax_models.model import Model

__all__ = ["MODELS", "Model"]

MODELS: dict[str, Model] = {**linen.MODELS, **nnx.MODELS, **equinox.MODELS, **plain.MODELS}
