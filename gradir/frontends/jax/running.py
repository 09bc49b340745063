"""Capture, or explain, at a gradient that a program asks for by itself."""

from __future__ import annotations

import inspect
import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial, update_wrapper, wraps
from types import FrameType, MethodType
from typing import Any, Final, NamedTuple

import jax
from jax import tree_util
from msgspec.structs import replace

from gradir.errors import CaptureError
from gradir.explanations.model import Examined, Explanation
from gradir.frontends.jax.arguments import NoGraphError, shown_name
from gradir.frontends.jax.explaining import explain, has_numbers
from gradir.frontends.jax.live import Trace, trace
from gradir.frontends.jax.modules import argument_names, returning_states
from gradir.frontends.jax.reading.jaxprs import fill, is_inexact, type_of
from gradir.frontends.jax.steps import Asked, Inner, explain_inner, find_asked, inner_of, read_request
from gradir.frontends.walks import replace_function
from gradir.ir import Graph
from gradir.protocols import Reached
from gradir.request import CaptureRequest

_LIBRARIES: Final = frozenset({"equinox", "flax"})
# By function that calls a jitted one, its variable with the function of the user.
_WRAPPERS: Final = {"JitWrapped.__call__": "self", "SimpleJitWrapped.__call__": "self", "_call": "jit_wrapper"}

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
    """A gradient that is asked for; see `gradir.protocols.ReachedBackward`."""

    def __init__(self, call: Call | None, asked: Callable[[], Asked] | None, request: CaptureRequest) -> None:
        """``asked`` tells what is asked for, where the program is there already."""
        self._call, self._asked, self._request = call, asked, request

    @property
    def loss(self) -> None:
        """Nothing: the function is not called yet."""

    is_piped = False

    def capture(self) -> Graph:
        """Capture the graph of the function whose gradient is asked for."""
        found = self._step(runs=False)
        traced = self._by_itself() if found is None else found[1].trace
        return traced.graph(collectives=self._request.collectives)

    def go_on(self, stepped: Callable[[Graph], None]) -> bool:  # noqa: ARG002
        """Return false: a gradient that JAX returns is of no optimizer yet."""
        return False

    def explain(self) -> Explanation:
        """Explain the function whose gradient is asked for, in view of the compiled step around it."""
        values = self._request.values
        found = self._step(runs=True)
        if found is None:
            about = self._by_itself()
            whole = explain(about, values=values if has_numbers(about) else None)
        else:
            about = found[1].trace
            with jax.core.eval_context():
                whole = explain_inner(*found, values=values if has_numbers(about) else None)
        return whole if has_numbers(about) else replace(whole, examined=_UNKNOWN)

    def _by_itself(self) -> Trace:
        if self._asked is None:
            name = shown_name(self._call.fn) if self._call is not None else "the program"
            raise CaptureError(f"cannot trace {name} once more, to find the function that it differentiates")
        return self._asked().traced()

    def _step(self, *, runs: bool) -> tuple[Trace, Inner] | None:
        """Return a trace of the compiled function and what it differentiates, if JAX can trace it anew."""
        if self._call is None:
            return None
        fn, args, kwargs = _of_user(self._call)
        typed = ((leaf for leaf in tree_util.tree_leaves(arg) if hasattr(leaf, "shape")) for arg in args)
        types = [Counter(map(type_of, filter(is_inexact, leaves))) for leaves in typed]
        places = [place for place, found in enumerate(types) if found]
        found: list[tuple[Trace, Inner]] = []

        def look(place: int) -> tuple[Trace, Inner] | None:
            """Trace the step as a function of one of its arguments, and what it differentiates by that, or at all."""
            step = trace(fn, args, kwargs, argnums=place)
            inner = inner_of(step, runs=runs)
            return None if inner is None else (step, inner)

        try:
            with jax.core.eval_context():
                for place in places:
                    looked = look(place)
                    if looked is None:
                        return None
                    found.append(looked)
                    wanted = Counter(type_of(leaf.aval) for leaf in looked[1].trace.differentiated)
                    if wanted <= types[place]:
                        # The state of an optimizer may have the same types, and more.
                        best = next((each for each in (place, *places) if types[each] == wanted), place)
                        return looked if best == place else look(best)
        except Exception:  # noqa: BLE001 (a program may raise if it runs in another way than its own)
            return None
        return found[0] if found else None


def _of_user(call: Call) -> tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]]:
    """Return the function that a program has compiled, by nnx or equinox too, with arguments that are not static."""
    caller = None if call.frame is None else call.frame.f_back
    if caller is not None and str(caller.f_globals.get("__name__")).partition(".")[0] in _LIBRARIES:
        names = caller.f_locals
        wrapper = names.get(_WRAPPERS.get(caller.f_code.co_qualname, ""))
        if wrapper is not None:
            return returning_states(wrapper.__wrapped__), tuple(names["args"]), names["kwargs"]
    numbers, words = (each if isinstance(each, (tuple, list)) else (each,) for each in call.static)
    # A number that is static is no leaf.
    fixed = {number % len(call.args) for number in numbers if number is not None and call.args}
    static = {word: call.kwargs[word] for word in words if word in call.kwargs}
    if not fixed and not static:
        return call.fn, call.args, call.kwargs
    free = [place for place in range(len(call.args)) if place not in fixed]

    @wraps(call.fn)
    def of_free(*args: Any, **kwargs: Any) -> Any:
        return call.fn(*fill(call.args, free, args), **kwargs, **static)

    of_free.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(f"arg{number}" if not name.isidentifier() else name, inspect.Parameter.POSITIONAL_ONLY)
            for number, name in enumerate(argument_names(call.fn, len(call.args)))
            if number not in fixed
        ]
    )
    return of_free, tuple(call.args[place] for place in free), {k: v for k, v in call.kwargs.items() if k not in static}


