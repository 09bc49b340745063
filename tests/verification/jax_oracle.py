"""What JAX itself says of a gradient, without gradir: real gradients, residuals of the whole function, XLA's memory."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree_util

# What is compiled here runs once.
jax.config.update("jax_disable_most_optimizations", True)

__all__ = ["Question", "find_moved", "make_question", "residual_bytes"]


class Question(NamedTuple):
    """A function of the differentiated leaves and the others, these leaves, and the names of the first."""

    fn: Callable[[Sequence[Any], Sequence[Any]], Any]
    leaves: list[Any]
    others: list[Any]
    names: list[str]


def make_question(
    fn: Callable[..., Any], args: Sequence[Any], argnums: int | tuple[int, ...] = 0, *, has_aux: bool = False
) -> Question:
    """The question of a call as ``jax.grad(fn, argnums, has_aux)(*args)``.

    Of a module of nnx it is asked of its `nnx.Param`, and beside a module of equinox floats of Python are no leaves.
    """
    count = len(args)
    numbers = [number % count for number in (argnums if isinstance(argnums, tuple) else (argnums,))]
    called = getattr(fn, "__wrapped__", fn).__code__.co_varnames
    is_number = () if _has_equinox(args) else (float,)
    fn, args = _split_states(fn, args)
    found, tree = tree_util.tree_flatten_with_path(tuple(args))
    arrays = [place for place, (_, leaf) in enumerate(found) if hasattr(leaf, "dtype") or isinstance(leaf, is_number)]
    chosen = [p for p in arrays if found[p][0][0].idx in numbers and jnp.issubdtype(_dtype(found[p][1]), jnp.inexact)]
    beside = [place for place in arrays if place not in chosen]

    def name(place: int) -> str:
        path = found[place][0]
        inside = tree_util.keystr(path[1:], simple=True, separator=".").removeprefix("params.").removesuffix(".value")
        argument = called[path[0].idx]
        return ".".join(filter(None, (argument, inside))) if len(numbers) > 1 else inside or argument

    def call_with_leaves(leaves: Sequence[Any], others: Sequence[Any]) -> Any:
        values = [leaf for _, leaf in found]
        for place, value in (*zip(chosen, leaves, strict=True), *zip(beside, others, strict=True)):
            values[place] = value
        result = fn(*tree_util.tree_unflatten(tree, values))
        return result[0] if has_aux else result

    return Question(
        call_with_leaves, [found[p][1] for p in chosen], [found[p][1] for p in beside], [name(p) for p in chosen]
    )


def find_moved(question: Question) -> set[str]:
    """The names of the leaves to which a real backward gives anything but zero."""
    fn, leaves, others, names = question
    numbers = np.random.default_rng(7)
    given, beside = ([_draw_value(leaf, numbers) for leaf in those] for those in (leaves, others))

    @jax.jit
    def gradients(given: list[Any], beside: list[Any]) -> list[Any]:
        outputs, pull = jax.vjp(lambda leaves: fn(leaves, beside), given)
        return pull(tree_util.tree_map(_ones, outputs))[0]

    found = zip(names, gradients(given, beside), strict=True)
    return {name for name, gradient in found if np.any(np.asarray(gradient) != 0)}


def residual_bytes(question: Question) -> int:
    """The bytes of the distinct values that `jax.vjp` of the whole function keeps, arguments and constants too."""
    traced = jax.make_jaxpr(_make_pull(question))(question.leaves, question.others).jaxpr
    distinct = {id(var): var for var in traced.outvars if not hasattr(var, "val")}
    return sum(math.prod(var.aval.shape) * var.aval.dtype.itemsize for var in distinct.values())


def _split_states(fn: Callable[..., Any], args: Sequence[Any]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The call with the parameters of a module of nnx in its place, and its other variables behind all arguments."""
    nnx = sys.modules.get("flax.nnx")
    if nnx is None or not isinstance(args[0], nnx.Module):
        return fn, tuple(args)
    definition, params, rest = nnx.split(args[0], nnx.Param, ...)

    def call_with_states(params: Any, *others: Any) -> Any:
        return fn(nnx.merge(definition, params, others[-1]), *others[:-1])

    return call_with_states, (params, *args[1:], rest)


def _has_equinox(args: Sequence[Any]) -> bool:
    equinox = sys.modules.get("equinox")
    return equinox is not None and any(isinstance(arg, equinox.Module) for arg in args)


def _make_pull(question: Question) -> Callable[[Sequence[Any], Sequence[Any]], list[Any]]:
    def pull_leaves(leaves: Sequence[Any], others: Sequence[Any]) -> list[Any]:
        _, pull = jax.vjp(lambda leaves: question.fn(leaves, others), leaves)
        return tree_util.tree_leaves(pull)

    return pull_leaves


def _dtype(leaf: Any) -> Any:
    return leaf.dtype if hasattr(leaf, "dtype") else np.asarray(leaf).dtype


def _draw_value(leaf: Any, numbers: np.random.Generator) -> Any:
    """A value for a leaf: its own, if it has one."""
    if not isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    if jnp.issubdtype(leaf.dtype, jnp.inexact):
        drawn = numbers.standard_normal(leaf.shape)
        return (
            (drawn * (1 + 1j)).astype(leaf.dtype)
            if jnp.issubdtype(leaf.dtype, jnp.complexfloating)
            else drawn.astype(leaf.dtype)
        )
    # Not all the same: attention to equal tokens has a gradient of zero, but for rounding.
    return (np.arange(1, math.prod(leaf.shape) + 1) % 2).reshape(leaf.shape).astype(leaf.dtype)


def _ones(output: Any) -> Any:
    if jnp.issubdtype(output.dtype, jnp.inexact):
        return jnp.ones(output.shape, output.dtype)
    return np.zeros(output.shape, jax.dtypes.float0)
