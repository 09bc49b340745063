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
    shared={
        "addbmm": "add(matmul(1, 2), 0)",
        "addmm": "add(matmul(1, 2), 0)",
        "addmv": "add(matmul(1, 2), 0)",
        "avg_pool2d": "avg_pool",
        "baddbmm": "add(matmul(1, 2), 0)",
        "bmm": "matmul",
        "cat": "concat",
        "clamp.max=None,min=0": "relu",
        "clamp_min.min=0": "relu",
        "constant_pad_nd": "pad",
        "convolution": "add(convolution(0, 1), 2)",
        "cudnn_batch_norm": "batch_norm",
        "dot": "matmul",
        "embedding": "gather",
        "gather": "gather(0)",
        "hardtanh.max_val=6,min_val=0": "relu6",
        "index": "gather(0)",
        "index_select": "gather(0)",
        "linalg_vector_norm.ord=2": "sqrt(sum(square(0)))",
        "linear": "add(matmul(0, 1), 2)",
        "masked_fill": "where(0, 1)",
        "max": "amax",
        "max_pool2d_with_indices": "max_pool",
        "min": "amin",
        "miopen_batch_norm": "batch_norm",
        "mkldnn_linear": "add(matmul(0, 1), 2)",
        "mm": "matmul",
        "mse_loss.reduction=0": "square(sub(0, 1))",
        "mse_loss.reduction=1": "mean(square(sub(0, 1)))",
        "mse_loss.reduction=2": "sum(square(sub(0, 1)))",
        "mv": "matmul",
        "native_batch_norm": "batch_norm",
        "native_dropout": "dropout",
        "native_layer_norm": "layer_norm",
        "nll_loss.reduction=0": "neg(gather(0))",
        "nll_loss.reduction=1": "neg(mean(gather(0)))",
        "nll_loss.reduction=2": "neg(sum(gather(0)))",
        "nll_loss2d.reduction=0": "neg(gather(0))",
        "nll_loss2d.reduction=1": "neg(mean(gather(0)))",
        "nll_loss2d.reduction=2": "neg(sum(gather(0)))",
        "pow.exponent=2": "square(0)",
        "pow.exponent=3": "cube(0)",
        "rsub": "sub(1, 0)",
        "safe_softmax": "softmax",
        "scaled_dot_product_attention": "attention",
        "scaled_dot_product_cudnn_attention": "attention",
        "scaled_dot_product_efficient_attention": "attention",
        "scaled_dot_product_flash_attention": "attention",
        "scaled_dot_product_flash_attention_for_cpu": "attention",
        "scaled_dot_product_fused_attention_overrideable": "attention",
        "select": "slice",
        "std": "sqrt(var(0))",
        "take_along_dim": "gather(0)",
        "tril": "where(0)",
        "triu": "where(0)",
    },
    settings={"gelu.approximate": "approximate", "var.correction": "correction"},
    left_out=frozenset({"clone", "contiguous", "flip", "view_as"}),
    parts=frozenset({"chunk", "split", "split_with_sizes", "tensor_split", "unbind", "unsafe_split"}),
)
