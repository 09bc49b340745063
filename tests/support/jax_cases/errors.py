"""What cannot be captured, and the one line that says so; ``{line}`` is the line that ends in ``# HERE``."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jax_cases.model import Cases, S, W, X, f32, i32

case = CASES = Cases()

HERE = "at tests/support/jax_cases/errors.py:{line}"


@case({"w": W}, X, error=f"while {HERE}: Reverse-mode differentiation does not work for lax.while_loop")
def while_loop(p, x):
    return lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, jnp.tanh(s[1] @ p["w"])), (0, x))[1].sum()  # HERE


@case({"w": W}, X, S((), i32), error=f"while {HERE}: Reverse-mode differentiation does not work for lax.while_loop")
def fori_loop_of_unknown_length(p, x, n):
    return lax.fori_loop(0, n, lambda _, h: jnp.tanh(h @ p["w"]), x).sum()  # HERE


@case({"w": W}, X, error=f"pure_callback {HERE}: Pure callbacks do not support JVP")
def callback_without_a_rule(p, x):
    return jax.pure_callback(np.sin, S((4, 8), f32), x @ p["w"]).sum()  # HERE


@case({"w": W}, X, error=f"io_callback {HERE}: IO callbacks do not support JVP")
def io_callback(p, x):
    return jax.experimental.io_callback(np.sin, S((4, 8), f32), x @ p["w"]).sum()  # HERE


@case({"w": W}, X, error=f"new_ref {HERE} uses a mutable array, through which gradients cannot be followed")
def mutable_array(p, x):
    r = jax.new_ref(jnp.zeros((4, 8)))  # HERE
    r[...] = x @ p["w"]
    return r[...].sum()


@case(
    {"w": W},
    X,
    error="no gradient flows from the result of nothing_differentiable to a differentiated argument: "
    f"it ends in floor {HERE}",
)
def nothing_differentiable(p, x):
    return jnp.sum(jnp.floor(x @ p["w"]))  # HERE


@case({"w": W}, X, error="no gradient flows from the result of nothing_used to a differentiated argument")
def nothing_used(p, x):
    return x.sum()


@case(
    S((), i32), error="no_leaf_of_floats has nothing to differentiate: no leaf of the argument 0 is an array of floats"
)
def no_leaf_of_floats(n):
    return n * 2.0


@case(
    {"name": "static", "n": 3},
    error="no_array_at_all has nothing to differentiate: no leaf of the argument 0 is an array of floats",
)
def no_array_at_all(p):
    return 2.0 * p["n"]


@case(B := S((8,), f32), error="integer_output returns nothing that has a gradient: its outputs are of int32")
def integer_output(w):
    return jnp.argmax(w)


@case(B, error="no_output returns nothing that has a gradient: it has no output")
def no_output(_w):
    return None


@case(error="without_arguments is called without an argument")
def without_arguments():
    return jnp.sum(jnp.ones(3))


@case(B, argnums=1, error="argnums is 1, and the function is called with 1 positional arguments")
def no_such_argument(w):
    return w.sum()


@case(B, argnums="w", error="argnums is 'w'; expected an integer, or a tuple of integers")
def argument_by_name(w):
    return w.sum()


@case(B, has_aux=True, error="with has_aux, the function must return a pair")
def aux_missing(w):
    return w.sum()
