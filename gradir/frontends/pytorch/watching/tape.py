"""Record the operations of a step, to compute its losses once more and explain them."""

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
from gradir.frontends.pytorch.reading.tensors import read_scalar
from gradir.frontends.pytorch.recorder import Recorder
from gradir.frontends.pytorch.recording.modes import CompiledParts, set_modes
from gradir.frontends.pytorch.recording.places import Place, Places, run_at
from gradir.frontends.pytorch.recording.removable_modes import FunctionMode
from gradir.frontends.pytorch.recording.steps import tensors_in
from gradir.frontends.pytorch.verifying.untouched import refill
from gradir.frontends.walks import find_reachable, replace_function
from gradir.request import CaptureRequest

_MOST_LOSSES: Final = 16
_DEVICES: Final = ("cpu", "cuda")
_RANDOM: Final = ("drop", "attention", "rand", "normal", "uniform", "gumbel", "bernoulli", "lstm", "gru", "rnn")


@dataclass(eq=False, slots=True)
class Operation:
    """A call of a module, or of a torch function outside of modules."""

    func: Callable[..., Any]
    # A `Result` replaces each tensor of another call. A forgotten call has no kwargs.
    args: Sequence[Any]
    kwargs: Mapping[str, Any] | None
    # The random states before the call.
    states: Mapping[str, torch.Tensor]
    number: int = 0
    place: Place | None = None
    autocast: Sequence[tuple[str, torch.dtype]] = ()


class Result(NamedTuple):
    """A tensor that a call returned."""

    made_by: Operation
    number: int


class Input(NamedTuple):
    """A tensor that no recorded call made, as a leaf without its graph."""

    leaf: torch.Tensor
    name: str


class _TensorRef(weakref.ref[torch.Tensor]):
    __slots__ = ("key", "result")

    key: int
    result: Result


