"""Capture or explain one of the gradients that a running program computes."""

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

from gradir import run_protocols
from gradir.errors import CaptureError
from gradir.explanations.model import Examined, Explanation
from gradir.frontends.jax.arguments import NoGraphError, callable_name
from gradir.frontends.jax.explaining import explain, has_values
from gradir.frontends.jax.live import Trace, trace
from gradir.frontends.jax.modules import argument_names, return_states
from gradir.frontends.jax.reading.jaxprs import is_inexact, replace_at, type_of
from gradir.frontends.jax.steps import GradientRequest, Inner, explain_inner, find_inner, find_request, read_request
from gradir.frontends.walks import replace_function
from gradir.ir import Graph
from gradir.request import CaptureRequest
from gradir.run_protocols import BackwardCallback, ReachedBackward

_LIBRARIES: Final = frozenset({"equinox", "flax"})
# The library functions that call a jitted function, each with its variable that has the user's function.
_WRAPPERS: Final = {"JitWrapped.__call__": "self", "SimpleJitWrapped.__call__": "self", "_call": "jit_wrapper"}

_UNKNOWN: Final = Examined(
    reason="the program takes this gradient where JAX traces it without values, as under vmap or scan",
    advice="call gradir.explain on the loss with arrays",
)


class Call(NamedTuple):
    """A call of a compiled function, with its frame and its static arguments, by position and by name."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    frame: FrameType | None
    static: tuple[Any, Any]


class RequestedGradient(ReachedBackward):
    """A gradient that a program requests. It has no loss, since the function has not run yet."""

    is_piped = False

    def __init__(self, call: Call | None, find: Callable[[], GradientRequest] | None, request: CaptureRequest) -> None:
        """``find`` returns the program's request if it is known already."""
        self._call, self._find, self._request = call, find, request

    def capture(self) -> Graph:
        """Capture the graph of the differentiated function."""
        found = self._trace_step(runs=False)
        traced = self._trace_alone() if found is None else found[1].trace
        return traced.graph(collectives=self._request.collectives)

    def go_on(self, stepped: Callable[[Graph], None]) -> bool:  # noqa: ARG002
        """Return false, since no optimizer is known to use the gradient."""
        return False

    def explain(self) -> Explanation:
        """Explain the differentiated function, in the context of the compiled step around it."""
        found = self._trace_step(runs=True)
        about = self._trace_alone() if found is None else found[1].trace
        values = self._request.values if has_values(about) else None
        if found is None:
            whole = explain(about, values=values)
        else:
            with jax.core.eval_context():
                whole = explain_inner(*found, values=values)
        return whole if has_values(about) else replace(whole, examined=_UNKNOWN)

    def _trace_alone(self) -> Trace:
        if self._find is None:
            name = callable_name(self._call.fn) if self._call is not None else "the program"
            raise CaptureError(f"cannot trace {name} once more, to find the function that it differentiates")
        return self._find().trace()

    def _trace_step(self, *, runs: bool) -> tuple[Trace, Inner] | None:
        """Return a trace of the compiled function, if JAX can make one, and the differentiated function."""
        if self._call is None:
            return None
        fn, args, kwargs = _find_user_function(self._call)
        arrays = ((leaf for leaf in tree_util.tree_leaves(arg) if hasattr(leaf, "shape")) for arg in args)
        types = [Counter(map(type_of, filter(is_inexact, leaves))) for leaves in arrays]
        places = [place for place, counts in enumerate(types) if counts]
        found: list[tuple[Trace, Inner]] = []

        def trace_argument(place: int) -> tuple[Trace, Inner] | None:
            step = trace(fn, args, kwargs, argnums=place)
            inner = find_inner(step, runs=runs)
            return None if inner is None else (step, inner)

        try:
            with jax.core.eval_context():
                for place in places:
                    traced = trace_argument(place)
                    if traced is None:
                        return None
                    found.append(traced)
                    wanted = Counter(type_of(leaf.aval) for leaf in traced[1].trace.differentiated)
                    if wanted <= types[place]:
                        # The state of an optimizer may contain the same types and others.
                        best = next((each for each in (place, *places) if types[each] == wanted), place)
                        return traced if best == place else trace_argument(best)
        except Exception:  # noqa: BLE001 (a program may raise if it runs in another way than its own)
            return None
        return found[0] if found else None


def _find_user_function(call: Call) -> tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]]:
    """Return the function that a program compiles, with its arguments that are not static."""
    caller = None if call.frame is None else call.frame.f_back
    if caller is not None and str(caller.f_globals.get("__name__")).partition(".")[0] in _LIBRARIES:
        variables = caller.f_locals
        jitted = variables.get(_WRAPPERS.get(caller.f_code.co_qualname, ""))
        if jitted is not None:
            return return_states(jitted.__wrapped__), tuple(variables["args"]), variables["kwargs"]
    positions, names = (each if isinstance(each, (tuple, list)) else (each,) for each in call.static)
    # A static argument is no leaf, even if it is a float.
    fixed = {position % len(call.args) for position in positions if position is not None and call.args}
    static = {name: call.kwargs[name] for name in names if name in call.kwargs}
    if not fixed and not static:
        return call.fn, call.args, call.kwargs
    free = [place for place in range(len(call.args)) if place not in fixed]

    @wraps(call.fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return call.fn(*replace_at(call.args, free, args), **kwargs, **static)

    wrapper.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(f"arg{number}" if not name.isidentifier() else name, inspect.Parameter.POSITIONAL_ONLY)
            for number, name in enumerate(argument_names(call.fn, len(call.args)))
            if number not in fixed
        ]
    )
    others = {name: value for name, value in call.kwargs.items() if name not in static}
    return wrapper, tuple(call.args[place] for place in free), others