_ASKING: Final = ("grad", "value_and_grad", "vjp")


class Running:
    """Counts the gradients that a program asks for, and captures at one of them."""

    # JAX has no call of backward, and a program asks for most gradients inside a compiled function. So each call of a
    # compiled function that asks for gradients counts once, and outside of such calls each gradient. One inside
    # another, as in a penalty on gradients, does not count, nor does one in a forked process.

    def __init__(self, request: CaptureRequest, reached: Reached) -> None:
        self.calls = 0
        self._request, self._step, self._reached = request, request.step, reached
        self._process = os.getpid()
        self._of_thread = _OfThread()
        self._patches = ExitStack()
        self._raised: BaseException | None = None
        # By identity: JAX traces once what a program compiles anew at each call, and it may have no hash.
        self._asking_functions: dict[int, Callable[..., Any]] = {}

    def __enter__(self) -> Running:
        for name in _ASKING:
            replace_function(self._patches, jax, name, self._asking(getattr(jax, name)))
        replace_function(self._patches, jax, "jit", self._compiling(jax.jit))
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.close()

    def called(
        self, compiled: _Compiled, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType | None
    ) -> Any:
        """Call a compiled function, and count that if it is known to ask for a gradient."""
        own = self._of_thread
        if self._is_over or own.is_inside or own.call is not None:
            return compiled.made(*args, **kwargs)
        own.call = call = Call(compiled.fn, args, kwargs, frame, compiled.static)
        own.compiled, own.is_counted = compiled, False
        try:
            if id(compiled.fn) in self._asking_functions:
                self._count(Moment(call, None, self._request))
            return compiled.made(*args, **kwargs)
        finally:
            own.call = own.compiled = None

    def explained(self, outputs: object) -> Explanation:
        """Refuse to explain what a program has made, behind which JAX keeps nothing."""
        raise NoGraphError(outputs)

    @property
    def waiting(self) -> None:
        """Do not tell: what is traced sends nothing."""

    def stopped(self, why: str, error: BaseException | None = None) -> None:
        """Return nothing, since what is traced sends nothing."""

    def finished(self) -> None:
        """Return nothing, for the same reason."""

    def explained_failure(self, error: BaseException) -> None:
        """Explain no error: JAX says itself which operation has no derivative."""

    @property
    def _is_over(self) -> bool:
        return (self._raised is None and self.calls >= self._step) or os.getpid() != self._process

    def _asking(self, original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        def names_of(*args: Any, **kwargs: Any) -> Mapping[str, Any]:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return bound.arguments

        @wraps(original)
        def vjp(*args: Any, **kwargs: Any) -> Any:
            return self._asked(partial(original, *args, **kwargs), partial(names_of, *args, **kwargs))

        @wraps(original)
        def transformation(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)

            @wraps(made)
            def asking(*given: Any, **named: Any) -> Any:
                def names() -> Mapping[str, Any]:
                    return {**names_of(*args, **kwargs), "args": given, "kwargs": named}

                return self._asked(partial(made, *given, **named), names)

            return asking

        # It takes the gradient at once, where the others return a function that does.
        return vjp if original.__name__ == "vjp" else transformation

    def _asked(self, compute: Callable[[], Any], names: Callable[[], Mapping[str, Any]]) -> Any:
        """Compute a gradient, and count it if no call that counts is around it."""
        own = self._of_thread
        if self._is_over or own.is_inside:
            return compute()
        if own.compiled is not None:
            self._asking_functions[id(own.compiled.fn)] = own.compiled.fn
        own.is_inside, frame = True, inspect.currentframe()
        try:
            if own.call is None or not own.is_counted:
                self._count(Moment(own.call, lambda: find_asked(frame) or read_request(names()), self._request))
            return compute()
        finally:
            own.is_inside = False

    def _compiling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def jit(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            if args and hasattr(made, "lower"):
                return _Compiled(self, args[0], made, kwargs)
            # It takes options alone, and makes a decorator of them.
            return lambda fn: _Compiled(self, fn, made(fn), kwargs)

        return jit

    def _count(self, moment: Moment) -> None:
        if self._raised is not None:
            raise self._raised
        own = self._of_thread
        self.calls += 1
        own.is_counted = True
        if self.calls != self._step:
            return
        was_inside, own.is_inside = own.is_inside, True
        try:
            if self._reached(moment):
                self._step += 1
        except BaseException as error:
            self._raised = error
            raise
        finally:
            own.is_inside = was_inside


class _OfThread(threading.local):
    """The outermost call of a compiled function in a thread, and whether a gradient is computed."""

    is_inside = False
    is_counted = False
    call: Call | None = None
    compiled: _Compiled | None = None


class _Compiled:
    """A function made by `jax.jit` that counts its calls, and has all other attributes of that."""

    def __init__(self, running: Running, fn: Callable[..., Any], made: Any, options: Mapping[str, Any]) -> None:
        self.running, self.fn, self.made = running, fn, made
        self.static = options.get("static_argnums"), options.get("static_argnames")
        update_wrapper(self, made, updated=())
        # Whether it is compiled is asked of what it has itself.
        self.lower, self.trace = made.lower, made.trace

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.running.called(self, args, kwargs, inspect.currentframe())

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __getattr__(self, name: str) -> Any:
        if name == "made":
            raise AttributeError(name)
        return getattr(self.made, name)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any]]:
        return _itself, (self.made,)

    def __repr__(self) -> str:
        return repr(self.made)


def _itself(made: Any) -> Any:
    return made
