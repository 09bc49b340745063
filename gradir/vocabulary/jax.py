"""Data on JAX's operations: its primitives and the custom rules of its library."""

from __future__ import annotations

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
        # Of several cases, the first is the one where the condition does not hold.
        "select_n": "where(2, 1)",
        "top_k": "topk",
    },
    left_out=frozenset({"psum_invariant"}),
    parts=frozenset({"split"}),
    literal="in{}",
    contraction="dimension_numbers",
    defaults={
        "batch_group_count": "1",
        "feature_group_count": "1",
        # Sizes, dtypes that the outputs have too, and what tells where in the program an equation stands.
        **dict.fromkeys(
            ("new_dtype", "new_sizes", "num_consts", "phase", "preferred_element_type", "shape", "stopped"), "*"
        ),
    },
)
