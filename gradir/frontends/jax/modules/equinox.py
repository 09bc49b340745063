"""Follow modules of equinox, which are pytrees whose Python numbers are constants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jax import tree_util

from gradir.frontends.jax.modules import Call, call_model
from gradir.frontends.jax.modules.watch import ModuleWatch, WrappedCalls, keys_text
from gradir.frontends.walks import join_paths


def call_of(equinox: Any, target: Any, inputs: tuple[Any, ...]) -> Call | None:
    """Return the call of a module on its inputs, with the module differentiated."""
    return call_model(target, inputs) if _is_module(equinox, target) else None


def note_modules(equinox: Any, watch: ModuleWatch, args: tuple[Any, ...]) -> None:
    """Put every call of a module into the scope of its path; if an argument is a module, only arrays are leaves."""

    def is_module(value: object) -> bool:
        return _is_module(equinox, value)

    def modules_of(value: Any) -> Iterator[tuple[str, Any]]:
        waiting: list[tuple[str, Any]] = [("", value)]
        while waiting:
            path, outer = waiting.pop()
            if is_module(outer):
                yield path, outer
            inside = tree_util.tree_flatten_with_path(
                outer, is_leaf=lambda value, outer=outer: is_module(value) and value is not outer
            )[0]
            for keys, each in inside:
                if is_module(each) and each is not outer:
                    waiting.append((join_paths(path, keys_text(keys)), each))

    calls = WrappedCalls(watch, equinox.Module, modules_of, has_scope=lambda kind: not _is_wrapper(kind))
    watch.add(lambda: calls, calls.note_arguments)
    watch.arrays_only = any(map(is_module, tree_util.tree_leaves(args, is_leaf=is_module)))


def _is_module(equinox: Any, value: object) -> bool:
    return isinstance(value, equinox.Module) and not _is_wrapper(type(value))


def _is_wrapper(kind: type) -> bool:
    """Return whether a class wraps functions, as that of filter_jit does, and is no real module."""
    name = kind.__name__
    return kind.__module__.startswith("equinox.") and (name.startswith("_") or name in ("BoundMethod", "Partial"))
