"""Terms that all frameworks share, and rules that rewrite other terms to them.

Operations have their names in ONNX and StableHLO, in the spelling of array libraries: ``matmul``, ``gather``,
``layer_norm``. A rule is ``pattern -> replacement``, both terms:

- ``x`` is a value, the same at each place, and ``W`` a parameter.
- ``_`` is an input slot without a gradient, such as a constant, and ``0`` a slot known to contain it.
- ``~t`` is ``t`` multiplied or divided by any constants, and ``+t`` also allows masks and added constants.
- ``s := t`` names the value of ``t`` ``s``, and ``[x]`` is ``x`` or an empty slot.
- ``op(..., key=value)`` is an operation with a setting.

The rules apply in order, to a node with translated inputs. After ``if``, ``mean`` requires that the divisor is the
number of summed elements. ``last`` requires that a sum is over the last axes, and ``lead`` that its axes end before
the last.
"""

from __future__ import annotations

from typing import Final

# The matrix product, which needs only two sizes of a parameter's shape.
PRODUCT: Final = "matmul"
# Operations whose inputs may be exchanged.
COMMUTATIVE: Final = frozenset({"add", "maximum", "minimum", "mul"})
# Operations whose inputs have no order without transposes; this includes the matrix product.
UNORDERED: Final = COMMUTATIVE | {PRODUCT}
# Operations with two inputs, of which a framework may omit a constant.
TWO_SIDED: Final = COMMUTATIVE | {"div", "pow", "sub", "where"}
# Operations for which the shape of a parameter counts.
KEEPS_DIMENSIONS: Final = frozenset({"convolution", "gather", PRODUCT})

# The shared names of parameters, by the last part of their names in the layers of a framework.
NAMES: Final = {
    "b": "bias",
    "beta": "bias",
    "embedding": "weight",
    "gamma": "weight",
    "kernel": "weight",
    "scale": "weight",
    "w": "weight",
}

