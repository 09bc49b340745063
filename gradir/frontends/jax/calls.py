"""What can be captured and explained at a gradient that a program asks for."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from types import FrameType
from typing import Any, Final, NamedTuple

import jax
import numpy as np
from jax import tree_util
from msgspec.structs import replace

from gradir.errors import CaptureError
from gradir.explanations.model import Examined, Explanation
from gradir.frontends.jax.arguments import told
from gradir.frontends.jax.explaining import explain, has_numbers
from gradir.frontends.jax.live import Trace, trace
from gradir.frontends.jax.modules import argument_names, returning_states
from gradir.frontends.jax.steps import Asked, Inner, explained_inside, inner_of
from gradir.ir import Graph
from gradir.request import CaptureRequest

__all__ = ["Call", "Moment"]


_LIBRARIES: Final = frozenset({"equinox", "flax"})
_WRAPPERS: Final = {"JitWrapped.__call__": "self", "SimpleJitWrapped.__call__": "self", "_call": "jit_wrapper"}
"""By the name of a function that calls what `jax.jit` made, its variable that has the function of the user."""

_UNKNOWN: Final = Examined(
    reason="the program takes this gradient where JAX traces it without values, as under vmap or scan",
    advice="call gradir.explain on the loss with arrays",
)


class Call(NamedTuple):
    """A call of a compiled function, with its frame, and which arguments are static, by number and by name."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    frame: FrameType | None
    static: tuple[Any, Any]


class Moment:
    """A gradient that is asked for, in a call of a compiled function or by itself.

    See `gradir.protocols.ReachedBackward`.
    """

    def __init__(self, call: Call | None, asked: Callable[[], Asked] | None, request: CaptureRequest) -> None:
        """``asked`` tells what is asked for, where the program is there already."""
        self._call, self._asked, self._request = call, asked, request

    @property
    def loss(self) -> None:
        """Nothing: the function is not called yet."""

    def capture(self) -> Graph:
        """Capture the graph of the function whose gradient is asked for.

        Raises:
            CaptureError: it has no graph, or JAX cannot trace it once more.
        """
        found = self._step(runs=False)
        return (self._by_itself() if found is None else found[1].trace).graph()

    def explain(self) -> Explanation:
        """Explain the function whose gradient is asked for, in view of what the compiled step does with that.

        Raises:
            CaptureError: JAX cannot trace it once more, or its backward cannot run.
        """
        values = self._request.values
        found = self._step(runs=True)
        if found is None:
            about = self._by_itself()
            whole = explain(about, values=values if has_numbers(about) else None)
        else:
            about = found[1].trace
            with jax.core.eval_context():
                whole = explained_inside(*found, values=values if has_numbers(about) else None)
        return whole if has_numbers(about) else replace(whole, examined=_UNKNOWN)

    def _by_itself(self) -> Trace:
        if self._asked is None:
            name = told(self._call.fn) if self._call is not None else "the program"
            raise CaptureError(f"cannot trace {name} once more, to find the function that it differentiates")
        return self._asked().traced()

    def _step(self, *, runs: bool) -> tuple[Trace, Inner] | None:
        """Return a trace of the compiled function, and what it differentiates; ``None`` where it cannot be traced anew.

        The program may be in the middle of its own trace, which is not to get what is computed here.
        """
        if self._call is None:
            return None
        fn, args, kwargs = _of_user(self._call)
        types = [_types(arg) for arg in args]
        places = [place for place, found in enumerate(types) if found]
        found: list[tuple[Trace, Inner]] = []
        try:
            with jax.core.eval_context():
                for place in places:
                    step, inner = _traced(fn, args, kwargs, place, runs=runs)
                    if inner is None:
                        return None
                    found.append((step, inner))
                    wanted = Counter(_type(leaf.aval) for leaf in inner.trace.differentiated)
                    if wanted <= types[place]:
                        # The state of an optimizer may have the same types, and more.
                        best = next((each for each in (place, *places) if types[each] == wanted), place)
                        return found[-1] if best == place else _known(_traced(fn, args, kwargs, best, runs=runs))
        except Exception:  # noqa: BLE001 (a program may raise if it runs in another way than its own)
            return None
        return found[0] if found else None


def _traced(
    fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], place: int, *, runs: bool
) -> tuple[Trace, Inner | None]:
    """Trace a step as a function of one of its arguments, and what it differentiates by that, or at all."""
    step = trace(fn, args, kwargs, argnums=place)
    return step, inner_of(step, runs=runs)


def _known(found: tuple[Trace, Inner | None]) -> tuple[Trace, Inner] | None:
    step, inner = found
    return None if inner is None else (step, inner)


def _of_user(call: Call) -> tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]]:
    """Return the function that a program has compiled, by nnx or equinox too, with arguments that are not static."""
    caller = None if call.frame is None else call.frame.f_back
    if caller is not None and str(caller.f_globals.get("__name__")).partition(".")[0] in _LIBRARIES:
        names = caller.f_locals
        wrapper = names.get(_WRAPPERS.get(caller.f_code.co_qualname, ""))
        if wrapper is not None:
            return returning_states(wrapper.__wrapped__), tuple(names["args"]), names["kwargs"]
    numbers, words = (each if isinstance(each, (tuple, list)) else (each,) for each in call.static)
    fixed = {number % len(call.args) for number in numbers if number is not None and call.args}
    static = {word: call.kwargs[word] for word in words if word in call.kwargs}
    # A number that is static is no leaf.
    if not fixed and not static:
        return call.fn, call.args, call.kwargs
    free = [place for place in range(len(call.args)) if place not in fixed]

    @wraps(call.fn)
    def of_free(*args: Any, **kwargs: Any) -> Any:
        values = [*call.args]
        for place, value in zip(free, args, strict=True):
            values[place] = value
        return call.fn(*values, **kwargs, **static)

    of_free.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(f"arg{number}" if not name.isidentifier() else name, inspect.Parameter.POSITIONAL_ONLY)
            for number, name in enumerate(argument_names(call.fn, len(call.args)))
            if number not in fixed
        ]
    )
    return of_free, tuple(call.args[place] for place in free), {k: v for k, v in call.kwargs.items() if k not in static}


def _types(value: Any) -> Counter[tuple[tuple[int, ...], str]]:
    """Count the types of the arrays of floats in a value."""
    leaves = (leaf for leaf in tree_util.tree_leaves(value) if hasattr(leaf, "shape") and hasattr(leaf, "dtype"))
    return Counter(map(_type, filter(_is_float, leaves)))


def _type(array: Any) -> tuple[tuple[int, ...], str]:
    return tuple(array.shape), str(array.dtype)


def _is_float(array: Any) -> bool:
    return bool(jax.dtypes.issubdtype(array.dtype, np.inexact))
