"""Terms that all frameworks share, and rules that rewrite others to them.

A word is called as ONNX and StableHLO call it where these have one, in the spelling of array libraries: ``matmul``,
``gather``, ``layer_norm``. A rule reads ``pattern -> replacement``, both terms of words:

- ``x`` is a value, the same wherever it stands; ``@w`` one that is a parameter;
- ``-`` is an input slot without a gradient, such as a constant, and ``0`` one that is known to hold that number;
- ``~t`` is ``t``, or ``t`` times or by constants; ``%t`` is ``t`` behind masks, too, and constants added to it;
- ``s:t`` calls the value of ``t`` ``s``; ``t?`` is ``t`` or an empty slot;
- ``word[key=value](...)`` is a word with a setting.

Rules are tried in their order, on a node all of whose inputs have been translated. A rule with a condition after
``if`` holds for a ``mean``, whose divisor is how many elements were added up, or by the ``axes`` of a sum: ``last``
ones, or ``lead``, which end before the last.
"""

from __future__ import annotations

from typing import Final

# The word for a product of matrices, which needs only two sizes of a parameter's shape.
PRODUCT: Final = "matmul"
# Words whose inputs may be exchanged.
COMMUTATIVE: Final = frozenset({"add", "maximum", "minimum", "mul"})
# Words whose inputs have no order once transposes are omitted, as that of a product then means nothing.
UNORDERED: Final = COMMUTATIVE | {PRODUCT}
# Words with two inputs, of which a framework may leave out a constant.
TWO_SIDED: Final = COMMUTATIVE | {"div", "pow", "sub", "where"}
# Words that a parameter is more to than a list of numbers, so that its sizes count.
KEEPS_DIMENSIONS: Final = frozenset({"convolution", "gather", PRODUCT})

# The last part of a parameter's name, as the layers of a framework call it, by what all call it here.
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
    "mul(mul(x, -), -) -> mul(x, -)",
    "mul(x, x) -> square(x)",
    "mul(square(x), x) -> cube(x)",
    "div(s:sum(x), -) -> mean(x) if mean",
    "mul(s:sum(x), -) -> mean(x) if mean",
    "div(neg(s:sum(x)), -) -> neg(mean(x)) if mean",
    "mul(neg(s:sum(x)), -) -> neg(mean(x)) if mean",
    "mean(neg(x)) -> neg(mean(x))",
    "sum(neg(x)) -> neg(sum(x))",
    # Variance, and what is made with it.
    "mean(square(sub(x, mean(x)))) -> var[correction=0](x)",
    "div(sum(square(sub(x, mean(x)))), -) -> var(x)",
    "sub(mean(square(x)), square(mean(x))) -> var[correction=0](x)",
    "maximum(var(x), -) -> var[correction=0](x)",
    "where(var(x), -) -> var(x)",
    "mul(sub(x, mean(x)), rsqrt(add(var(x), -))) -> batch_norm(x, -, -) if lead",
    "mul(sub(x, mean(x)), rsqrt(add(var(x), -))) -> layer_norm(x, -, -) if last",
    "div(sub(x, mean(x)), sqrt(add(var(x), -))) -> batch_norm(x, -, -) if lead",
    "div(sub(x, mean(x)), sqrt(add(var(x), -))) -> layer_norm(x, -, -) if last",
    "mul(sub(x, mean(x)), mul(rsqrt(add(var(x), -)), @w)) -> batch_norm(x, w, -) if lead",
    "mul(sub(x, mean(x)), mul(rsqrt(add(var(x), -)), @w)) -> layer_norm(x, w, -) if last",
    "mul(batch_norm(x, -, -), @w) -> batch_norm(x, w, -)",
    "mul(layer_norm(x, -, -), @w) -> layer_norm(x, w, -)",
    "add(batch_norm(x, w?, -), @b) -> batch_norm(x, w, b)",
    "add(layer_norm(x, w?, -), @b) -> layer_norm(x, w, b)",
    "mul(x, rsqrt(add(mean(square(x)), -))) -> rms_norm(x, -)",
    "div(x, sqrt(add(mean(square(x)), -))) -> rms_norm(x, -)",
    "mul(x, mul(rsqrt(add(mean(square(x)), -)), @w)) -> rms_norm(x, w)",
    "mul(rms_norm(x, -), @w) -> rms_norm(x, w)",
    # Of what has no gradient only the parameters are left.
    "batch_norm(-, w, b) -> add(mul(w, -), b)",
    "layer_norm(-, w, b) -> add(mul(w, -), b)",
    "rms_norm(-, w) -> mul(w, -)",
    # Activations.
    "maximum(x, 0) -> relu(x)",
    "mul(x, sigmoid(x)) -> silu(x)",
    "mul(~x, ~add(tanh(~add(x, ~cube(x))), -)) -> gelu[approximate=tanh](x)",
    "mul(~x, ~add(erf(~x), -)) -> gelu[approximate=none](x)",
    "mul(~x, ~erfc(~neg(x))) -> gelu[approximate=none](x)",
    "logaddexp(x, 0) -> softplus(x)",
    "neg(softplus(neg(x))) -> log_sigmoid(x)",
    "where(x, ~expm1(where(x, -))) -> elu(x)",
    "where(x, mul(x, -)) -> leaky_relu(x)",
    # Softmax and what is made with it.
    "div(e:exp(sub(x, -)), sum(e)) -> softmax(x)",
    "div(e:exp(sub(x, amax(x))), sum(e)) -> softmax(x)",
    "div(e:exp(x), sum(e)) -> softmax(x)",
    "sub(s:sub(x, -), log(sum(exp(s)))) -> log_softmax(x)",
    "sub(x, logsumexp(x)) -> log_softmax(x)",
    "sub(log(sum(exp(s:sub(x, -)))), gather(s)) -> neg(gather(log_softmax(x)))",
    "sub(logsumexp(x), gather(x)) -> neg(gather(log_softmax(x)))",
    "add(log(abs(sum(exp(sub(x, -))))), -) -> logsumexp(x)",
    "add(log(sum(exp(sub(x, -)))), -) -> logsumexp(x)",
    "matmul(softmax(%matmul(~q, ~k)), v) -> attention(q, k, v)",
    "matmul(v, softmax(%matmul(~q, ~k))) -> attention(q, k, v)",
    "div(reduce_window_sum(x), -) -> avg_pool(x)",
)
