"""The operations behind the losses of a step, by which a loss is computed once more and explained."""

from __future__ import annotations

import io
import logging
import random
import sys
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import wraps
from threading import get_ident
from types import CellType, FrameType, FunctionType, MethodType, MethodWrapperType
from typing import Any, Final, NamedTuple

import torch
from torch import nn

from gradir.errors import CaptureError
from gradir.explanations.model import Explanation
from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.reading.outputs import tensors_of
from gradir.frontends.pytorch.reading.tensors import number_of
from gradir.frontends.pytorch.recorder import Recorder
from gradir.frontends.pytorch.recording.modes import CompiledParts, set_modes
from gradir.frontends.pytorch.recording.places import Place, Places, run_at
from gradir.frontends.pytorch.recording.removable_modes import FunctionMode
from gradir.frontends.pytorch.recording.steps import tensors_in
from gradir.frontends.pytorch.verifying.untouched import refill
from gradir.frontends.walks import reached, replace_function
from gradir.request import CaptureRequest

_MOST_LOSSES: Final = 16
_DEVICES: Final = ("cpu", "cuda")
_RANDOM: Final = ("drop", "attention", "rand", "normal", "uniform", "gumbel", "bernoulli", "lstm", "gru", "rnn")


@dataclass(eq=False, slots=True)
class Operation:
    """A call of a module, or of a function of torch's outside of modules."""

    func: Callable[..., Any]
    # With a `Result` for each tensor of another call. A forgotten call has no keywords.
    args: Sequence[Any]
    kwargs: Mapping[str, Any] | None
    # The random states before it.
    states: Mapping[str, torch.Tensor]
    number: int = 0
    place: Place | None = None
    autocast: Sequence[tuple[str, torch.dtype]] = ()


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
    """Notes what this thread computes with gradient, as long as it is entered: calls of modules as a whole."""

    # An operation is known as long as the program has a tensor that it is behind, and all are forgotten with a step.
    # So nothing but what came from outside is kept longer than the program keeps it, and that until the step.

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
        is_other = type(func) is MethodWrapperType or torch.compiler.is_compiling() or not torch.is_grad_enabled()
        if self.is_paused or is_other:
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
        noted.args, noted.kwargs = map_tensors((noted.args, noted.kwargs), self._reference)
        enabled = filter(torch.is_autocast_enabled, _DEVICES)
        noted.autocast = [(kind, torch.get_autocast_dtype(kind)) for kind in enabled]
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


_DEEPEST: Final = 4
_MOST_VALUES: Final = 100_000
# An embedding with this argument writes to its weight, and has done so the first time.
_RENORMING: Final = "max_norm"


class Computed(NamedTuple):
    """A loss that was computed once more: its number, that of the first time, and what explains its gradients."""

    value: float | None
    before: float | None
    found: Explanation


def compute_again(tape: Tape, name_of: Callable[[torch.Tensor], str]) -> Iterator[Computed]:
    """Compute each loss since the last step once more, where possible, and explain it."""
    for result, before in tape.losses:
        with tape.aside():
            found = _compute_loss(result, before, name_of)
        if found is not None:
            yield found


def _compute_loss(result: Result, before: torch.Tensor, name_of: Callable[[torch.Tensor], str]) -> Computed | None:
    again = _Again(name_of)
    try:
        with _restore_state(_list_operations(result)), private.modes_set_aside(), torch.enable_grad():
            with Recorder(CaptureRequest(flow=True, values=True)) as recorder:
                loss = again.result(result)
            found = recorder.explain(loss, params=again.names, values=True)
    except Exception:  # noqa: BLE001 (whatever an operation raises)
        return None
    return Computed(number_of(loss), number_of(before), found)


