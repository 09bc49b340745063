"""Follow modules of flax.linen, which let gradir intercept their calls and get their arrays as arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from jax import tree_util

from gradir.frontends.jax.modules import Call, name_arguments
from gradir.frontends.jax.modules.watch import ModuleWatch, keys_text
from gradir.frontends.walks import join_paths


def call_of(linen: Any, target: Any, inputs: tuple[Any, ...]) -> Call | None:
    """Return the call of a module on its variables and inputs, with its parameters differentiated."""
    if not isinstance(target, linen.Module):
        return None
    variables = inputs[0] if inputs else None
    if not isinstance(variables, Mapping) or "params" not in variables:
        return Call(name_arguments(target.apply, target, "variables"), inputs)
    others = {name: collection for name, collection in variables.items() if name != "params"}

    def apply(params: Any, variables: Any, /, *args: Any, **named: Any) -> Any:
        return target.apply({"params": params, **variables}, *args, **named)

    return Call(name_arguments(apply, target, "params", "variables"), (variables["params"], others, *inputs[1:]))


def note_modules(linen: Any, watch: ModuleWatch, args: tuple[Any, ...]) -> None:  # noqa: ARG001
    """Put every call of a module into the scope of its path, below the argument that has its parameters."""
    interceptor = _MethodInterceptor(watch)
    watch.add(partial(linen.intercept_methods, interceptor), interceptor.note_arguments)


class _MethodInterceptor:
    """Intercepts methods. The place of a module is below the place of the applied module."""

    def __init__(self, watch: ModuleWatch) -> None:
        self._watch = watch
        self._leaves: dict[int, tuple[object, str]] = {}
        self._places: list[str] = []

    def note_arguments(self, arguments: Sequence[tuple[str, Any]]) -> None:
        """Record the leaves of the traced function's arguments, by path."""
        for path, value in arguments:
            for keys, leaf in tree_util.tree_flatten_with_path(value)[0]:
                if hasattr(leaf, "dtype"):
                    # The reference keeps the leaf alive, so no other gets its id().
                    self._leaves[id(leaf)] = leaf, join_paths(path, keys_text(keys).removeprefix("params."))

    def __call__(self, call: Callable[..., Any], args: Any, kwargs: Any, context: Any) -> Any:
        module, method = context.module, context.method_name
        if module.scope is None:
            # A module without variables has no path.
            return call(*args, **kwargs)
        inside = ".".join(module.path)
        place = self._places[-1] if inside and self._places else self._place(module)
        path = join_paths(place, inside)
        note = self._watch.note if method == "__call__" else self._watch.note_class
        note(path, type(module))
        is_running = self._watch.running[-1:] == [path]
        shown = path if method == "__call__" or is_running or not inside else f"{path}.{method}"
        self._places.append(place)
        try:
            with self._watch.inside(shown):
                return call(*args, **kwargs)
        finally:
            self._places.pop()

    def _place(self, module: Any) -> str:
        """Return the place in the arguments of the parameters of an applied module."""
        found = tree_util.tree_flatten_with_path(module.variables.get("params", {}))[0]
        for keys, leaf in found[:1]:
            inside, (_, path) = keys_text(keys), self._leaves.get(id(leaf), (None, ""))
            if path.endswith(f".{inside}"):
                return path.removesuffix(f".{inside}")
            if path:
                return ""
        # A transformation has replaced the parameters.
        return next(iter((*self._places[-1:], *self._watch.running[-1:])), "")