class Tape(FunctionMode):
    """Records this thread's operations with gradient while it is entered. A module's call is one operation."""

    # The tape forgets an operation as soon as the program has no tensor that depends on it, and all operations after a
    # step. So only tensors from outside may live longer than in the program, at most until the step.

    def __init__(self) -> None:
        super().__init__()
        self.is_paused = False
        """True while a module, compiled code or gradir itself runs."""
        self.losses: list[tuple[Result, torch.Tensor]] = []
        """The roots of the calls of backward since the last step."""
        self._number = 0
        self._places = Places()
        self._refs: dict[int, _TensorRef] = {}
        self._patches = ExitStack()
        self._kinds: set[type] = set()

    def __enter__(self) -> Tape:
        self._patches.enter_context(CompiledParts(self))
        super().__enter__()
        self._patches.callback(super().__exit__, None, None, None)
        return self

    def close(self) -> None:
        """Stop recording."""
        self._patches.close()

    def record_modules(self, modules: Iterable[nn.Module]) -> None:
        """Record each call of these modules' classes as one operation, unless it is inside another such call."""
        if not self.thread:
            return
        for kind in {type(module) for module in modules} - self._kinds:
            self._kinds.add(kind)
            replace_function(self._patches, kind, "__call__", self._wrap_call(kind.__call__))

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Record nothing, without the cost of a mode."""
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

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_other = type(func) is MethodWrapperType or torch.compiler.is_compiling() or not torch.is_grad_enabled()
        if self.is_paused or is_other:
            return func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        states = _random_states(args) if any(part in name for part in _RANDOM) else {}
        result = func(*args, **(kwargs or {}))
        if result is None and args and isinstance(args[0], torch.Tensor):
            # The function may write to its argument.
            self._refs.pop(id(args[0]), None)
        elif not isinstance(result, torch.Size):
            self._record(Operation(func, args, kwargs or {}, states), tensors_in(result), sys._getframe(1))
        return result

    def add_loss(self, loss: object) -> None:
        """Record the root of a backward pass."""
        if isinstance(loss, torch.Tensor) and (result := self._result_of(loss)) is not None:
            self.losses = [*self.losses[1 - _MOST_LOSSES :], (result, loss.detach())]

    def forget(self) -> None:
        """Forget the losses and their operations, which are outdated after a step."""
        waiting = [result.made_by for result, _ in self.losses]
        self.losses = []
        while waiting:
            each = waiting.pop()
            if each.kwargs is not None:
                waiting += [result.made_by for result in results_in((each.args, each.kwargs))]
                each.args, each.kwargs = (), None

    def _wrap_call(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def wrapper(module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or self.is_paused or get_ident() != self.thread:
                return call(module, *args, **kwargs)
            with self.pause():
                states = _random_states([*tensors_in((args, kwargs)), *module.parameters()])
                result = call(module, *args, **kwargs)
                if torch.is_grad_enabled():
                    self._record(Operation(module, args, kwargs, states), tensors_of(result), sys._getframe(1))
            return result

        return wrapper

    def _record(self, operation: Operation, made: Iterable[torch.Tensor], frame: FrameType) -> None:
        results = [(number, tensor) for number, tensor in enumerate(made) if tensor.grad_fn is not None]
        if not results:
            return
        self._number += 1
        operation.number, operation.place = self._number, self._places(frame)
        operation.args, operation.kwargs = map_tensors((operation.args, operation.kwargs), self._replace_tensor)
        enabled = filter(torch.is_autocast_enabled, _DEVICES)
        operation.autocast = [(kind, torch.get_autocast_dtype(kind)) for kind in enabled]
        for number, tensor in results:
            ref = _TensorRef(tensor, self._forget_one)
            ref.key, ref.result = id(tensor), Result(operation, number)
            self._refs[ref.key] = ref

    def _forget_one(self, ref: _TensorRef) -> None:
        if self._refs.get(ref.key) is ref:
            del self._refs[ref.key]

    def _result_of(self, tensor: torch.Tensor) -> Result | None:
        ref = self._refs.get(id(tensor))
        return ref.result if ref is not None and ref() is tensor else None

    def _replace_tensor(self, tensor: torch.Tensor) -> object:
        if tensor.grad_fn is None:
            return tensor
        made_by = type(tensor.grad_fn).__name__.removesuffix("Backward")
        return self._result_of(tensor) or Input(tensor.detach().requires_grad_(), f"the result of {made_by}")


def map_tensors(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return arguments with each tensor, `Result` and `Input` replaced by ``change``."""
    if isinstance(value, (torch.Tensor, Result, Input)):
        return change(value)
    if type(value) is slice:
        return slice(*map_tensors((value.start, value.stop, value.step), change))
    if isinstance(value, dict):
        return {key: map_tensors(each, change) for key, each in value.items()}
    if type(value) is tuple or type(value) is list:
        return type(value)([map_tensors(each, change) for each in value])
    return value


def results_in(value: Any) -> Sequence[Result]:
    """Return the results of other calls in arguments."""
    found: list[Result] = []
    map_tensors(value, lambda each: found.append(each) if isinstance(each, Result) else None)
    return found


def _random_states(values: Iterable[Any]) -> Mapping[str, torch.Tensor]:
    devices = {tensor.device for tensor in tensors_in([*values])}
    states = {str(each): torch.cuda.get_rng_state(each) for each in devices if each.type == "cuda"}
    return {**states, "cpu": torch.get_rng_state()}


_DEEPEST: Final = 4
_MOST_VALUES: Final = 100_000
# An embedding with this argument has renormalized its weight already.
_RENORMING: Final = "max_norm"


class Computed(NamedTuple):
    """A loss that gradir computed once more: its new and its first value, and the explanation of its gradients."""

    value: float | None
    before: float | None
    found: Explanation


