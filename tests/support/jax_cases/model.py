"""A function of JAX and its arguments, which a test captures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from marked_lines import find_marked_line

__all__ = ["B", "Case", "Cases", "S", "W", "X", "f32", "i32"]

S = jax.ShapeDtypeStruct
f32, i32 = jnp.float32, jnp.int32
X, W, B = S((4, 8), f32), S((8, 8), f32), S((8,), f32)


@dataclass(frozen=True, eq=False)
class Case:
    """A function and its arguments.

    ``line`` ends in ``# HERE``: the operation there cuts a leaf off. ``one_way`` says that a run of the function takes
    one way of several, or multiplies by zero, and so may show less than the graph has.
    """

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    line: int | None
    argnums: int | tuple[int, ...] = 0
    has_aux: bool = False
    one_way: bool = False
    error: str = ""


class Cases(dict[str, Case]):
    """Cases by name. Call it as a decorator to add a function."""

    def __call__(self, *args: Any, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def add(fn: Callable[..., Any]) -> Callable[..., Any]:
            name = fn.__name__.strip("_")
            assert name not in self, name
            self[name] = Case(fn, args, find_marked_line(fn), **options)
            return fn

        return add