class _Again:
    """Runs operations once more, on leaves that share the memory of the program's and not their hooks."""

    def __init__(self, name_of: Callable[[torch.Tensor], str]) -> None:
        self.names: dict[str, torch.Tensor] = {}
        self._name_of = name_of
        self._leaves: dict[int, torch.Tensor] = {}
        self._made: dict[Operation, Sequence[torch.Tensor]] = {}

    def result(self, wanted: Result) -> torch.Tensor:
        for operation in _list_operations(wanted):
            self._made[operation] = tensors_of(self._run(operation))
        return self._given(wanted)

    def _run(self, operation: Operation) -> Any:
        func = operation.func
        args, kwargs = map_tensors(operation.args, self._given), map_tensors(operation.kwargs, self._given)
        if kwargs.get(_RENORMING) is not None:
            kwargs[_RENORMING] = None
        with ExitStack() as state:
            for device, dtype in operation.autocast:
                state.enter_context(torch.autocast(device, dtype))
            for name, numbers in operation.states.items():
                torch.set_rng_state(numbers) if name == "cpu" else torch.cuda.set_rng_state(numbers, name)
            if not isinstance(func, nn.Module):
                return run_at(operation.place, func, args, kwargs)
            own = {name: self._given(each) for name, each in [*func.named_parameters(), *func.named_buffers()]}
            return run_at(operation.place, torch.func.functional_call, (func, own, args, kwargs), {})

    def _given(self, value: Any) -> torch.Tensor:
        if isinstance(value, Result):
            return self._made[value.made_by][value.number]
        tensor, name = value if isinstance(value, Given) else (value, self._name_of(value))
        if id(tensor) not in self._leaves:
            other = tensor.detach()
            if not tensor.requires_grad:
                # A batch norm writes to its buffers.
                other = other.clone()
            elif isinstance(tensor, nn.Parameter):
                other = nn.Parameter(other)
            self._leaves[id(tensor)] = other.requires_grad_(tensor.requires_grad)
            if name and tensor.requires_grad:
                self.names[name] = other
        return self._leaves[id(tensor)]


def _list_operations(result: Result) -> list[Operation]:
    """Return the operations behind a result, in order; raise `CaptureError` if one was forgotten."""

    def inputs(each: Operation) -> list[Operation]:
        if each.kwargs is None:
            raise CaptureError("what is behind this loss was forgotten with an earlier step")
        return [other.made_by for other in results_in((each.args, each.kwargs))]

    return sorted(reached([result.made_by], inputs), key=lambda operation: operation.number)


@contextmanager
def _restore_state(operations: Sequence[Operation]) -> Iterator[None]:
    """Put back what modules have noted by themselves and the random numbers, and show nothing of what they print."""
    modules = [operation.func for operation in operations if isinstance(operation.func, nn.Module)]
    kept = [*_contents(modules)]
    devices = {name for operation in operations for name in operation.states} - {"cpu"}
    numpy: Any = sys.modules.get("numpy")
    state, others, disabled = random.getstate(), numpy and numpy.random.get_state(), logging.root.manager.disable
    logging.disable()
    try:
        with (
            torch.random.fork_rng(devices),
            redirect_stdout(io.StringIO()),
            redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
            # From 2.6 on torch can run compiled modules as they are written.
            getattr(torch.compiler, "set_stance", nullcontext)("force_eager"),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
        random.setstate(state)
        if numpy:
            numpy.random.set_state(others)
        for value, content in kept:
            if isinstance(value, CellType):
                value.cell_contents = content
            else:
                refill(value, content)


def _contents(roots: Sequence[object]) -> Iterator[tuple[Any, Any]]:
    """Yield the containers, the objects and the variables of functions in some objects, with what each has now."""
    seen: set[int] = set()
    waiting = deque((root, 0) for root in roots)
    while waiting and len(seen) < _MOST_VALUES:
        value, depth = waiting.popleft()
        if id(value) in seen or isinstance(value, (torch.Tensor, type)):
            continue
        seen.add(id(value))
        inside: Any = ()
        if isinstance(value, (list, deque, set, dict)):
            inside = [*(value.values() if isinstance(value, dict) else value)]
            yield value, type(value)(value) if type(value) in {list, set, dict} else value.copy()
        elif isinstance(value, tuple):
            inside = value
        elif isinstance(value, MethodType):
            inside = (value.__self__, value.__func__)
        elif isinstance(value, FunctionType):
            inside = value.__closure__ or ()
        elif isinstance(value, CellType):
            with suppress(ValueError):
                inside = (value.cell_contents,)
                yield value, value.cell_contents
        elif isinstance(getattr(value, "__dict__", None), dict):
            inside = (vars(value),)
        step = 0 if isinstance(value, nn.Module) else 1
        waiting += [(each, depth + step) for each in inside if depth < _DEEPEST]