RULES: Final = (
    "mul(mul(x, _), _) -> mul(x, _)",
    "mul(x, x) -> square(x)",
    "mul(square(x), x) -> cube(x)",
    "div(s := sum(x), _) -> mean(x) if mean",
    "mul(s := sum(x), _) -> mean(x) if mean",
    "div(neg(s := sum(x)), _) -> neg(mean(x)) if mean",
    "mul(neg(s := sum(x)), _) -> neg(mean(x)) if mean",
    "mean(neg(x)) -> neg(mean(x))",
    "sum(neg(x)) -> neg(sum(x))",
    # Variance and normalisations.
    "mean(square(sub(x, mean(x)))) -> var(x, correction=0)",
    "div(sum(square(sub(x, mean(x)))), _) -> var(x)",
    "sub(mean(square(x)), square(mean(x))) -> var(x, correction=0)",
    "maximum(var(x), _) -> var(x, correction=0)",
    "where(var(x), _) -> var(x)",
    "mul(sub(x, mean(x)), rsqrt(add(var(x), _))) -> batch_norm(x, _, _) if lead",
    "mul(sub(x, mean(x)), rsqrt(add(var(x), _))) -> layer_norm(x, _, _) if last",
    "div(sub(x, mean(x)), sqrt(add(var(x), _))) -> batch_norm(x, _, _) if lead",
    "div(sub(x, mean(x)), sqrt(add(var(x), _))) -> layer_norm(x, _, _) if last",
    "mul(sub(x, mean(x)), mul(rsqrt(add(var(x), _)), W)) -> batch_norm(x, W, _) if lead",
    "mul(sub(x, mean(x)), mul(rsqrt(add(var(x), _)), W)) -> layer_norm(x, W, _) if last",
    "div(mul(sub(x, mean(x)), W), sqrt(add(var(x), _))) -> layer_norm(x, W, _) if last",
    "mul(batch_norm(x, _, _), W) -> batch_norm(x, W, _)",
    "mul(layer_norm(x, _, _), W) -> layer_norm(x, W, _)",
    "add(batch_norm(x, [w], _), B) -> batch_norm(x, w, B)",
    "add(layer_norm(x, [w], _), B) -> layer_norm(x, w, B)",
    "mul(x, rsqrt(add(mean(square(x)), _))) -> rms_norm(x, _)",
    "div(x, sqrt(add(mean(square(x)), _))) -> rms_norm(x, _)",
    "mul(x, mul(rsqrt(add(mean(square(x)), _)), W)) -> rms_norm(x, W)",
    "mul(rms_norm(x, _), W) -> rms_norm(x, W)",
    # A normalised input without a gradient leaves only the parameters.
    "batch_norm(_, w, b) -> add(mul(w, _), b)",
    "layer_norm(_, w, b) -> add(mul(w, _), b)",
    "rms_norm(_, w) -> mul(w, _)",
    # Activations.
    "maximum(x, 0) -> relu(x)",
    "mul(x, sigmoid(x)) -> silu(x)",
    "mul(~x, ~add(tanh(~add(x, ~cube(x))), _)) -> gelu(x, approximate=tanh)",
    "mul(~x, ~add(erf(~x), _)) -> gelu(x, approximate=none)",
    "mul(~x, ~erfc(~neg(x))) -> gelu(x, approximate=none)",
    "logaddexp(x, 0) -> softplus(x)",
    "neg(softplus(neg(x))) -> log_sigmoid(x)",
    "where(x, ~expm1(where(x, _))) -> elu(x)",
    "where(x, mul(x, _)) -> leaky_relu(x)",
    # Softmax, losses and attention.
    "div(e := exp(sub(x, _)), sum(e)) -> softmax(x)",
    "div(e := exp(sub(x, amax(x))), sum(e)) -> softmax(x)",
    "div(e := exp(x), sum(e)) -> softmax(x)",
    "sub(s := sub(x, _), log(sum(exp(s)))) -> log_softmax(x)",
    "sub(x, logsumexp(x)) -> log_softmax(x)",
    "sub(log(sum(exp(s := sub(x, _)))), gather(s)) -> neg(gather(log_softmax(x)))",
    "sub(logsumexp(x), gather(x)) -> neg(gather(log_softmax(x)))",
    "add(log(abs(sum(exp(sub(x, _))))), _) -> logsumexp(x)",
    "add(log(sum(exp(sub(x, _)))), _) -> logsumexp(x)",
    "matmul(softmax(+matmul(~q, ~k)), v) -> attention(q, k, v)",
    "matmul(v, softmax(+matmul(~q, ~k))) -> attention(q, k, v)",
    "matmul(~softmax(+matmul(~q, ~k)), v) -> attention(q, k, v, weights=masked)",
    "matmul(dropout(softmax(+matmul(~q, ~k))), v) -> attention(q, k, v, weights=masked)",
    "div(reduce_window_sum(x), _) -> avg_pool(x)",
)

# The names of compositions in reports, by their words in alphabetical order; ``bias`` is the addition of a tensor.
COMPOSITIONS: Final = {
    "attention": "attention",
    "attention[weights=masked]": "attention with masked weights",
    "batch_norm": "batch norm",
    "bias matmul": "linear layer",
    **{f"gather log_softmax {reduction}": "cross entropy" for reduction in ("mean neg", "neg", "neg sum")},
    **{f"gather {reduction}": "negative log likelihood" for reduction in ("mean neg", "neg", "neg sum")},
    "elu": "ELU",
    "gelu[approximate=none]": "erf-GELU",
    "gelu[approximate=tanh]": "tanh-GELU",
    "layer_norm": "layer norm",
    "leaky_relu": "leaky ReLU",
    "log_sigmoid": "log-sigmoid",
    "log_softmax": "log-softmax",
    "mean square sub": "mean squared error",
    "rms_norm": "RMS norm",
    "silu": "SiLU",
    "softmax": "softmax",
    "softplus": "softplus",
}
