"""Modules of equinox, which are pytrees, and whose Python numbers are a part of the program."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax

from gradir.frontends.jax.modules import Call
from gradir.frontends.jax.modules.watch import ModuleWatch, WrappedCalls, subclasses

__all__ = ["call_of", "note_modules", "without_modules"]


def call_of(equinox: Any, target: Any, inputs: tuple[Any, ...]) -> Call | None:
    """The call of a module, which is differentiated, on its inputs."""
    return Call(_call, (target, *inputs)) if _is_module(equinox, target) else None


def _call(model: Any, *inputs: Any) -> Any:
    return model(*inputs)


def without_modules(equinox: Any, call: Call, argnums: Sequence[int]) -> Call:  # noqa: ARG001
    """The call as it is: a module of equinox is a pytree."""
    return call


def note_modules(equinox: Any, watch: ModuleWatch, args: tuple[Any, ...]) -> None:
    """Have every call of a module stand in a scope of its path; with one among the arguments, arrays alone count."""

    def is_module(value: object) -> bool:
        return _is_module(equinox, value)

    def paths_of(root: Any) -> dict[int, str]:
        found, left = {}, [(root, "")]
        while left:
            module, path = left.pop()
            found[id(module)] = path
            inside = jax.tree_util.tree_flatten_with_path(
                module, is_leaf=lambda value, module=module: is_module(value) and value is not module
            )[0]
            for keys, value in inside:
                if is_module(value):
                    name = jax.tree_util.keystr(keys, simple=True, separator=".")
                    left.append((value, f"{path}.{name}" if path else name))
        return found

    def noting() -> AbstractContextManager[object]:
        own = (kind for kind in subclasses(equinox.Module) if not _is_wrapper(kind))
        return WrappedCalls(watch, own, paths_of)

    watch.while_traced(noting)
    watch.arrays_only = any(map(is_module, jax.tree_util.tree_leaves(args, is_leaf=is_module)))


def _is_module(equinox: Any, value: object) -> bool:
    return isinstance(value, equinox.Module) and not _is_wrapper(type(value))


def _is_wrapper(kind: type) -> bool:
    """Whether it is a function that equinox has changed, as filter_jit does, which is a module by its class alone."""
    return kind.__module__.startswith("equinox.") and kind.__name__.startswith("_")
