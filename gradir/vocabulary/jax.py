"""Data on JAX's operations: its primitives, the custom rules of its library, and advice on causes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gradir.vocabulary import Vocabulary

VOCABULARY: Final = Vocabulary(
    shape_operations=frozenset(
        {
            *("broadcast", "broadcast_in_dim", "copy", "copy_p", "expand_dims", "layout_constraint", "name"),
            *("optimization_barrier", "pvary", "reshape", "reshard", "rev", "sharding_constraint", "squeeze"),
            "transpose",
        }
    ),
    synonyms={
        **dict.fromkeys(("checkpoint", "remat2"), "remat"),
        **dict.fromkeys(("closed_call", "core_call", "pjit"), "jit"),
        "copy_p": "copy",
        "custom_vjp_call_jaxpr": "custom_vjp_call",
    },
    casts=frozenset({"convert_element_type", "device_put", "reduce_precision"}),
    shared={
        "add_any": "add",
        "concatenate": "concat",
        "conv_general_dilated": "convolution",
        "dot_general": "matmul",
        "dynamic_slice": "slice(0)",
        "gather": "gather(0)",
        "integer_pow.y=2": "square(0)",
        "integer_pow.y=3": "cube(0)",
        "integer_pow": "pow",
        "logistic": "sigmoid",
        "max": "maximum",
        "min": "minimum",
        "pow.in1=2": "square(0)",
        "pow.in1=3": "cube(0)",
        "ragged_dot": "matmul",
        "reduce_max": "amax",
        "reduce_min": "amin",
        "reduce_prod": "prod",
        "reduce_sum": "sum",
        "reduce_window_max": "max_pool",
        # The first case is for a false condition.
        "select_n": "where(2, 1)",
        "top_k": "topk",
    },
    left_out=frozenset({"psum_invariant"}),
    parts=frozenset({"split"}),
    literal="in{}",
    contraction="dimension_numbers",
    axes="axes",
    defaults={
        "batch_group_count": "1",
        "feature_group_count": "1",
        # Sizes, dtypes that the outputs have too, and the place of an equation in the program.
        **dict.fromkeys(
            ("new_dtype", "new_sizes", "num_consts", "phase", "preferred_element_type", "shape", "stopped"), "*"
        ),
    },
)


# By kind, or kind and operation, as in `gradir.vocabulary.causes`.
JAX_ADVICE: Final[Mapping[str, str]] = {
    "nonfinite": "keep the input of {op} finite and away from where its derivative is infinite, by jnp.clip, "
    "jnp.maximum or a small number added before {op}: a jnp.where after it hides the value and not the derivative",
    "where_trap": "give {op} a safe input where its result is not taken, by a jnp.where before it as well: "
    "jnp.where(mask, {op}(jnp.where(mask, x, 1.0)), other)",
    "not_in_optimizer": "let the optimizer update {it}, or ignore this if {names} should stay, as with "
    "optax.set_to_zero",
    "moves_nothing": "give the optimizer the leaves that the loss depends on: check its labels or its mask, and "
    "the inputs of the loss",
    "no_movement": "check the learning rate and the limit of the clipping, or use optax.set_to_zero if {names} should "
    "stay",
    "underflow": "multiply the loss by a constant such as 1024, and divide the gradients by it, or compute {op} in "
    "bfloat16 or float32",
    "raised": "give {op} a rule with jax.custom_vjp, or stop_gradient its inputs if nothing should learn by it",
    "all_masked": "keep an entry in each row of the mask, or fill with jnp.finfo(x.dtype).min instead of -jnp.inf "
    "and leave such rows out of the loss",
    "born": "keep the input of {op} inside its range, by jnp.clip or a small number added before it, or compute it in "
    "a wider dtype",
    "loss_undefined": "keep the input of {op} inside its range, by jnp.clip or a small number added before it",
    "born exp": "bound the input of exp, as by jnp.minimum(x, 20), or stay in log space, as jax.nn.logsumexp does",
    **dict.fromkeys(("born log", "born log1p"), "keep the input of {op} above 0, as by jnp.maximum(x, 1e-6)"),
    "nonfinite_input": "look for values that are not finite in the data, such as by jnp.isfinite(x).all(), and replace "
    "or leave out those",
    "nondifferentiable": "use something with a derivative instead, such as jax.nn.softmax for an argmax or "
    "jax.nn.sigmoid for a comparison",
    **dict.fromkeys(
        (f"nondifferentiable {op}" for op in ("ceil", "floor", "round", "sign")),
        "let the gradient pass it by, as in x + jax.lax.stop_gradient(jnp.{op}(x) - x), or use a soft one",
    ),
}
