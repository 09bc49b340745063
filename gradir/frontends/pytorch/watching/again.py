"""Compute a loss of a training once more to explain it, and leave the program as it is."""

from __future__ import annotations

import io
import logging
import random
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
    redirect_stderr,
    redirect_stdout,
    suppress,
)
from types import CellType, FunctionType, MethodType
from typing import Any, Final, NamedTuple

import torch
from torch import nn

from gradir.errors import CaptureError
from gradir.explanations.model import Explanation
from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.reading.outputs import tensors_of
from gradir.frontends.pytorch.reading.tensors import number_of
from gradir.frontends.pytorch.recorder import Recorder
from gradir.frontends.pytorch.recording.places import run_at
from gradir.frontends.pytorch.watching.tape import Given, Operation, Result, Tape, map_tensors, results_in
from gradir.frontends.walks import reached
from gradir.request import CaptureRequest

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
            found = _computed(result, before, name_of)
        if found is not None:
            yield found


def _computed(result: Result, before: torch.Tensor, name_of: Callable[[torch.Tensor], str]) -> Computed | None:
    again = _Again(name_of)
    try:
        with _left_as_it_is(_behind(result)), private.modes_set_aside(), torch.enable_grad():
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
        """Compute a result, and all behind it in the order of the first time."""
        for operation in _behind(wanted):
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


def _behind(result: Result) -> list[Operation]:
    """Return the operations behind a result, in order; raise `CaptureError` if one was forgotten."""

    def inputs(each: Operation) -> list[Operation]:
        if each.kwargs is None:
            raise CaptureError("what is behind this loss was forgotten with an earlier step")
        return [other.made_by for other in results_in((each.args, each.kwargs))]

    return sorted(reached([result.made_by], inputs), key=lambda operation: operation.number)


@contextmanager
def _left_as_it_is(operations: Sequence[Operation]) -> Iterator[None]:
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
            _uncompiled(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
        random.setstate(state)
        if numpy:
            numpy.random.set_state(others)
        for value, content in kept:
            _put_back(value, content)


def _uncompiled() -> AbstractContextManager[Any]:
    """Run compiled modules as they are written; torch can do so from 2.6 on."""
    stance: Callable[..., AbstractContextManager[Any]] | None = getattr(torch.compiler, "set_stance", None)
    return nullcontext() if stance is None else stance("force_eager")


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


def _put_back(value: Any, content: Any) -> None:
    if isinstance(value, list):
        value[:] = content
    elif isinstance(value, CellType):
        value.cell_contents = content
    else:
        value.clear()
        value.extend(content) if isinstance(value, deque) else value.update(content)
