"""Capture, or explain, at a gradient that a program asks for by itself.

JAX has no call of backward: a program asks for the gradient of a function, and mostly inside a function that it has
compiled. So the calls that count are those of the outermost compiled function that asks for any, and else those for the
gradient itself. The functions that make both are replaced while a script runs; what they make computes as before.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial, update_wrapper, wraps
from types import FrameType, MethodType, TracebackType
from typing import Any, Final

import jax

from gradir.explanations.model import Explanation
from gradir.frontends.jax.arguments import NoGraphError
from gradir.frontends.jax.calls import Call, Moment
from gradir.frontends.jax.steps import Asked, asked_around, asked_of
from gradir.protocols import Reached
from gradir.request import CaptureRequest

__all__ = ["Running"]

_ASKING: Final = ("grad", "value_and_grad", "vjp")


class Running:
    """Counts the gradients that a program asks for, and captures at one of them.

    A call of a function that `jax.jit` made, that of nnx and equinox too, counts once if it asks for gradients, however
    many these are, and so does each further call of it. Outside of such a call each gradient counts where it is asked
    for. One inside of another, as of a penalty on gradients, does not count, nor does one in a process that this one
    has forked.
    """

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
            self._put(name, self._asking(getattr(jax, name)))
        self._put("jit", self._compiling(jax.jit))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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

    def explained_failure(self, error: BaseException) -> None:
        """Explain no error: JAX says itself which operation has no derivative."""

    @property
    def _is_over(self) -> bool:
        return (self._raised is None and self.calls >= self._step) or os.getpid() != self._process

    def _put(self, name: str, replacement: Any) -> None:
        original = getattr(jax, name)
        setattr(jax, name, replacement)
        self._patches.callback(_put_back, name, replacement, original)

    def _asking(self, original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        def names_of(*args: Any, **kwargs: Any) -> Mapping[str, Any]:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return bound.arguments

        if original.__name__ == "vjp":

            @wraps(original)
            def vjp(*args: Any, **kwargs: Any) -> Any:
                return self._asked(partial(original, *args, **kwargs), partial(names_of, *args, **kwargs))

            return vjp

        @wraps(original)
        def transformation(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)

            @wraps(made)
            def asking(*given: Any, **named: Any) -> Any:
                def names() -> Mapping[str, Any]:
                    return {**names_of(*args, **kwargs), "args": given, "kwargs": named}

                return self._asked(partial(made, *given, **named), names)

            return asking

        return transformation

    def _asked(self, compute: Callable[[], Any], names: Callable[[], Mapping[str, Any]]) -> Any:
        """Compute a gradient, and count it if no call that counts is around it."""
        own = self._of_thread
        if self._is_over or own.is_inside:
            return compute()
        if own.compiled is not None:
            self._asking_functions[id(own.compiled.fn)] = own.compiled.fn
        own.is_inside = True
        try:
            if own.call is None or not own.is_counted:
                self._count(Moment(own.call, partial(_read, names, inspect.currentframe()), self._request))
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
    """What runs in a thread: the outermost call of a compiled function, and whether a gradient is computed."""

    is_inside = False
    is_counted = False
    call: Call | None = None
    compiled: _Compiled | None = None


class _Compiled:
    """What `jax.jit` makes, in front of which its calls are noted. All else is asked of that."""

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


def _read(names: Callable[[], Mapping[str, Any]], frame: FrameType | None) -> Asked:
    return asked_around(frame) or asked_of(names())


def _itself(made: Any) -> Any:
    """Return what a copy of a compiled function is made from."""
    return made


def _put_back(name: str, replacement: object, original: object) -> None:
    # A program may have put something of its own in front.
    if getattr(jax, name) is replacement:
        setattr(jax, name, original)
