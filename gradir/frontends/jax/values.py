"""Numbers for the leaves of a function: those that were given, or drawn ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gradir.errors import CaptureError
from gradir.frontends.jax.arguments import Arguments
from gradir.frontends.texts import plain_text

__all__ = ["are_known", "can_run", "drawn", "gradients"]

_LONGEST = 300


def are_known(leaves: Sequence[Any]) -> bool:
    """Whether all leaves have numbers, and not a shape and a dtype alone."""
    return not any(isinstance(leaf, (jax.ShapeDtypeStruct, jax.core.Tracer)) for leaf in leaves)


def drawn(leaves: Sequence[Any]) -> list[Any]:
    """The leaves, with numbers in place of those that have none: floats from a normal distribution, else 1 and 0."""
    return [leaf if are_known([leaf]) else _number(leaf, place) for place, leaf in enumerate(leaves)]


def gradients(fn: Callable[[Any, Any], Any], given: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """What a real backward from the sum of all outputs brings to the leaves that are given.

    Raises:
        CaptureError: the backward cannot run.
    """
    try:
        # Compiled as a whole it takes a tenth of the time of operation by operation.
        made: list[Any] = jax.jit(partial(_backward, fn))([*given], [*others])
        return made
    except (ValueError, TypeError, NotImplementedError, RuntimeError) as error:
        raise CaptureError(f"the backward cannot run: {plain_text(' '.join(str(error).split())[:_LONGEST])}") from error


def can_run(arguments: Arguments) -> bool:
    """Whether a backward runs that is not compiled, in which the bounds of loops may be numbers."""
    try:
        _backward(arguments.fn, *arguments.given)
    except (ValueError, TypeError, NotImplementedError, RuntimeError):
        return False
    return True


def _backward(fn: Callable[[Any, Any], Any], given: list[Any], others: list[Any]) -> Any:
    outputs, pull = jax.vjp(lambda given: fn(given, others), given)
    return pull(_cotangents(outputs))[0]


def _cotangents(outputs: Any) -> Any:
    """One for each output that has a gradient."""
    return jax.tree_util.tree_map(
        lambda output: (
            jnp.ones(output.shape, output.dtype)
            if jax.dtypes.issubdtype(output.dtype, np.inexact)
            else np.zeros(output.shape, jax.dtypes.float0)
        ),
        outputs,
    )


def _number(leaf: Any, place: int) -> Any:
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.split(jax.random.key(0), leaf.shape) if leaf.shape else jax.random.key(0)
    key = jax.random.fold_in(jax.random.key(0), place)
    if jax.dtypes.issubdtype(leaf.dtype, np.complexfloating):
        real, imaginary = (jax.random.normal(each, leaf.shape) for each in jax.random.split(key))
        return (real + 1j * imaginary).astype(leaf.dtype)
    if jax.dtypes.issubdtype(leaf.dtype, np.inexact):
        return jax.random.normal(key, leaf.shape, jnp.float32).astype(leaf.dtype)
    # What most tables have rows for, and not all the same: attention to equal tokens moves no query.
    numbers = np.arange(1, math.prod(leaf.shape) + 1) % 2
    return jnp.asarray(numbers.reshape(leaf.shape), leaf.dtype)
