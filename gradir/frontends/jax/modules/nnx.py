"""Modules of flax.nnx, which are no pytrees and name no scopes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from gradir.frontends.jax.modules import Call
from gradir.frontends.jax.modules.watch import ModuleWatch, WrappedCalls, subclasses

__all__ = ["call_of", "note_modules", "without_modules"]

_STAMP: Final = "_gradir_path"
"""The attribute by which a copy of a module, as nnx.jit, nnx.remat and nnx.scan make, knows its path."""


def call_of(nnx: Any, target: Any, inputs: tuple[Any, ...]) -> Call | None:
    """The call of a module, which is differentiated, on its inputs."""
    return Call(_call, (target, *inputs)) if isinstance(target, nnx.Module) else None


def _call(model: Any, *inputs: Any) -> Any:
    return model(*inputs)


def without_modules(nnx: Any, call: Call, argnums: Sequence[int]) -> Call:
    """A call that takes states of modules: of a differentiated one its parameters, with the rest behind all others."""
    fn, args, names = call
    modules = {number: arg for number, arg in enumerate(args) if isinstance(arg, nnx.Module)}
    if not modules:
        return call
    given, definitions, rests = list(args), {}, {}
    for number, module in modules.items():
        if number in argnums:
            definitions[number], given[number], rests[number] = nnx.split(module, nnx.Param, ...)
        else:
            definitions[number], given[number] = nnx.split(module)

    def of_states(*states: Any) -> Any:
        values = list(states[: len(args)])
        rest_of = dict(zip(rests, states[len(args) :], strict=True))
        for number, definition in definitions.items():
            rest = (rest_of[number],) if number in rest_of else ()
            values[number] = nnx.merge(definition, values[number], *rest)
        return fn(*values)

    of_states.__name__ = getattr(fn, "__name__", type(fn).__name__)
    return Call(of_states, (*given, *rests.values()), (*names, *(names[number] for number in rests)))


def note_modules(nnx: Any, watch: ModuleWatch, args: tuple[Any, ...]) -> None:  # noqa: ARG001
    """Have every call of a module stand in a scope of its path."""
    stamped: list[Any] = []

    def paths_of(root: Any) -> dict[int, str]:
        found = {}
        for path, module in nnx.iter_graph(root):
            if isinstance(module, nnx.Module):
                found[id(module)] = shown = ".".join(map(str, path))
                # A module of another trace is not to be changed, and needs no stamp.
                with suppress(Exception):
                    setattr(module, _STAMP, shown)
                    stamped.append(module)
        return found

    @contextmanager
    def noting() -> Iterator[None]:
        try:
            with WrappedCalls(watch, subclasses(nnx.Module), paths_of, _stamp_of):
                yield
        finally:
            for module in stamped:
                vars(module).pop(_STAMP, None)
            stamped.clear()

    watch.while_traced(noting)


def _stamp_of(module: Any) -> str | None:
    found = vars(module).get(_STAMP) if hasattr(module, "__dict__") else None
    return found if isinstance(found, str) else None
