"""Sentences for single operations, custom Functions and errors, if those of the cause's kind are too general."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_SOFT_CHOICE: Final = (
    "weigh the entries by a softmax instead of choosing one, or choose with gumbel_softmax(hard=True), which passes a "
    "gradient on"
)
_COLLECTIVE: Final = (
    "{op} has no backward, which cuts {names}",
    "use a collective that has one, such as those of torch.distributed.nn.functional, or put the tensor of this rank "
    "back into the result: gathered[rank] = x",
)
_CAST: Final = (
    "use a float for values that should learn: an index or a mask gives {names} no gradient, but an interpolation "
    "between entries and a soft mask do"
)
_COMPARISON: Final = (
    "use something soft instead, such as torch.sigmoid((a - b) / temperature), or add a straight-through estimator "
    "around {op}"
)
_INDICES: Final = "use the values that {op} returns, which have a gradient, or soft weights instead of its indices"
_COUNT: Final = "count softly instead, by a sum of kernels or of softmax weights over the bins"
_DRAW: Final = (
    "use a loss of log_prob() of the sample, which reaches {names} another way, or choose with "
    "gumbel_softmax(hard=True)"
)
_PRODUCT: Final = (
    "scale one of the two before they are multiplied, as in (q / d**0.5) @ k for (q @ k) / d**0.5, or compute it in "
    "bfloat16 or float32"
)
_SPREAD: Final = (
    "leave it out where there is a single entry, or use (x.var(dim, unbiased=False) + 1e-8).sqrt(), which is finite "
    "there"
)

_COLLECTIVES: Final = (
    *("all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_single", "all_reduce", "all_to_all"),
    *("all_to_all_single", "broadcast", "reduce", "reduce_scatter", "reduce_scatter_single", "reduce_scatter_tensor"),
)
# The advice by kind and operation, or the sentence and the advice.
_OPERATIONS: Final[Mapping[str, Mapping[str, str | tuple[str, str]]]] = {
    "nondifferentiable": {
        **dict.fromkeys(_COLLECTIVES, _COLLECTIVE),
        **dict.fromkeys(("bool", "byte", "char", "int", "long", "short", "to", "type"), _CAST),
        **dict.fromkeys(
            ("eq", "ge", "greater", "greater_equal", "gt", "isclose", "le", "less", "lt", "ne"), _COMPARISON
        ),
        **dict.fromkeys(("argmax", "argmin", "one_hot"), _SOFT_CHOICE),
        **dict.fromkeys(("argsort", "max", "median", "min", "mode", "sort", "topk"), _INDICES),
        **dict.fromkeys(("bincount", "bucketize", "histc", "histogram", "nonzero", "searchsorted", "unique"), _COUNT),
    },
    "exit": {
        "saving": (
            "a tensor that is saved here is loaded again without its graph, which cuts {names}",
            "pass on the tensor itself, and save only tensors that need no gradient",
        ),
    },
    **dict.fromkeys(("no_derivative", "withheld"), dict.fromkeys(_COLLECTIVES, _COLLECTIVE)),
    "born": {
        **dict.fromkeys(("baddbmm", "bmm", "einsum", "matmul", "mm"), _PRODUCT),
        **dict.fromkeys(("std", "var"), _SPREAD),
        "div": "keep its divisor away from 0, by a clamp or a small added number",
        "exp": "bound the input of exp, as by x.clamp(max=20), or stay in log space, as torch.logsumexp does",
        **dict.fromkeys(("log", "log2", "log10"), "keep the input of {op} above 0, as by {op}(x.clamp(min=1e-6))"),
    },
    "nonfinite": {
        "ctc_loss": "pass zero_infinity=True, or leave out samples with more targets than inputs, with an infinite loss"
    },
    "sample": {
        **dict.fromkeys(("bernoulli", "binomial", "multinomial", "poisson"), _DRAW),
        "normal": "use rsample(), which draws the noise apart from {names}, or a loss of log_prob() of the sample",
    },
    "flat": {
        **dict.fromkeys(
            ("ceil", "floor", "round", "trunc"),
            "let the gradient pass it by, as in x + ({op}(x) - x).detach(), or use a soft rounding",
        ),
        **dict.fromkeys(
            ("sgn", "sign"), "use tanh instead, or let the gradient pass it by: x + ({op}(x) - x).detach()"
        ),
        "normal": "draw the noise on its own, as in mean + std * torch.randn_like(std)",
        "bernoulli": "use a loss of log_prob() of the sample, or let the gradient pass: p + (sample - p).detach()",
    },
}

# The public names of torch's internal operations, for causes without the name in the program.
OWN_NAMES: Final[Mapping[str, str]] = {
    "addmm": "linear",
    **dict.fromkeys(("bmm", "mm"), "matmul"),
    "convolution": "convolution",
    **dict.fromkeys(("cudnn_rnn", "mkldnn_rnn_layer"), "RNN"),
    **dict.fromkeys(("grid_sampler2d", "grid_sampler3d"), "grid_sample"),
    "index_put": "index_put",
    **dict.fromkeys(("cudnn_batch_norm", "native_batch_norm"), "batch_norm"),
    "native_group_norm": "group_norm",
    "native_layer_norm": "layer_norm",
    **dict.fromkeys(("nll_loss", "nll_loss2d"), "nll_loss"),
    "to_copy": "to",
}

# The names in a sentence of operations with an operator or a longer name in the program.
DISPLAY_NAMES: Final[Mapping[str, str]] = {
    "getitem": "an index",
    "grad": "torch.autograd.grad",
    **dict.fromkeys(("index_put_", "setitem"), "an assignment to an index"),
}

# The same for a custom Function, which begins with a capital letter like any class.
FUNCTIONS: Final[Mapping[str, tuple[str, str]]] = {
    "nondifferentiable": (
        "the custom Function {op} gives a result without a gradient, which cuts {names}",
        "give {op}.apply each tensor as a separate argument and not in a list, and mark no result of it with "
        "mark_non_differentiable",
    ),
    "withheld": (
        "{op}.backward returns no gradient for {names}",
        "return a gradient in {op}.backward for every input that needs one, and look for a detach inside it",
    ),
    **dict.fromkeys(
        ("given_zero", "zero"),
        (
            "{op}.backward returns a gradient of zero for {names}",
            "check what {op}.backward computes with the gradient that it gets; torch.autograd.gradcheck compares it "
            "with the derivative",
        ),
    ),
    "nonfinite": (
        "{op}.backward returns an infinite or NaN gradient for {names}",
        "check the divisions, roots and logarithms in {op}.backward; torch.autograd.gradcheck compares it with the "
        "derivative",
    ),
}

# A part of a framework's error, and the advice.
_ERRORS: Final = (
    (
        "Can't call numpy() on Tensor that requires grad",
        "compute it with tensors instead; detach().numpy() is for what is only shown or stored, since it cuts the "
        "gradient",
    ),
    (
        "grad can be implicitly created only for scalar outputs",
        "reduce the loss to one number first, such as by loss.mean(), or pass the gradient of each entry to backward",
    ),
    (
        "leaf Variable that requires grad is being used in an in-place operation",
        "write out of place (w = w + 1), or change a parameter under torch.no_grad() if no gradient should pass",
    ),
    (
        "does not require grad and does not have a grad_fn",
        "explain the loss to find the line where it loses its graph: `rec.explain(loss)`",
    ),
    (
        "backward through the graph a second time",
        "compute the loss again before each backward, detach() values from the last step, or add up the losses and "
        "call backward once",
    ),
    ("only Tensors of floating point", "convert it to floats first: integers and booleans have no gradient"),
    (
        "appears to not have been used in the graph",
        "check that the output is computed from this tensor itself and not from a copy, or pass allow_unused=True",
    ),
    (
        "One of the differentiated Tensors does not require grad",
        "call requires_grad_() on the second argument, the tensor to differentiate by, before the forward that "
        "computes with it, as in t = t.requires_grad_()",
    ),
    (
        "support the deepcopy protocol",
        "copy computed tensors only after detach(), or keep them out of the attributes of the copied object",
    ),
    (
        "is a view and is being modified inplace",
        "write out of place here (x = x + 1 for x += 1), or clone() the view before",
    ),
    (
        "shapes cannot be multiplied",
        "make the last dimension of the input the in_features of the layer, or transpose or flatten it before",
    ),
    ("must have the same dtype", "convert one of the two with .to(other.dtype), or run both under torch.autocast"),
    ("expected scalar type", "convert one of the two with .to(other.dtype), or run both under torch.autocast"),
    ("to be on the same device", "move the inputs and the model to one device, such as by x.to(weight.device)"),
    ("out of memory", "use smaller batches, activation checkpointing, or torch.no_grad() where nothing should learn"),
    (
        "is out of bounds",
        "check that targets are from 0 to the number of classes - 1, and indices below the size of the table",
    ),
    (
        "should be between 0 and 1",
        "apply a sigmoid before, or use binary_cross_entropy_with_logits, which takes any numbers",
    ),
    (
        "Expected to have finished reduction in the prior iteration",
        "let the loss depend on all parameters of the module, or pass find_unused_parameters=True to "
        "DistributedDataParallel",
    ),
    (
        "returned an incorrect number of gradients",
        "return one value from backward for each argument of forward after ctx, None where it needs no gradient",
    ),
    (
        "returned an invalid gradient",
        "return gradients of the shapes of the inputs from backward, such as grad.expand_as(x) for a sum",
    ),
    ("Inference tensors cannot be saved for backward", "use torch.no_grad() instead of torch.inference_mode() there"),
)


def find_operation_text(kind: str, op: str) -> tuple[str, str]:
    """Return the sentence and the advice for an operation, each empty if that of the kind fits."""
    if op[:1].isupper() and kind in FUNCTIONS:
        return FUNCTIONS[kind]
    found = _OPERATIONS.get(kind, {}).get(op.strip("_"), "")
    return ("", found) if isinstance(found, str) else found


def advice_on_error(error: str) -> str:
    """Return the advice on a framework's error, or an empty text."""
    return next((advice for part, advice in _ERRORS if part in error), "")
