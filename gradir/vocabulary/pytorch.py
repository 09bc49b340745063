"""Data on PyTorch's operations."""

from __future__ import annotations

from typing import Final

from gradir.vocabulary import Vocabulary

# torch's implementations of attention by device and arguments; in a forward pass they have an underscore.
_ATTENTIONS: Final = tuple(
    f"{beginning}scaled_dot_product_{kind}"
    for beginning in ("", "_")
    for kind in (
        *("cudnn_attention", "efficient_attention", "flash_attention", "flash_attention_for_cpu"),
        "fused_attention_overrideable",
    )
)

_CONVOLUTIONS: Final = tuple(f"conv{kind}{size}d" for kind in ("", "_transpose") for size in (1, 2, 3))

VOCABULARY: Final = Vocabulary(
    shape_operations=frozenset(
        {
            *("alias", "detach", "expand", "permute", "reshape", "reshape_alias", "squeeze", "t", "transpose"),
            *("_reshape_alias", "_unsafe_view", "unsafe_view", "unsqueeze", "view"),
        }
    ),
    accumulators=frozenset({"accumulate_grad"}),
    synonyms={
        **dict.fromkeys(("alias", "reshape_alias", "_reshape_alias", "unsafe_view", "_unsafe_view"), "view"),
        **dict.fromkeys(_ATTENTIONS, "scaled_dot_product_attention"),
        **dict.fromkeys(("cudnn_batch_norm", "miopen_batch_norm"), "native_batch_norm"),
    },
    incidental=("attrs.*_sym_*",),
    unsettled={
        # The default is the accelerator of the release's build, or the device of the tensors.
        "checkpoint_function": ("attrs.device_type",),
        # A workspace of oneDNN.
        "mkldnn_rnn_layer": ("saved.result3", "out[3]"),
    },
    unexposed={
        "native_group_norm": ("attrs.eps",),
        **dict.fromkeys(
            ("flash_attention", "scaled_dot_product_flash_attention"),
            ("saved.philox_*", "saved.rng_state", "saved.unused"),
        ),
        "linalg_lstsq": ("saved.solution",),
        **dict.fromkeys(("cdist_backward", "nextafter", "pdist_backward"), ("attrs", "saved")),
    },
    # Before 2.6 x[:, -1] was x[:][:, -1].
    identities=frozenset({"slice"}),
    # Newer releases mention the bias of norms.
    descriptions={"affine=True, bias=True": "affine=True", "affine=False, bias=False": "affine=False"},
    casts=frozenset({"_to_copy", "to_copy"}),
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
        **dict.fromkeys(("addbmm", "addmm", "addmv", "baddbmm"), "add(matmul(1, 2), 0)"),
        "avg_pool2d": "avg_pool",
        **dict.fromkeys(("bmm", "dot", "mm", "mv"), "matmul"),
        "cat": "concat",
        **dict.fromkeys(("clamp.max=None,min=0", "clamp_min.min=0"), "relu"),
        "constant_pad_nd": "pad",
        **dict.fromkeys(("convolution", *_CONVOLUTIONS), "add(convolution(0, 1), 2)"),
        **dict.fromkeys(("cudnn_batch_norm", "miopen_batch_norm", "native_batch_norm"), "batch_norm"),
        "embedding": "gather",
        **dict.fromkeys(("gather", "index", "index_select", "take_along_dim"), "gather(0)"),
        "hardtanh.max_val=6,min_val=0": "relu6",
        "linalg_vector_norm.ord=2": "sqrt(sum(square(0)))",
        **dict.fromkeys(("linear", "mkldnn_linear"), "add(matmul(0, 1), 2)"),
        "masked_fill": "where(0, 1)",
        "max": "amax",
        **dict.fromkeys(("max_pool2d", "max_pool2d_with_indices", "max_pool3d", "max_pool3d_with_indices"), "max_pool"),
        "min": "amin",
        "mse_loss.reduction=0": "square(sub(0, 1))",
        "mse_loss.reduction=1": "mean(square(sub(0, 1)))",
        "mse_loss.reduction=2": "sum(square(sub(0, 1)))",
        "native_dropout": "dropout",
        **dict.fromkeys(("_fused_rms_norm", "fused_rms_norm", "rms_norm"), "rms_norm(0, 1)"),
        "native_layer_norm": "layer_norm",
        **{
            f"{loss}.reduction={reduction}": term
            for loss in ("nll_loss", "nll_loss2d", "nll_loss2d_forward", "nll_loss_forward")
            for reduction, term in enumerate(("neg(gather(0))", "neg(mean(gather(0)))", "neg(sum(gather(0)))"))
        },
        "pow.exponent=2": "square(0)",
        "pow.exponent=3": "cube(0)",
        "rsub": "sub(1, 0)",
        **dict.fromkeys(("_safe_softmax", "_softmax", "safe_softmax"), "softmax"),
        "_log_softmax": "log_softmax",
        **dict.fromkeys(("scaled_dot_product_attention", *_ATTENTIONS), "attention"),
        "select": "slice",
        "std": "sqrt(var(0))",
        **dict.fromkeys(("tril", "triu"), "where(0)"),
    },
    meanings={
        **dict.fromkeys(("accumulate_grad", "alias", "clone", "contiguous"), "same"),
        **dict.fromkeys(("reshape", "reshape_alias", "squeeze", "unsafe_view", "unsqueeze", "view"), "reshape"),
        **dict.fromkeys(("permute", "t", "transpose"), "permute"),
        "expand": "expand",
        "lift_fresh": "literal",
        **dict.fromkeys(("bmm", "dot", "matmul", "mm", "mv"), "product"),
        **dict.fromkeys(("addmm", "addmv", "baddbmm"), "added product"),
        **dict.fromkeys(("linear", "mkldnn_linear"), "linear"),
        **dict.fromkeys(("scaled_dot_product_attention", *_ATTENTIONS), "attention"),
        **dict.fromkeys(("log_softmax", "softmax"), "along"),
        **dict.fromkeys(("add", "sub"), "add"),
        **dict.fromkeys(("div", "mul"), "mul"),
        **{op: op for op in ("mean", "neg", "sum")},
        **dict.fromkeys(
            (
                *("abs", "clamp", "clamp_max", "clamp_min", "cos", "elu", "erf", "exp", "expm1", "gelu", "hardtanh"),
                *("leaky_relu", "log", "log1p", "masked_fill", "maximum", "minimum", "pow", "reciprocal", "relu"),
                *("rsqrt", "sigmoid", "silu", "sin", "softplus", "sqrt", "square", "tanh", "threshold", "where"),
            ),
            "by element",
        ),
    },
    # A batch norm writes the statistics that the next one reads.
    draws=frozenset(
        {
            *("batch_norm", "bernoulli", "binomial", "cauchy", "dirichlet", "drop", "exponential", "gamma"),
            *("geometric", "gumbel", "multinomial", "normal", "poisson", "rand", "rrelu", "uniform"),
        }
    ),
    settings={"gelu.approximate": "approximate", "var.correction": "correction"},
    left_out=frozenset({"clone", "contiguous", "flip", "view_as"}),
    parts=frozenset({"chunk", "split", "split_with_sizes", "tensor_split", "unbind", "unsafe_split"}),
    axes="dim",
    defaults={
        **dict.fromkeys(("affine", "bias", "count_include_pad", "elementwise_affine"), "true"),
        **dict.fromkeys(("preserve_rng_state", "track_running_stats", "training"), "true"),
        **dict.fromkeys(("alpha", "beta", "dilation", "groups", "stride"), "1"),
        **dict.fromkeys(("output_padding", "padding"), "0"),
        "dropout_p": "0.0",
        # A slice up to the last entry.
        "end": str(2**63 - 1),
        "eps": "1e-05",
        "ignore_index": "-100",
        "momentum": "0.1",
        "padding_idx": "-1",
        **dict.fromkeys(("C", "HxW", "N", "device_type", "mask", "needs_input_grad", "tensor_indices"), "*"),
    },
)
