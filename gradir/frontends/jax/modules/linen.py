"""Modules of flax.linen, which give their operations a scope by themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from gradir.frontends.jax.modules import Call
from gradir.frontends.jax.modules.watch import ModuleWatch

__all__ = ["call_of", "note_modules", "without_modules"]


def call_of(linen: Any, target: Any, inputs: tuple[Any, ...]) -> Call | None:
    """The call of a module on its variables and inputs: ``module.apply``."""
    return Call(target.apply, inputs) if isinstance(target, linen.Module) else None


def without_modules(linen: Any, call: Call, argnums: Sequence[int]) -> Call:  # noqa: ARG001
    """The call as it is: a module of linen has no arrays."""
    return call


def note_modules(linen: Any, watch: ModuleWatch, args: tuple[Any, ...]) -> None:  # noqa: ARG001
    """Have the watch note every module that is called; the root's own name is no part of a path."""

    def note(call: Callable[..., Any], args: Any, kwargs: Any, context: Any) -> Any:
        module = context.module
        if context.method_name == "__call__":
            if not module.path:
                watch.root = module.name or type(module).__name__
            watch.note(".".join(module.path), type(module))
        return call(*args, **kwargs)

    def noting() -> AbstractContextManager[object]:
        intercepted: AbstractContextManager[object] = linen.intercept_methods(note)
        return intercepted

    watch.while_traced(noting)
