"""The advice on causes in JAX, where it differs from PyTorch's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# By kind, or kind and operation, as in `gradir.vocabulary.causes`.
JAX_ADVICE: Final[Mapping[str, str]] = {
    "nonfinite": "keep the input of {op} finite and away from where its derivative is infinite, by jnp.clip, "
    "jnp.maximum or a small number added before {op}: a jnp.where after it hides the value and not the derivative",
    "where_trap": "give {op} a safe input where its result is not taken, by a jnp.where before it as well: "
    "jnp.where(mask, {op}(jnp.where(mask, x, 1.0)), other)",
    "not_in_optimizer": "let the optimizer update {it}, or ignore this if {names} should stay, as with "
    "optax.set_to_zero",
    "moves_nothing": "give the optimizer the leaves that the loss depends on: check its labels or its mask, and "
    "what the loss is computed with",
    "raised": "give {op} a rule with jax.custom_vjp, or stop_gradient what it takes if nothing should learn by it",
    "all_masked": "keep an entry in each row of the mask, or fill with jnp.finfo(x.dtype).min instead of -jnp.inf "
    "and leave such rows out of the loss",
    "born": "keep what {op} gets inside its range, by jnp.clip or a small number added before it, or compute it in "
    "a wider dtype",
    "born exp": "bound what exp gets, as by jnp.minimum(x, 20), or stay with logarithms, as jax.nn.logsumexp does",
    **dict.fromkeys(("born log", "born log1p"), "keep what {op} gets above 0, as by jnp.maximum(x, 1e-6)"),
    "nonfinite_input": "look for what is not finite in the data, such as by jnp.isfinite(x).all(), and replace it "
    "or leave it out",
    "nondifferentiable": "use something with a derivative instead, such as jax.nn.softmax for an argmax or "
    "jax.nn.sigmoid for a comparison",
    **dict.fromkeys(
        (f"nondifferentiable {op}" for op in ("ceil", "floor", "round", "sign")),
        "let the gradient pass it by, as in x + jax.lax.stop_gradient(jnp.{op}(x) - x), or use a soft one",
    ),
}
