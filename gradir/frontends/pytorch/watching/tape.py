"""The operations behind the losses of a step, so that a loss can be computed once more."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from threading import get_ident
from types import FrameType, MethodWrapperType
from typing import Any, Final, NamedTuple

import torch
from torch import nn

from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.reading.outputs import tensors_of
from gradir.frontends.pytorch.recording.leaving import FunctionMode
from gradir.frontends.pytorch.recording.modes import CompiledParts, set_modes
from gradir.frontends.pytorch.recording.places import Place, Places
from gradir.frontends.pytorch.recording.steps import tensors_in
from gradir.frontends.substitution import replace_function

_MOST_LOSSES: Final = 16
_DEVICES: Final = ("cpu", "cuda")
_RANDOM: Final = ("drop", "attention", "rand", "normal", "uniform", "gumbel", "bernoulli", "lstm", "gru", "rnn")


class Operation:
    """A call of a module, or of a function of torch's outside of modules.

    Its arguments have a `Result` for each tensor of another call. A forgotten call has no ``kwargs``. ``states`` are
    the random states before it.
    """

    __slots__ = ("args", "autocast", "func", "kwargs", "number", "place", "states")

    def __init__(
        self,
        func: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        states: Mapping[str, torch.Tensor],
    ) -> None:
        self.func, self.args, self.states = func, args, states
        self.kwargs: Mapping[str, Any] | None = kwargs
        self.number = 0
        self.place: Place | None = None
        self.autocast: Sequence[tuple[str, torch.dtype]] = ()


class Result(NamedTuple):
    """One of the tensors that a call gave."""

    made_by: Operation
    number: int


class Given(NamedTuple):
    """A tensor that no known call made, as a leaf without the graph behind it."""

    leaf: torch.Tensor
    name: str


class _Known(weakref.ref[torch.Tensor]):
    """A tensor that the program has, and what it is the result of."""

    __slots__ = ("key", "result")

    key: int
    result: Result


class Tape(FunctionMode):
    """Notes what this thread computes with gradient, as long as it is entered: calls of modules as a whole.

    An operation is known as long as the program has a tensor that it is behind, and all are forgotten with a step. So
    nothing but what came from outside is kept longer than the program keeps it, and that until the step.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_paused = False
        """While a module or compiled code runs, and while something is looked at."""
        self.losses: list[tuple[Result, torch.Tensor]] = []
        """What the calls of backward since the last step started from."""
        self._number = 0
        self._places = Places()
        self._known: dict[int, _Known] = {}
        self._entered = ExitStack()
        self._kinds: set[type] = set()

    def __enter__(self) -> Tape:
        self._entered.enter_context(CompiledParts(self))
        super().__enter__()
        self._entered.callback(super().__exit__, None, None, None)
        return self

    def close(self) -> None:
        """Note no more."""
        self._entered.close()

    def note_calls(self, modules: Iterable[nn.Module]) -> None:
        """Note calls of modules of the kinds of these as a whole, where they are in no other such call."""
        if not self.thread:
            return
        for kind in {type(module) for module in modules} - self._kinds:
            self._kinds.add(kind)
            replace_function(self._entered, kind, "__call__", self._noting(kind.__call__))

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Note nothing, and cost nothing."""
        modes = private.function_modes()
        if self.is_paused or get_ident() != self.thread or all(mode is not self for mode in modes):
            yield
            return
        above = len(modes) - 1 - next(place for place, mode in enumerate(modes) if mode is self)
        set_modes([mode for mode in modes if mode is not self])
        self.is_paused = True
        try:
            yield
        finally:
            self.is_paused = False
            now = private.function_modes()
            place = max(len(now) - above, 0)
            set_modes([*now[:place], self, *now[place:]])

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if (
            self.is_paused
            or type(func) is MethodWrapperType
            or torch.compiler.is_compiling()
            or not torch.is_grad_enabled()
        ):
            return func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        states = _random_states(args) if any(part in name for part in _RANDOM) else {}
        result = func(*args, **(kwargs or {}))
        if result is None and args and isinstance(args[0], torch.Tensor):
            # It may have been written to.
            self._known.pop(id(args[0]), None)
        elif not isinstance(result, torch.Size):
            self._note(Operation(func, args, kwargs or {}, states), tensors_in(result), sys._getframe(1))
        return result

    def keep(self, loss: object) -> None:
        """Note that a backward starts from a loss."""
        known = self._result_of(loss) if isinstance(loss, torch.Tensor) else None
        if isinstance(loss, torch.Tensor) and known is not None:
            self.losses = [*self.losses[1 - _MOST_LOSSES :], (known, loss.detach())]

    def forget(self) -> None:
        """Let go of what is behind the losses, which a step has made old."""
        waiting = [result.made_by for result, _ in self.losses]
        self.losses = []
        while waiting:
            each = waiting.pop()
            if each.kwargs is not None:
                waiting += [result.made_by for result in results_in((each.args, each.kwargs))]
                each.args, each.kwargs = (), None

    def _noting(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def noted(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or self.is_paused or get_ident() != self.thread:
                return call(module, *args, **kwargs)
            with self.aside():
                states = _random_states([*tensors_in((args, kwargs)), *module.parameters()])
                result = call(module, *args, **kwargs)
                if torch.is_grad_enabled():
                    self._note(Operation(module, args, kwargs, states), tensors_of(result), sys._getframe(1))
            return result

        return noted

    def _note(self, noted: Operation, made: Iterable[torch.Tensor], frame: FrameType) -> None:
        results = [(number, tensor) for number, tensor in enumerate(made) if tensor.grad_fn is not None]
        if not results:
            return
        self._number += 1
        noted.number, noted.place = self._number, self._places(frame)
        noted.args, noted.kwargs = (
            map_tensors(noted.args, self._reference),
            map_tensors(noted.kwargs, self._reference),
        )
        noted.autocast = [
            (kind, torch.get_autocast_dtype(kind)) for kind in _DEVICES if torch.is_autocast_enabled(kind)
        ]
        for number, tensor in results:
            known = _Known(tensor, self._forget_one)
            known.key, known.result = id(tensor), Result(noted, number)
            self._known[known.key] = known

    def _forget_one(self, known: _Known) -> None:
        if self._known.get(known.key) is known:
            del self._known[known.key]

    def _result_of(self, tensor: torch.Tensor) -> Result | None:
        known = self._known.get(id(tensor))
        return known.result if known is not None and known() is tensor else None

    def _reference(self, tensor: torch.Tensor) -> object:
        """Return the object that stands for a tensor among the arguments of a call."""
        if tensor.grad_fn is None:
            return tensor
        made_by = type(tensor.grad_fn).__name__.removesuffix("Backward")
        return self._result_of(tensor) or Given(tensor.detach().requires_grad_(), f"the result of {made_by}")


def map_tensors(value: Any, change: Callable[[Any], Any]) -> Any:
    """Arguments with what ``change`` makes of each tensor among them, and of what stands for one."""
    if isinstance(value, (torch.Tensor, Result, Given)):
        return change(value)
    if type(value) is slice:
        return slice(*map_tensors((value.start, value.stop, value.step), change))
    if isinstance(value, dict):
        return {key: map_tensors(each, change) for key, each in value.items()}
    if type(value) is tuple or type(value) is list:
        return type(value)([map_tensors(each, change) for each in value])
    return value


def results_in(value: Any) -> Sequence[Result]:
    """Return the results of other calls among arguments."""
    found: list[Result] = []
    map_tensors(value, lambda each: found.append(each) if isinstance(each, Result) else None)
    return found


def _random_states(values: Iterable[Any]) -> Mapping[str, torch.Tensor]:
    devices = {tensor.device for tensor in tensors_in([*values])}
    states = {str(each): torch.cuda.get_rng_state(each) for each in devices if each.type == "cuda"}
    return {**states, "cpu": torch.get_rng_state()}