class Running(run_protocols.Running):
    """Counts the gradients that a program computes, and captures at one of them. A traced program sends nothing."""

    # JAX has no call of backward, and a program computes most gradients inside a compiled function. So each call of a
    # compiled function that computes gradients counts once. Outside of such calls each gradient counts. A gradient
    # inside another one, as in a gradient penalty, does not count, nor does one in a forked process.
    calls = 0

    def __init__(self, request: CaptureRequest, reached: BackwardCallback) -> None:
        self._request, self._step, self._reached = request, request.step, reached
        self._process = os.getpid()
        self._local = _ThreadState()
        self._patches = ExitStack()
        self._raised: BaseException | None = None
        # By id(), since JAX caches the trace of a function that a program compiles at each call, and a function may
        # have no hash.
        self._gradient_functions: dict[int, Callable[..., Any]] = {}

    def __enter__(self) -> Running:
        for name in ("grad", "value_and_grad", "vjp"):
            replace_function(self._patches, jax, name, self._wrap_transformation(getattr(jax, name)))
        replace_function(self._patches, jax, "jit", self._wrap_jit(jax.jit))
        return self

    def __exit__(self, *_: object) -> None:
        self._patches.close()

    def call(self, compiled: _Compiled, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType | None) -> Any:
        """Call a compiled function, and count the call if the function is known to compute a gradient."""
        local = self._local
        if self._is_over or local.is_inside or local.call is not None:
            return compiled.jitted(*args, **kwargs)
        local.call = call = Call(compiled.fn, args, kwargs, frame, compiled.static)
        local.is_counted = False
        try:
            if id(compiled.fn) in self._gradient_functions:
                self._count(RequestedGradient(call, None, self._request))
            return compiled.jitted(*args, **kwargs)
        finally:
            local.call = None

    def explain(self, outputs: object) -> Explanation:
        """Refuse to explain an array, since JAX keeps no graph of it."""
        raise NoGraphError(outputs)

    @property
    def _is_over(self) -> bool:
        return (self._raised is None and self.calls >= self._step) or os.getpid() != self._process

    def _wrap_transformation(self, original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        def bind(*args: Any, **kwargs: Any) -> Mapping[str, Any]:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return bound.arguments

        @wraps(original)
        def vjp(*args: Any, **kwargs: Any) -> Any:
            return self._compute(partial(original, *args, **kwargs), partial(bind, *args, **kwargs))

        @wraps(original)
        def transform(*args: Any, **kwargs: Any) -> Any:
            gradient_fn = original(*args, **kwargs)

            @wraps(gradient_fn)
            def wrapper(*inputs: Any, **named: Any) -> Any:
                def bind_all() -> Mapping[str, Any]:
                    return {**bind(*args, **kwargs), "args": inputs, "kwargs": named}

                return self._compute(partial(gradient_fn, *inputs, **named), bind_all)

            return wrapper

        # vjp computes at once, and the others return a function.
        return vjp if original.__name__ == "vjp" else transform

    def _compute(self, compute: Callable[[], Any], names: Callable[[], Mapping[str, Any]]) -> Any:
        """Compute a gradient, and count it unless an enclosing call counts."""
        local = self._local
        if self._is_over or local.is_inside:
            return compute()
        if local.call is not None:
            self._gradient_functions[id(local.call.fn)] = local.call.fn
        local.is_inside, frame = True, inspect.currentframe()
        try:
            if local.call is None or not local.is_counted:
                gradient = RequestedGradient(
                    local.call, lambda: find_request(frame) or read_request(names()), self._request
                )
                self._count(gradient)
            return compute()
        finally:
            local.is_inside = False

    def _wrap_jit(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def jit(*args: Any, **kwargs: Any) -> Any:
            jitted = original(*args, **kwargs)
            if args and hasattr(jitted, "lower"):
                return _Compiled(self, args[0], jitted, kwargs)
            # Called with options alone, jax.jit returns a decorator.
            return lambda fn: _Compiled(self, fn, jitted(fn), kwargs)

        return jit

    def _count(self, gradient: RequestedGradient) -> None:
        if self._raised is not None:
            raise self._raised
        local = self._local
        self.calls += 1
        local.is_counted = True
        if self.calls != self._step:
            return
        was_inside, local.is_inside = local.is_inside, True
        try:
            if self._reached(gradient):
                self._step += 1
        except BaseException as error:
            self._raised = error
            raise
        finally:
            local.is_inside = was_inside


class _ThreadState(threading.local):
    """The outermost call of a compiled function in a thread, and whether a gradient is being computed."""

    is_inside = False
    is_counted = False
    call: Call | None = None


class _Compiled:
    """A function made by `jax.jit` that counts its calls, and forwards all other attributes."""

    def __init__(self, running: Running, fn: Callable[..., Any], jitted: Any, options: Mapping[str, Any]) -> None:
        self.running, self.fn, self.jitted = running, fn, jitted
        self.static = options.get("static_argnums"), options.get("static_argnames")
        update_wrapper(self, jitted, updated=())
        # JAX and other libraries look for these attributes on the object itself.
        self.lower, self.trace = jitted.lower, jitted.trace

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.running.call(self, args, kwargs, inspect.currentframe())

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __getattr__(self, name: str) -> Any:
        if name == "jitted":
            raise AttributeError(name)
        return getattr(self.jitted, name)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any]]:
        return _return_unchanged, (self.jitted,)

    def __repr__(self) -> str:
        return repr(self.jitted)


def _return_unchanged(made: Any) -> Any:
    return made