def compute_again(tape: Tape, name_of: Callable[[torch.Tensor], str]) -> Iterator[Computed]:
    """Compute each loss since the last step once more, if possible, and explain it."""
    for result, before in tape.losses:
        runner = _Runner(name_of)
        # An operation may raise anything, for instance if its data is gone.
        with suppress(Exception):
            operations = _list_operations(result)
            with _restore_state(operations), private.disable_modes(), torch.enable_grad():
                with Recorder(CaptureRequest(flow=True, values=True)) as recorder:
                    for operation in operations:
                        runner.run(operation)
                    loss = runner.find_tensor(result)
                found = recorder.explain(loss, params=runner.names, values=True)
            yield Computed(read_scalar(loss), read_scalar(before), found)


class _Runner:
    """Runs operations once more, on leaves that share storage with those of the program, but not their hooks."""

    def __init__(self, name_of: Callable[[torch.Tensor], str]) -> None:
        self.names: dict[str, torch.Tensor] = {}
        self._name_of = name_of
        self._leaves: dict[int, torch.Tensor] = {}
        self._results: dict[Operation, Sequence[torch.Tensor]] = {}

    def run(self, operation: Operation) -> None:
        func = operation.func
        args, kwargs = map_tensors((operation.args, operation.kwargs), self.find_tensor)
        if kwargs.get(_RENORMING) is not None:
            kwargs[_RENORMING] = None
        with ExitStack() as state:
            for device, dtype in operation.autocast:
                state.enter_context(torch.autocast(device, dtype))
            for name, numbers in operation.states.items():
                torch.set_rng_state(numbers) if name == "cpu" else torch.cuda.set_rng_state(numbers, name)
            if isinstance(func, nn.Module):
                own = {name: self.find_tensor(each) for name, each in [*func.named_parameters(), *func.named_buffers()]}
                func, args, kwargs = torch.func.functional_call, (func, own, args, kwargs), {}
            self._results[operation] = tensors_of(run_at(operation.place, func, args, kwargs))

    def find_tensor(self, value: Any) -> torch.Tensor:
        if isinstance(value, Result):
            return self._results[value.made_by][value.number]
        tensor, name = value if isinstance(value, Input) else (value, self._name_of(value))
        if id(tensor) not in self._leaves:
            leaf = tensor.detach()
            if not tensor.requires_grad:
                # A batch norm writes to its buffers.
                leaf = leaf.clone()
            elif isinstance(tensor, nn.Parameter):
                leaf = nn.Parameter(leaf)
            self._leaves[id(tensor)] = leaf.requires_grad_(tensor.requires_grad)
            if name and tensor.requires_grad:
                self.names[name] = leaf
        return self._leaves[id(tensor)]


def _list_operations(result: Result) -> list[Operation]:
    """Return the operations of a result, in order; raise `CaptureError` if one was forgotten."""

    def inputs(each: Operation) -> list[Operation]:
        if each.kwargs is None:
            raise CaptureError("an earlier step has forgotten the operations of this loss")
        return [other.made_by for other in results_in((each.args, each.kwargs))]

    return sorted(find_reachable([result.made_by], inputs), key=lambda operation: operation.number)


@contextmanager
def _restore_state(operations: Sequence[Operation]) -> Iterator[None]:
    """Restore the attributes of modules and the random states afterwards, and suppress their output."""
    modules = [operation.func for operation in operations if isinstance(operation.func, nn.Module)]
    contents = [*_list_contents(modules)]
    devices = {name for operation in operations for name in operation.states} - {"cpu"}
    numpy: Any = sys.modules.get("numpy")
    state, numpy_state = random.getstate(), numpy and numpy.random.get_state()
    disabled = logging.root.manager.disable
    logging.disable()
    try:
        with (
            torch.random.fork_rng(devices),
            redirect_stdout(io.StringIO()),
            redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
            # From 2.6 on torch can run compiled modules eagerly.
            getattr(torch.compiler, "set_stance", nullcontext)("force_eager"),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
        random.setstate(state)
        if numpy:
            numpy.random.set_state(numpy_state)
        for value, content in contents:
            if isinstance(value, CellType):
                value.cell_contents = content
            else:
                refill(value, content)


def _list_contents(roots: Sequence[object]) -> Iterator[tuple[Any, Any]]:
    """Yield the containers, objects and captured variables inside some objects, with a copy of their content."""
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
