"""Flatten the arguments of a function into named leaves, and compute their gradients."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree_util

from gradir.errors import CaptureError
from gradir.frontends.jax.modules import Call
from gradir.frontends.texts import plain_text
from gradir.frontends.walks import join_paths


class NoGraphError(CaptureError):
    """The user passed the result of a function instead of the function."""

    def __init__(self, value: object) -> None:
        super().__init__(
            f"JAX has no graph of an object of type {type(value).__name__}; pass the function that computes it and "
            f"its arguments, as to jax.grad"
        )


@dataclass(frozen=True)
class Leaf:
    """One leaf of the arguments, with its name."""

    name: str
    value: Any


@dataclass(frozen=True)
class Arguments:
    """A function of two lists of leaves, ``fn(differentiated, others)``, and these leaves."""

    fn: Callable[[Sequence[Any], Sequence[Any]], Any]
    differentiated: tuple[Leaf, ...]
    others: tuple[Leaf, ...]
    # Leaves of the differentiated arguments whose dtype has no gradient. They are among the others.
    integers: tuple[Leaf, ...]

    @property
    def values(self) -> tuple[list[Any], list[Any]]:
        """The values of the differentiated leaves and of the others."""
        return [leaf.value for leaf in self.differentiated], [leaf.value for leaf in self.others]


def normalize_argnums(argnums: object, count: int) -> dict[int, Any]:
    """Return the positions of the differentiated arguments, each with the filter of an ``nnx.DiffState`` or ``None``.

    >>> normalize_argnums(0, 2), normalize_argnums((0, -1), 3)
    ({0: None}, {0: None, 2: None})
    """
    several: Sequence[Any] = argnums if isinstance(argnums, (tuple, list)) else (argnums,)
    try:
        given = [(operator.index(getattr(each, "argnum", each)), getattr(each, "filter", None)) for each in several]
    except TypeError:
        raise CaptureError(f"argnums is {argnums!r}; expected an integer, or a tuple of integers") from None
    found = {number + count if number < 0 else number: chosen for number, chosen in given}
    if not found or not all(0 <= number < count for number in found):
        raise CaptureError(f"argnums is {argnums!r}, and the function is called with {count} positional arguments")
    return found


def arrange_arguments(
    call: Call, kwargs: Mapping[str, Any], numbers: Collection[int], *, arrays_only: bool, has_aux: bool
) -> Arguments:
    """Return the leaves of a call with also ``kwargs``, whose arguments ``numbers`` are differentiated."""
    fn, args, names = call
    found, tree = tree_util.tree_flatten_with_path((args, dict(kwargs)))
    leaves = [leaf for _, leaf in found]
    labels = _label_leaves([path for path, _ in found], numbers, names)
    # Other leaves are part of the program, such as booleans and integers that control it.
    arrays = [place for place, leaf in enumerate(leaves) if _is_array(leaf, arrays_only=arrays_only)]
    chosen = [place for place in arrays if _argument_number(found[place][0]) in numbers]
    dtypes = {place: getattr(leaves[place], "dtype", float) for place in chosen}
    differentiated = [place for place in chosen if jax.dtypes.issubdtype(dtypes[place], np.inexact)]
    others = [place for place in arrays if place not in set(differentiated)]

    def call_with_leaves(first: Sequence[Any], second: Sequence[Any]) -> Any:
        values = list(leaves)
        for place, value in (*zip(differentiated, first, strict=True), *zip(others, second, strict=True)):
            values[place] = value
        positional, named = tree_util.tree_unflatten(tree, values)
        result = fn(*positional, **named)
        if has_aux and not (isinstance(result, tuple) and len(result) == 2):
            raise CaptureError("with has_aux, the function must return a pair: its output and auxiliary data")
        return tree_util.tree_map(_convert_output, result[0] if has_aux else result)

    if not differentiated:
        raise CaptureError(
            f"{callable_name(fn)} has nothing to differentiate: no leaf of the argument{'s' * (len(numbers) > 1)} "
            f"{', '.join(map(str, numbers))} is an array of floats"
        )
    known = {place: Leaf(labels[place], leaves[place]) for place in arrays}
    integers = [place for place in chosen if place not in set(differentiated)]
    parts = (tuple(known[place] for place in places) for places in (differentiated, others, integers))
    return Arguments(call_with_leaves, *parts)


def path_text(path: Sequence[Any]) -> str:
    """Join a path in a pytree with dots, without the ``params`` and ``value`` that flax adds to each parameter.

    >>> path_text(tree_util.tree_flatten_with_path({"params": {"fc": [1.0]}})[0][0][0])
    'fc.0'
    """
    text = plain_text(tree_util.keystr(tuple(path), simple=True, separator="."))
    return text.removeprefix("params.").removesuffix(".value")


def callable_name(fn: Any) -> str:
    """Return the name of a function for an error."""
    return plain_text(str(getattr(fn, "__name__", type(fn).__name__)))


def _argument_number(path: Sequence[Any]) -> int | None:
    """Return the position of the argument that has a leaf, ``None`` for a keyword argument."""
    return int(path[1].idx) if path[0].idx == 0 else None


def _label_leaves(paths: Sequence[Sequence[Any]], numbers: Collection[int], names: Sequence[str]) -> list[str]:
    labels, insides = [], []
    for path in paths:
        number = _argument_number(path)
        insides.append(path[1:] if number is None else path[2:])
        inside, name = path_text(insides[-1]), "" if number is None else names[number]
        is_only = number in numbers and len(numbers) == 1
        labels.append((inside or name) if is_only else join_paths(name, inside))
    counts = Counter(labels)
    # Dots make the paths of ``{"a": {"b": x}, "a.b": y}`` equal, and brackets do not.
    pairs = zip(labels, insides, strict=True)
    return [label if counts[label] == 1 else plain_text(tree_util.keystr(keys)) for label, keys in pairs]


def _is_array(leaf: object, *, arrays_only: bool) -> bool:
    is_number = not arrays_only and type(leaf) in (float, complex)
    return is_number or (hasattr(leaf, "shape") and hasattr(leaf, "dtype"))


def _convert_output(leaf: object) -> Any:
    """Return an output leaf as an array, ``None`` if it is neither an array nor a float or complex."""
    if _is_array(leaf, arrays_only=True):
        return leaf
    return jnp.asarray(leaf) if type(leaf) in (float, complex) else None


# Maximum length of the error of JAX that is shown.
_LONGEST = 300


def are_known(leaves: Sequence[Any]) -> bool:
    """Return whether all leaves have values, not just a shape and a dtype."""
    return not any(isinstance(leaf, (jax.ShapeDtypeStruct, jax.core.Tracer)) for leaf in leaves)


def draw_leaves(leaves: Sequence[Any]) -> list[Any]:
    """Return the leaves with drawn values for those without: floats from a normal distribution, else 1 and 0."""
    return [leaf if are_known([leaf]) else _draw_leaf(leaf, place) for place, leaf in enumerate(leaves)]


def compute_gradients(
    fn: Callable[[Any, Any], Any], given: Sequence[Any], others: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """Run a real backward pass from the sum of all outputs; return these and the gradients of the leaves."""
    try:
        # Compiling it takes a tenth of the time of running operation by operation.
        outputs, gradients = jax.jit(partial(_run_backward, fn))([*given], [*others])
        return jax.tree_util.tree_leaves(outputs), [*gradients]
    except (ValueError, TypeError, NotImplementedError, RuntimeError) as error:
        raise CaptureError(f"the backward cannot run: {plain_text(' '.join(str(error).split())[:_LONGEST])}") from error


def can_run(arguments: Arguments) -> bool:
    """Return whether a backward pass runs without compilation, which lets loops have concrete bounds."""
    try:
        _run_backward(arguments.fn, *arguments.values)
    except (ValueError, TypeError, NotImplementedError, RuntimeError):
        return False
    return True


def _run_backward(fn: Callable[[Any, Any], Any], given: list[Any], others: list[Any]) -> Any:
    def seed_for(output: Any) -> Any:
        if jax.dtypes.issubdtype(output.dtype, np.inexact):
            return jnp.ones(output.shape, output.dtype)
        return np.zeros(output.shape, jax.dtypes.float0)

    outputs, pull = jax.vjp(lambda given: fn(given, others), given)
    return outputs, pull(jax.tree_util.tree_map(seed_for, outputs))[0]


def _draw_leaf(leaf: Any, place: int) -> Any:
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.split(jax.random.key(0), leaf.shape) if leaf.shape else jax.random.key(0)
    key = jax.random.fold_in(jax.random.key(0), place)
    if jax.dtypes.issubdtype(leaf.dtype, np.complexfloating):
        real, imaginary = (jax.random.normal(each, leaf.shape) for each in jax.random.split(key))
        return (real + 1j * imaginary).astype(leaf.dtype)
    if jax.dtypes.issubdtype(leaf.dtype, np.inexact):
        return jax.random.normal(key, leaf.shape, jnp.float32).astype(leaf.dtype)
    # Most embedding tables have rows 0 and 1. Equal tokens would give no gradient to an attention's query.
    numbers = np.arange(1, math.prod(leaf.shape) + 1) % 2
    return jnp.asarray(numbers.reshape(leaf.shape), leaf.dtype)
