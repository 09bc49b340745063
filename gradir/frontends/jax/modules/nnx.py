"""Follow modules of flax.nnx, which name no scopes, and whose variables are not all parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any, Final

from jax import tree_util

from gradir.frontends.jax.modules import Call, call_model
from gradir.frontends.jax.modules.watch import ModuleWatch, WrappedCalls, keys_text
from gradir.frontends.walks import join_paths

# This attribute keeps the path of a module in copies that nnx.jit, nnx.remat and nnx.scan make.
_STAMP: Final = "_gradir_path"


def call_of(nnx: Any, target: Any, inputs: tuple[Any, ...]) -> Call | None:
    """Return the call of a module on its inputs, with the module differentiated."""
    return call_model(target, inputs) if isinstance(target, nnx.Module) else None


def split_modules(nnx: Any, call: Call, argnums: Mapping[int, Any]) -> Call:
    """Return a call on states instead of modules; the rest of a differentiated module follows all other arguments."""
    fn, args, names = call
    filters = {number: nnx.Param if chosen is None else chosen for number, chosen in argnums.items()}
    found = ((number, _split(nnx, arg, filters.get(number))) for number, arg in enumerate(args))
    split = {number: parts for number, parts in found if parts is not None}
    if not split:
        return call
    states = [split[number][0] if number in split else arg for number, arg in enumerate(args)]
    rests = {number: rest for number, (_, rest, _) in split.items() if rest is not None}

    def wrapper(*states: Any, **named: Any) -> Any:
        values = list(states[: len(args)])
        rest_of = dict(zip(rests, states[len(args) :], strict=True))
        for number, (_, _, merge) in split.items():
            values[number] = merge(values[number], rest_of.get(number))
        return fn(*values, **named)

    wrapper.__name__ = getattr(fn, "__name__", type(fn).__name__)
    # The rest of the only differentiated argument has names like its parameters.
    rest_names = ("" if len(argnums) == 1 else names[number] for number in rests)
    return Call(wrapper, (*states, *rests.values()), (*names, *rest_names))


def return_states(nnx: Any, fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that also returns the parameters of its modules, which a training step updates in place."""

    @wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        result = fn(*args, **kwargs)
        return result, [nnx.state(arg, nnx.Param) for arg in args if isinstance(arg, nnx.Module)]

    return wrapper


def _split(nnx: Any, value: Any, chosen: Any) -> tuple[Any, Any, Callable[[Any, Any], Any]] | None:
    """Return a value with states for its modules, the rests of these, and a function that merges both.

    ``chosen`` is the filter of the differentiated variables, if any.
    """

    def is_module(inside: object) -> bool:
        return isinstance(inside, nnx.Module)

    leaves, tree = tree_util.tree_flatten(value, is_leaf=is_module)
    places = [place for place, leaf in enumerate(leaves) if is_module(leaf)]
    if not places:
        return None
    is_differentiated = chosen is not None
    kinds = (chosen, ...) if is_differentiated else ()
    parts = [nnx.split(leaves[place], *kinds) for place in places]

    def fill_tree(found: Sequence[Any], others: Sequence[Any]) -> Any:
        at = dict(zip(places, found, strict=True))
        return tree_util.tree_unflatten(tree, [at.get(place, other) for place, other in enumerate(others)])

    def merge(state: Any, rest: Any) -> Any:
        # A state is a pytree. It is one leaf in the tree of the value.
        states = tree.flatten_up_to(state)
        rests = tree.flatten_up_to(rest) if is_differentiated else states
        modules = []
        for place, (definition, *_) in zip(places, parts, strict=True):
            more = (rests[place],) if is_differentiated else ()
            modules.append(nnx.merge(definition, states[place], *more))
        return fill_tree(modules, states)

    rest = fill_tree([part[2] for part in parts], [None] * len(leaves)) if is_differentiated else None
    return fill_tree([part[1] for part in parts], leaves), rest, merge


def note_modules(nnx: Any, watch: ModuleWatch, args: tuple[Any, ...]) -> None:  # noqa: ARG001
    """Put every call of a module into the scope of its path."""
    stamped: list[Any] = []

    def modules_of(value: Any) -> Iterator[tuple[str, Any]]:
        found = tree_util.tree_flatten_with_path(value, is_leaf=lambda inside: isinstance(inside, nnx.Module))[0]
        for keys, module in found:
            if isinstance(module, nnx.Module):
                start = keys_text(keys)
                for path, inside in nnx.iter_graph(module):
                    if isinstance(inside, nnx.Module):
                        yield join_paths(start, ".".join(map(str, path))), inside

    def stamp(module: Any, path: str) -> None:
        # nnx forbids a change of a module of another trace, which needs no stamp.
        with suppress(Exception):
            setattr(module, _STAMP, path)
            stamped.append(module)

    def path_of(module: Any) -> str | None:
        path = getattr(module, "__dict__", {}).get(_STAMP)
        return path if isinstance(path, str) else None

    calls = WrappedCalls(watch, nnx.Module, modules_of, path_of=path_of, mark=stamp)

    @contextmanager
    def note_calls() -> Iterator[None]:
        try:
            with calls:
                yield
        finally:
            for module in stamped:
                vars(module).pop(_STAMP, None)
            stamped.clear()

    watch.add(note_calls, calls.note_arguments)
