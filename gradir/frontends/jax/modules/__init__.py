"""Which module runs what while a function is traced.

A library of modules is one file here and one line in `_LIBRARIES`. Nothing is imported that the program has not.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple, Protocol

from gradir.frontends.jax.modules.watch import ModuleWatch
from gradir.frontends.texts import plain_text

_LIBRARIES: Final = {
    "flax.linen": "gradir.frontends.jax.modules.linen",
    "flax.nnx": "gradir.frontends.jax.modules.nnx",
    "equinox": "gradir.frontends.jax.modules.equinox",
}


class Call(NamedTuple):
    """A function, its arguments, and their names."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    names: tuple[str, ...] = ()


class Prepared(NamedTuple):
    """A function of pytrees of arrays, its arguments and their names, and the watch that notes its modules."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    watch: ModuleWatch
    # A leaf of an argument without a name is called by its path in it alone.
    argument_names: tuple[str, ...] = ()


class Library(Protocol):
    """The functions of a file here, each with the library of modules as first argument."""

    # Two more are for modules that are no pytrees. ``without_modules(library, call, argnums)`` returns a call that
    # takes pytrees instead, and ``returning_states(library, fn)`` a function that also returns the parameters it
    # leaves behind.

    def call_of(self, library: Any, target: Any, inputs: tuple[Any, ...]) -> Call | None:
        """A call of a module on its inputs whose first argument is what is differentiated; ``None`` of all else."""

    def note_modules(self, library: Any, watch: ModuleWatch, args: tuple[Any, ...]) -> None:
        """Have a watch note the modules that run while it is entered."""


def find_call(target: Any, inputs: Sequence[Any]) -> Call:
    """Return the function that is meant by a function, or by a module and its inputs, with its arguments."""
    for library, known in _loaded():
        found = known.call_of(library, target, tuple(inputs))
        if found is not None:
            return found
    return Call(target, tuple(inputs))


def prepare(fn: Callable[..., Any], args: Sequence[Any], argnums: Sequence[int]) -> Prepared:
    """Return the function and arguments to trace, and the watch to enter around the trace."""
    names, watch, libraries = argument_names(fn, len(args)), ModuleWatch(), _loaded()
    # Each argument with the path that its leaves begin with.
    starts = ["" if len(argnums) == 1 and number in argnums else name for number, name in enumerate(names)]

    def telling(*args: Any, **named: Any) -> Any:
        watch.given([*zip(starts, args, strict=True), *named.items()])
        return fn(*args, **named)

    telling.__name__ = getattr(fn, "__name__", type(fn).__name__)
    call = Call(telling if libraries else fn, tuple(args), names)
    for library, known in libraries:
        known.note_modules(library, watch, call.args)
        if hasattr(known, "without_modules"):
            call = known.without_modules(library, call, argnums)
    return Prepared(call.fn, call.args, watch, call.names)


def returning_states(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that also returns the parameters of its modules, if it may write to them."""
    for library, known in _loaded():
        if hasattr(known, "returning_states"):
            fn = known.returning_states(library, fn)
    return fn


def run(model: Any, *inputs: Any, **named: Any) -> Any:
    """Call a module on its inputs."""
    return model(*inputs, **named)


def naming(call: Callable[..., Any], module: object, *names: str) -> Callable[..., Any]:
    """Return a function whose arguments have these names, and behind them those that a module's ``__call__`` takes."""
    try:
        own = [*inspect.signature(type(module).__call__).parameters.values()][1:]
        first = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in names]
        whole = inspect.Signature([*first, *own])
    except (ValueError, TypeError, AttributeError):
        # Two arguments may have one name, and a call of C no signature.
        return call

    def named(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    named.__name__ = type(module).__name__
    named.__signature__ = whole  # type: ignore[attr-defined]
    return named


def argument_names(fn: Callable[..., Any], count: int) -> tuple[str, ...]:
    """Return the names of a function's first positional arguments, or their numbers if it has no signature.

    >>> argument_names(lambda params, *inputs: 0, 3)
    ('params', 'inputs.0', 'inputs.1')
    """
    try:
        parameters = [*inspect.signature(fn).parameters.values()]
    except (ValueError, TypeError):
        return tuple(map(str, range(count)))
    positional = [each.name for each in parameters if each.kind <= inspect.Parameter.POSITIONAL_OR_KEYWORD]
    more = next((each.name for each in parameters if each.kind == inspect.Parameter.VAR_POSITIONAL), "")
    rest = [f"{more}.{number}" if more else str(number) for number in range(count - len(positional))]
    return tuple(map(plain_text, (*positional[:count], *rest)))


def _loaded() -> list[tuple[Any, Library]]:
    found = ((sys.modules.get(name), home) for name, home in _LIBRARIES.items())
    # A module has the functions of the protocol, which mypy cannot know.
    homes: list[tuple[Any, Any]] = [(library, import_module(home)) for library, home in found if library is not None]
    return homes
