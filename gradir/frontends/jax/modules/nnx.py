"""Modules of flax.nnx, which name no scopes, and whose variables are not all parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any, Final

from jax import tree_util

from gradir.frontends.jax.modules import Call, naming, run
from gradir.frontends.jax.modules.watch import ModuleWatch, WrappedCalls, text_of
from gradir.frontends.walks import below

# Copies of a module, as nnx.jit, nnx.remat and nnx.scan make, know their path by this attribute.
_STAMP: Final = "_gradir_path"


def call_of(nnx: Any, target: Any, inputs: tuple[Any, ...]) -> Call | None:
    """Return the call of a module, which is differentiated, on its inputs."""
    return Call(naming(run, target, "model"), (target, *inputs)) if isinstance(target, nnx.Module) else None


def without_modules(nnx: Any, call: Call, argnums: Sequence[int]) -> Call:
    """A call that takes states of modules: of a differentiated one its parameters, with the rest behind all others."""
    fn, args, names = call
    split = {number: _split(nnx, arg, number in argnums) for number, arg in enumerate(args)}
    parted = {number: found for number, found in split.items() if found is not None}
    if not parted:
        return call
    given = [parted[number][0] if number in parted else arg for number, arg in enumerate(args)]
    rests = {number: rest for number, (_, rest, _) in parted.items() if rest is not None}

    def of_states(*states: Any, **named: Any) -> Any:
        values = list(states[: len(args)])
        rest_of = dict(zip(rests, states[len(args) :], strict=True))
        for number, (_, _, merged) in parted.items():
            values[number] = merged(values[number], rest_of.get(number))
        return fn(*values, **named)

    of_states.__name__ = getattr(fn, "__name__", type(fn).__name__)
    # What is no parameter of the only differentiated argument is called as its parameters are.
    of_rests = ("" if len(argnums) == 1 else names[number] for number in rests)
    return Call(of_states, (*given, *rests.values()), (*names, *of_rests))


def returning_states(nnx: Any, fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that returns the parameters of its modules too, which a step of training updates in place."""

    @wraps(fn)
    def with_states(*args: Any, **kwargs: Any) -> Any:
        made = fn(*args, **kwargs)
        return made, [nnx.state(arg, nnx.Param) for arg in args if isinstance(arg, nnx.Module)]

    return with_states


def _split(nnx: Any, value: Any, is_differentiated: bool) -> tuple[Any, Any, Callable[[Any, Any], Any]] | None:
    """A value with the states of its modules in their place, the rests of these, and what puts both together again."""

    def is_module(inside: object) -> bool:
        return isinstance(inside, nnx.Module)

    leaves, tree = tree_util.tree_flatten(value, is_leaf=is_module)
    places = [place for place, leaf in enumerate(leaves) if is_module(leaf)]
    if not places:
        return None
    kinds = (nnx.Param, ...) if is_differentiated else ()
    parts = [nnx.split(leaves[place], *kinds) for place in places]

    def with_(found: Sequence[Any], others: Sequence[Any]) -> Any:
        filled = list(others)
        for place, each in zip(places, found, strict=True):
            filled[place] = each
        return tree_util.tree_unflatten(tree, filled)

    def merged(state: Any, rest: Any) -> Any:
        # A state is a pytree; it stands as one leaf in a value of the shape that the modules had.
        states = tree.flatten_up_to(state)
        rests = tree.flatten_up_to(rest) if is_differentiated else states
        made = []
        for place, (definition, *_) in zip(places, parts, strict=True):
            more = (rests[place],) if is_differentiated else ()
            made.append(nnx.merge(definition, states[place], *more))
        return with_(made, states)

    rest = with_([part[2] for part in parts], [None] * len(leaves)) if is_differentiated else None
    return with_([part[1] for part in parts], leaves), rest, merged


def note_modules(nnx: Any, watch: ModuleWatch, args: tuple[Any, ...]) -> None:  # noqa: ARG001
    """Have every call of a module stand in a scope of its path."""
    stamped: list[Any] = []

    def modules_of(value: Any) -> Iterator[tuple[str, Any]]:
        found = tree_util.tree_flatten_with_path(value, is_leaf=lambda inside: isinstance(inside, nnx.Module))[0]
        for keys, module in found:
            if isinstance(module, nnx.Module):
                start = text_of(keys)
                for path, inside in nnx.iter_graph(module):
                    if isinstance(inside, nnx.Module):
                        yield below(start, ".".join(map(str, path))), inside

    def stamp(module: Any, path: str) -> None:
        # A module of another trace is not to be changed, and needs no stamp.
        with suppress(Exception):
            setattr(module, _STAMP, path)
            stamped.append(module)

    def path_of(module: Any) -> str | None:
        path = getattr(module, "__dict__", {}).get(_STAMP)
        return path if isinstance(path, str) else None

    calls = WrappedCalls(watch, nnx.Module, modules_of, path_of=path_of, found=stamp)

    @contextmanager
    def noting() -> Iterator[None]:
        try:
            with calls:
                yield
        finally:
            for module in stamped:
                vars(module).pop(_STAMP, None)
            stamped.clear()

    watch.while_traced(noting)
    watch.when_given(calls.give)
