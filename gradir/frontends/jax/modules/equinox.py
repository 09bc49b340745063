"""Modules of equinox, which are pytrees, and whose Python numbers are a part of the program."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
from jax import tree_util

from gradir.frontends.jax.modules import Call, naming, run
from gradir.frontends.jax.modules.watch import ModuleWatch, WrappedCalls, text_of
from gradir.frontends.walks import below


def call_of(equinox: Any, target: Any, inputs: tuple[Any, ...]) -> Call | None:
    """Return the call of a module, which is differentiated, on its inputs."""
    return Call(naming(run, target, "model"), (target, *inputs)) if _is_module(equinox, target) else None


def note_modules(equinox: Any, watch: ModuleWatch, args: tuple[Any, ...]) -> None:
    """Have every call of a module stand in a scope of its path; with one among the arguments, arrays alone count."""

    def is_module(value: object) -> bool:
        return _is_module(equinox, value)

    def modules_of(value: Any) -> Iterator[tuple[str, Any]]:
        left: list[tuple[str, Any]] = [("", value)]
        while left:
            path, outer = left.pop()
            if is_module(outer):
                yield path, outer
            inside = tree_util.tree_flatten_with_path(
                outer, is_leaf=lambda value, outer=outer: is_module(value) and value is not outer
            )[0]
            for keys, each in inside:
                if is_module(each) and each is not outer:
                    left.append((below(path, text_of(keys)), each))

    calls = WrappedCalls(watch, equinox.Module, modules_of, is_noted=lambda kind: not _is_wrapper(kind))
    watch.while_traced(lambda: calls)
    watch.when_given(calls.give)
    watch.arrays_only = any(map(is_module, jax.tree_util.tree_leaves(args, is_leaf=is_module)))


def _is_module(equinox: Any, value: object) -> bool:
    return isinstance(value, equinox.Module) and not _is_wrapper(type(value))


def _is_wrapper(kind: type) -> bool:
    """Whether it is a function that equinox has changed, as filter_jit does, which is a module by its class alone."""
    name = kind.__name__
    return kind.__module__.startswith("equinox.") and (name.startswith("_") or name in ("BoundMethod", "Partial"))
