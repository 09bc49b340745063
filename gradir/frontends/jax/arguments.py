"""The arguments of a function as leaves with names and numbers: which are differentiated, and which are beside them."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree_util

from gradir.errors import CaptureError
from gradir.frontends.texts import plain_text
from gradir.frontends.walks import below


class NoGraphError(CaptureError):
    """An object is to be captured that a function has made, and not the function."""

    def __init__(self, value: object) -> None:
        super().__init__(
            f"JAX keeps no graph behind an object of type {type(value).__name__}: hand over the function that makes "
            "it, and its arguments, as to jax.grad"
        )


@dataclass(frozen=True)
class Leaf:
    """One leaf of the arguments: its name, and what was given."""

    name: str
    value: Any


@dataclass(frozen=True)
class Arguments:
    """A function of lists of leaves, ``fn(differentiated, others)``, and the leaves that were given."""

    fn: Callable[[Sequence[Any], Sequence[Any]], Any]
    differentiated: tuple[Leaf, ...]
    others: tuple[Leaf, ...]
    # Leaves of the differentiated arguments whose dtype has no gradient; they are among the others.
    integers: tuple[Leaf, ...]

    @property
    def given(self) -> tuple[list[Any], list[Any]]:
        """The values of the differentiated leaves, and those of the others."""
        return [leaf.value for leaf in self.differentiated], [leaf.value for leaf in self.others]


def numbers_of(argnums: object, count: int) -> tuple[int, ...]:
    """Return the numbers of the differentiated arguments, as `jax.grad` takes them.

    >>> numbers_of(0, 2), numbers_of((0, -1), 3)
    ((0,), (0, 2))
    """
    try:
        given = [operator.index(each) for each in (argnums if isinstance(argnums, (tuple, list)) else (argnums,))]
    except TypeError:
        raise CaptureError(f"argnums is {argnums!r}; expected an integer, or a tuple of integers") from None
    found = tuple(number + count if number < 0 else number for number in given)
    wrong = [number for number in found if not 0 <= number < count]
    if wrong or not found:
        raise CaptureError(f"argnums is {argnums!r}, and the function is called with {count} positional arguments")
    return tuple(dict.fromkeys(found))


def arrange_arguments(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    numbers: Sequence[int],
    *,
    names: Sequence[str],
    arrays_only: bool = False,
    has_aux: bool = False,
) -> Arguments:
    """Return the leaves of a call ``fn(*args, **kwargs)`` whose arguments ``numbers`` are differentiated."""
    found, tree = tree_util.tree_flatten_with_path((tuple(args), dict(kwargs)))
    leaves = [leaf for _, leaf in found]
    labels = _labels([path for path, _ in found], numbers, names)
    # All else is part of the program, such as the booleans and integers that steer it.
    moving = [place for place, leaf in enumerate(leaves) if _is_array(leaf, arrays_only=arrays_only)]
    chosen = [place for place in moving if _number(found[place][0]) in numbers]
    dtypes = {place: getattr(leaves[place], "dtype", float) for place in chosen}
    differentiated = [place for place in chosen if jax.dtypes.issubdtype(dtypes[place], np.inexact)]
    others = [place for place in moving if place not in set(differentiated)]

    def of_leaves(given: Sequence[Any], beside: Sequence[Any]) -> Any:
        values = list(leaves)
        for place, value in (*zip(differentiated, given, strict=True), *zip(others, beside, strict=True)):
            values[place] = value
        positional, named = tree_util.tree_unflatten(tree, values)
        result = fn(*positional, **named)
        if not has_aux:
            return tree_util.tree_map(_output, result)
        if not (isinstance(result, tuple) and len(result) == 2):
            raise CaptureError("with has_aux the function has to return a pair: its output, and what goes beside it")
        return tree_util.tree_map(_output, result[0])

    if not differentiated:
        raise CaptureError(
            f"{shown_name(fn)} has nothing to differentiate: no leaf of the argument{'s' * (len(numbers) > 1)} "
            f"{', '.join(map(str, numbers))} is an array of floats"
        )

    known = {place: Leaf(labels[place], leaves[place]) for place in moving}
    integers = [place for place in chosen if place not in set(differentiated)]
    parts = (tuple(known[place] for place in places) for places in (differentiated, others, integers))
    return Arguments(of_leaves, *parts)


def path_text(path: Sequence[Any]) -> str:
    """Join a path in a pytree with dots, without the collection that flax puts around every parameter.

    >>> path_text(tree_util.tree_flatten_with_path({"params": {"fc": [1.0]}})[0][0][0])
    'fc.0'
    """
    text = plain_text(tree_util.keystr(tuple(path), simple=True, separator="."))
    return text.removeprefix("params.").removesuffix(".value")


def shown_name(fn: Any) -> str:
    """Return the name of a function for an error."""
    return plain_text(str(getattr(fn, "__name__", type(fn).__name__)))


def _number(path: Sequence[Any]) -> int | None:
    """Return the number of the positional argument that a leaf belongs to, ``None`` for keywords."""
    return int(path[1].idx) if path[0].idx == 0 else None


def _labels(paths: Sequence[Sequence[Any]], numbers: Sequence[int], names: Sequence[str]) -> list[str]:
    labels, insides = [], []
    for path in paths:
        number = _number(path)
        insides.append(path[1:] if number is None else path[2:])
        inside, name = path_text(insides[-1]), "" if number is None else names[number]
        is_only = number in numbers and len(numbers) == 1
        labels.append((inside or name) if is_only else below(name, inside))
    counts = Counter(labels)
    # With brackets, since those of ``{"a": {"b": x}, "a.b": y}`` are equal with dots.
    pairs = zip(labels, insides, strict=True)
    return [label if counts[label] == 1 else plain_text(tree_util.keystr(keys)) for label, keys in pairs]


def _is_array(leaf: object, *, arrays_only: bool) -> bool:
    if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return True
    return not arrays_only and type(leaf) in (float, complex)


def _output(leaf: object) -> Any:
    """Return a leaf of what a function returns as JAX takes it; nothing of what has no gradient and is no array."""
    if _is_array(leaf, arrays_only=True):
        return leaf
    return jnp.asarray(leaf) if type(leaf) in (float, complex) else None


# How many characters of an error of JAX to show.
_LONGEST = 300


def are_known(leaves: Sequence[Any]) -> bool:
    """Return whether all leaves have numbers, and not a shape and a dtype alone."""
    return not any(isinstance(leaf, (jax.ShapeDtypeStruct, jax.core.Tracer)) for leaf in leaves)


def draw_leaves(leaves: Sequence[Any]) -> list[Any]:
    """The leaves, with numbers in place of those that have none: floats from a normal distribution, else 1 and 0."""
    return [leaf if are_known([leaf]) else _drawn(leaf, place) for place, leaf in enumerate(leaves)]


def gradients(fn: Callable[[Any, Any], Any], given: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """Run a real backward from the sum of all outputs, and return the gradients of the leaves."""
    try:
        # Compiled as a whole it takes a tenth of the time of operation by operation.
        made: list[Any] = jax.jit(partial(_backward, fn))([*given], [*others])
        return made
    except (ValueError, TypeError, NotImplementedError, RuntimeError) as error:
        raise CaptureError(f"the backward cannot run: {plain_text(' '.join(str(error).split())[:_LONGEST])}") from error


def can_run(arguments: Arguments) -> bool:
    """Return whether a backward runs that is not compiled, in which the bounds of loops may be numbers."""
    try:
        _backward(arguments.fn, *arguments.given)
    except (ValueError, TypeError, NotImplementedError, RuntimeError):
        return False
    return True


def _backward(fn: Callable[[Any, Any], Any], given: list[Any], others: list[Any]) -> Any:
    def one_for(output: Any) -> Any:
        if jax.dtypes.issubdtype(output.dtype, np.inexact):
            return jnp.ones(output.shape, output.dtype)
        return np.zeros(output.shape, jax.dtypes.float0)

    outputs, pull = jax.vjp(lambda given: fn(given, others), given)
    return pull(jax.tree_util.tree_map(one_for, outputs))[0]


def _drawn(leaf: Any, place: int) -> Any:
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
