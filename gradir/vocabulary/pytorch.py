"""What there is to know of PyTorch's operations."""

from __future__ import annotations

from typing import Final

from gradir.vocabulary import Vocabulary

__all__ = ["VOCABULARY"]

VOCABULARY: Final = Vocabulary(
    shape_operations=frozenset(
        {
            "alias",
            "detach",
            "expand",
            "permute",
            "reshape",
            "reshape_alias",
            "squeeze",
            "t",
            "transpose",
            "unsafe_view",
            "unsqueeze",
            "view",
        }
    ),
    accumulators=frozenset({"accumulate_grad"}),
    synonyms={
        "unsafe_view": "view",
        "reshape_alias": "view",
        "alias": "view",
        "scaled_dot_product_flash_attention_for_cpu": "scaled_dot_product_attention",
        "scaled_dot_product_flash_attention": "scaled_dot_product_attention",
        "scaled_dot_product_efficient_attention": "scaled_dot_product_attention",
        "scaled_dot_product_cudnn_attention": "scaled_dot_product_attention",
        "scaled_dot_product_fused_attention_overrideable": "scaled_dot_product_attention",
        "cudnn_batch_norm": "native_batch_norm",
        "miopen_batch_norm": "native_batch_norm",
    },
    incidental=("attrs.*_sym_*",),
    # Newer releases say of norms whether they have a bias.
    descriptions={"affine=True, bias=True": "affine=True", "affine=False, bias=False": "affine=False"},
    casts=frozenset({"to_copy"}),
    values={
        "reduction": ("none", "mean", "sum"),
        "embedding_bag.mode": ("sum", "mean", "max"),
        **{
            f"{sampler}.{attribute}": names
            for sampler in ("grid_sampler_2d", "grid_sampler_3d", "cudnn_grid_sampler")
            for attribute, names in {
                "interpolation_mode": ("bilinear", "nearest", "bicubic"),
                "padding_mode": ("zeros", "border", "reflection"),
            }.items()
        },
    },
    sizes=("attrs.*_sym_*", "attrs.normalized_shape"),
)
