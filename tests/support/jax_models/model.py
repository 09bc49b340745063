"""What a model of JAX is for a test: a function, its arguments, and the classes of its modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

__all__ = ["Model", "Models", "cross_entropy", "f32", "i32"]

f32, i32 = jnp.float32, jnp.int32


@dataclass(frozen=True, eq=False)
class Model:
    """A model: what makes a call as of `jax.grad`, and the modules of its graph by path, each with class and calls.

    ``rounds`` are those of the scopes that a loop runs. Of ``unused`` leaves the model reads none.
    """

    name: str
    make: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]
    modules: Mapping[str, tuple[str, int]]
    rounds: Mapping[str, int] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    has_aux: bool = False


class Models(dict[str, Model]):
    """Models by name; an object of this class is what notes a function as one."""

    def __call__(self, *shown: str, **expected: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Note a model whose modules are ``path:Class`` or, called more than once, ``path:Class*calls``."""

        def note(make: Callable[..., Any]) -> Callable[..., Any]:
            name = f"{make.__module__.rpartition('.')[2]} {make.__name__.replace('_', ' ')}"
            self[name] = Model(name, make, dict(map(_module, shown)), **expected)
            return make

        return note


def _module(shown: str) -> tuple[str, tuple[str, int]]:
    path, _, kind = shown.partition(":")
    name, _, calls = kind.partition("*")
    return path, (name, int(calls or bool(name)))


def cross_entropy(logits: Any, tokens: Any) -> Any:
    """The loss of a language model."""
    log = jax.nn.log_softmax(logits[:, :-1])
    return -jnp.take_along_axis(log, tokens[:, 1:, None], -1).mean()
