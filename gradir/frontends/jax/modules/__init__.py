"""Find which module runs each operation while a function is traced.

A library of modules is one file here and one line in `_LIBRARIES`. gradir imports no library that the program has not
imported. The file has two functions, whose first argument is the library:

- ``call_of(library, target, inputs)`` returns the call of a module with the differentiated argument first, or ``None``.
- ``note_modules(library, watch, args)`` lets a watch record the modules that run while it is entered.

A library whose modules are no pytrees has two more functions:

- ``split_modules(library, call, argnums)`` returns a call that takes pytrees instead.
- ``return_states(library, fn)`` returns a function that also returns the parameters after the call.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple

from gradir.frontends.jax.modules.watch import ModuleWatch
from gradir.frontends.texts import plain_text

_LIBRARIES: Final = {
    "flax.linen": "gradir.frontends.jax.modules.linen",
    "flax.nnx": "gradir.frontends.jax.modules.nnx",
    "equinox": "gradir.frontends.jax.modules.equinox",
}


class Call(NamedTuple):
    """A function, its arguments, and their names. A leaf in an argument without a name has its path alone as name."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    names: tuple[str, ...] = ()


def find_call(target: Any, inputs: Sequence[Any]) -> Call:
    """Return the call of a function, or of a module, on its inputs."""
    calls: Iterator[Call | None] = (home.call_of(library, target, tuple(inputs)) for library, home in _find_loaded())
    return next(filter(None, calls), Call(target, tuple(inputs)))


def prepare(fn: Callable[..., Any], args: Sequence[Any], argnums: Mapping[int, Any]) -> tuple[Call, ModuleWatch]:
    """Return a call on pytrees of arrays, and the watch that records its modules."""
    names, watch, libraries = argument_names(fn, len(args)), ModuleWatch(), _find_loaded()
    # The names of an argument's leaves begin with its prefix.
    prefixes = ["" if len(argnums) == 1 and number in argnums else name for number, name in enumerate(names)]

    def wrapper(*args: Any, **named: Any) -> Any:
        watch.note_arguments([*zip(prefixes, args, strict=True), *named.items()])
        return fn(*args, **named)

    wrapper.__name__ = getattr(fn, "__name__", type(fn).__name__)
    call = Call(wrapper if libraries else fn, tuple(args), names)
    for library, home in libraries:
        home.note_modules(library, watch, call.args)
        if hasattr(home, "split_modules"):
            call = home.split_modules(library, call, argnums)
    return call, watch


def return_states(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that also returns the parameters of its modules, for libraries that update them in place."""
    for library, home in _find_loaded():
        if hasattr(home, "return_states"):
            fn = home.return_states(library, fn)
    return fn


def call_model(model: Any, inputs: Sequence[Any]) -> Call:
    """Return the call of a module that is a pytree on its inputs, with the module differentiated."""

    def run(model: Any, /, *inputs: Any, **named: Any) -> Any:
        return model(*inputs, **named)

    return Call(name_arguments(run, model, "model"), (model, *inputs))


def name_arguments(call: Callable[..., Any], module: object, *names: str) -> Callable[..., Any]:
    """Return a function whose first arguments have these names, followed by those of a module's ``__call__``."""
    try:
        own = [*inspect.signature(type(module).__call__).parameters.values()][1:]
        first = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in names]
        whole = inspect.Signature([*first, *own])
    except (ValueError, TypeError, AttributeError):
        # Two arguments may have one name, and a function of C has no signature.
        return call

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    wrapper.__name__ = type(module).__name__
    wrapper.__signature__ = whole  # type: ignore[attr-defined]
    return wrapper


def argument_names(fn: Callable[..., Any], count: int) -> tuple[str, ...]:
    """Return the names of a function's first positional arguments, or their positions if it has no signature.

    >>> argument_names(lambda params, *inputs: 0, 3)
    ('params', 'inputs.0', 'inputs.1')
    """
    parameters = find_parameters(fn)
    if parameters is None:
        return tuple(map(str, range(count)))
    positional = [each.name for each in parameters if each.kind <= inspect.Parameter.POSITIONAL_OR_KEYWORD]
    more = next((each.name for each in parameters if each.kind == inspect.Parameter.VAR_POSITIONAL), "")
    rest = [f"{more}.{number}" if more else str(number) for number in range(count - len(positional))]
    return tuple(map(plain_text, (*positional[:count], *rest)))


def find_parameters(fn: Callable[..., Any]) -> list[inspect.Parameter] | None:
    """Return the parameters of a function, ``None`` if it has no signature."""
    try:
        return [*inspect.signature(fn).parameters.values()]
    except (ValueError, TypeError):
        return None


def _find_loaded() -> list[tuple[Any, Any]]:
    """Return the imported libraries, each with its file here."""
    return [(sys.modules[name], import_module(home)) for name, home in _LIBRARIES.items() if sys.modules.get(name)]
