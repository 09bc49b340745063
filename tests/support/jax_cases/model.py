"""What a case of JAX is: a function, its arguments, and all that its graph has to say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from marked_lines import marked

__all__ = ["RELEASE", "TANH", "B", "Case", "Cases", "S", "W", "X", "f32", "i32", "since"]

S = jax.ShapeDtypeStruct
f32, i32 = jnp.float32, jnp.int32
X, W, B = S((4, 8), f32), S((8, 8), f32), S((8,), f32)

RELEASE = jax.__version_info__[:2]


def since(release: tuple[int, int], now: Any, before: Any) -> Any:
    """What holds from a release of JAX on, and what did before."""
    return now if release <= RELEASE else before


TANH = since((0, 11), "new0=128", "out0=128 new0=128")
"""What tanh keeps of 4x8 floats: one derivative, and before two of its parts."""


@dataclass(frozen=True, eq=False)
class Case:
    """A function and what its graph has to be.

    ``reached`` and ``inputs`` are names of leaves, ``ops`` those of the operations in order, ``held`` the bytes that
    are kept. ``slots`` are those of the operations that keep something, as `jax_told.slots` tells them. ``cuts`` are
    the kind, the leaf and the operation of each, which stands in the line of the function that ends in ``# HERE``.
    ``scopes`` are the paths of the scopes below the top, with the rounds of those that are loops. ``one_way`` says that
    a run of the function takes one way of several, or multiplies by zero, and so may show less than the graph has.
    """

    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    reached: str = ""
    held: int = 0
    ops: str = ""
    slots: str | None = None
    inputs: str = ""
    cuts: tuple[tuple[str, str, str], ...] = ()
    scopes: Mapping[str, int] = field(default_factory=dict)
    argnums: int | tuple[int, ...] = 0
    has_aux: bool = False
    one_way: bool = False
    error: str = ""
    line: int | None = None


class Cases(dict[str, Case]):
    """Cases by name; an object of this class is what notes a function as one."""

    def __call__(self, *args: Any, **expected: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def note(fn: Callable[..., Any]) -> Callable[..., Any]:
            name = fn.__name__.strip("_")
            assert name not in self, name
            self[name] = Case(name, fn, args, line=marked(fn), **expected)
            return fn

        return note
