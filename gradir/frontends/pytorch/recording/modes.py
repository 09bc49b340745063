"""Record each operation of a thread, and each call of compiled code as one operation.

A dispatch mode sees operations below autograd. A function mode sees the calls of the program, but torch compiles again
if the entered function modes change, so a recorder leaves its own while compiled code runs.
"""

from __future__ import annotations

import inspect
import pkgutil
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import lru_cache
from types import CodeType, FrameType, ModuleType
from typing import Any, Final

import torch
from torch import nn

from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.private import SWITCH
from gradir.frontends.pytorch.reading.members import iter_module_tensors, modules_at
from gradir.frontends.pytorch.reading.tensors import storage_of
from gradir.frontends.pytorch.reading.walk import GradFn
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.places import locate_function
from gradir.frontends.pytorch.recording.removable_modes import DispatchMode, FunctionMode, Pausable
from gradir.frontends.pytorch.recording.sources import SourceMode
from gradir.frontends.pytorch.recording.steps import DATA, FROM_OUTSIDE, INPLACE, LEAVING, VIEW, tensors_in
from gradir.frontends.walks import closure_variables, find_reachable
from gradir.spec import calling_on_import

_COMPILER: Final = private.DYNAMO.rpartition(".")[0]
_WAITING: Final = ExitStack()
_OWN: Final = f"{__name__.partition('.')[0]}."
# A dropped recorder leaves at any time, even during a change by the same thread.
_LOCK: Final = threading.RLock()
_RECORDING: Final[list[CompiledParts]] = []
# The functions of torch that are replaced during a recording.
_WATCHED: Final[dict[str, Any]] = {}


class CompiledPart:
    """Stands for a call of compiled code in the graph, in place of an operation."""

    __name__ = "compiled_function"

    def __init__(self, function: object) -> None:
        owner = getattr(function, "__self__", None)
        name = getattr(function, "__qualname__", "") if owner is None else type(owner).__name__
        # A function that torch made of a module has no name from the user.
        self._shown = "torch.compile" if _module_of(function).startswith("torch.") else f"torch.compile({name})"

    def __str__(self) -> str:
        return self._shown


class CompiledParts:
    """While entered, reports each call of compiled code in this thread to a recorder, which it does not keep alive."""

    def __init__(self, recorder: Pausable) -> None:
        self.recorder = weakref.ref(recorder)

    def __enter__(self) -> CompiledParts:
        self.thread = threading.get_ident()
        with _LOCK:
            _RECORDING.append(self)
            if _COMPILER in sys.modules:
                _begin()
            elif len(_RECORDING) == 1:
                # Importing the compiler takes longer than most programs run, and few use it.
                for method in DispatchMode.methods:
                    setattr(method, private.KEPT_APART, method)
                _WAITING.enter_context(calling_on_import({_COMPILER: _begin}))
        return self

    def __exit__(self, *_: object) -> None:
        with _LOCK:
            _RECORDING.remove(self)
            if not _RECORDING:
                _WAITING.close()
                if _WATCHED:
                    vars(pkgutil.resolve_name(private.DYNAMO)).update(_WATCHED)
                    _WATCHED.clear()


class _Call:
    """A running call of compiled code by a frame of torch, and its recorders."""

    def __init__(self, frame: FrameType, recorders: Sequence[Pausable]) -> None:
        self.has_begun = False
        self._frame, self._recorders = frame, recorders
        self._flows = [each for each in recorders if isinstance(each, Flow)]
        local = frame.f_locals
        self._function = local.get("fn")
        self._taken = [*_find_taken(self._function, [*local["args"], *local["kwargs"].values()])]
        self._tensors = _unique(tensor for each in self._taken for tensor in _tensors_of(each))
        self._reads = [[flow.read(tensor) for tensor in self._tensors] for flow in self._flows]
        self._versions = list(map(_version, self._tensors))
        self._first = private.next_sequence_number()
        for each in recorders:
            each.is_paused = True
        self._modes = private.function_modes()
        set_modes([mode for mode in self._modes if not type(mode).__module__.startswith(_OWN)])

    def end(self) -> None:
        set_modes(self._modes)
        local, caller = self._frame.f_locals, self._frame.f_back
        for each in self._recorders:
            each.is_paused = False
            if isinstance(each, SourceMode):
                each.record_whole(self._first, local.get("result"), caller or self._frame)
            elif (record := getattr(each, "record_outermost", None)) is not None:
                self._record_modules(record)
        if not self._flows:
            return
        error = None if "result" in local else sys.exc_info()[1]
        results = tensors_in(local.get("result"))
        # The graph of the results shows further inputs, which no argument and no module contains.
        further = _unique([*self._tensors, *_leaves_of(results, self._first)])[len(self._tensors) :]
        known = set(map(id, self._tensors))
        outputs = [tensor for tensor in results if id(tensor) not in known]
        lent = set(map(storage_of, outputs))
        written = [t for t, before in zip(self._tensors, self._versions, strict=True) if _version(t) != before]
        changed = set(map(id, written))
        kinds = [INPLACE if id(t) in changed else VIEW if storage_of(t) in lent else DATA for t in self._tensors]
        kinds.extend([DATA] * len(further))
        part = CompiledPart(self._function)
        for flow, reads in zip(self._flows, self._reads, strict=True):
            if error is not None:
                flow.record_failure(part.__name__, self._tensors, {}, self._frame, error)
                continue
            reads.extend(map(flow.read, further))
            flow.record_whole(part, reads, kinds, outputs or written, written=written, frame=self._frame)
            if caller is not None:
                flow.record_variable(local["result"], caller)

    def _record_modules(self, record: Callable[[nn.Module, FrameType], None]) -> None:
        """Record the compiled module, or the modules that a compiled function needs."""
        owner = getattr(self._function, "__self__", None)
        if isinstance(owner, nn.Module):
            record(owner, self._frame)
            return
        leaves = set(map(id, _leaves_of(tensors_in(self._frame.f_locals.get("result")), self._first)))
        for taken in self._taken:
            if isinstance(taken, nn.Module) and not leaves.isdisjoint(map(id, _tensors_of(taken))):
                record(taken, self._frame)


_CALLS: Final[dict[FrameType, _Call]] = {}


def _begin() -> None:
    """Prepare the loaded compiler: let torch exclude the methods of modes from compilation, and watch its calls."""
    for method in DispatchMode.methods:
        if vars(method).get(private.KEPT_APART) is method:
            # torch sets its own attribute at the next call.
            delattr(method, private.KEPT_APART)
    if not _WATCHED:
        _watch()


def _watch() -> None:
    """Replace the functions that torch calls before and after compiled code."""
    dynamo = vars(pkgutil.resolve_name(private.DYNAMO))
    begins, ends = dynamo.get(private.COMPILED_BEGINS), dynamo.get(private.COMPILED_ENDS)
    if begins is None or ends is None:
        return
    codes = (code for code in dynamo[private.COMPILED_CALLS].__call__.__code__.co_consts if isinstance(code, CodeType))
    # Before torch 2.12 no variable of the call has the result, and its operations are recorded one by one.
    calls = [code for code in codes if "result" in code.co_varnames]

    def begin_call(callback: Any) -> Any:
        callback = begins(callback)
        # Without a callback torch runs the uncompiled program, whose operations reach the modes.
        if callback is None:
            return None
        frame = sys._getframe(1)
        home = _module_of(frame.f_locals.get("fn"))
        # Operators such as cond compile their function arguments, too.
        if frame.f_code in calls and (home.startswith(private.WRAPPERS) or not home.startswith("torch.")):
            thread = threading.get_ident()
            known = [parts.recorder() for parts in _RECORDING if parts.thread == thread]
            recorders = [each for each in known if each is not None and not each.is_paused]
            if recorders:
                _CALLS[frame] = _Call(frame, recorders)
        return callback

    def end_call(callback: Any) -> Any:
        # A frame calls this twice: with the result of `begin_call`, and later with the callback from before.
        call = _CALLS.get(sys._getframe(1)) if _CALLS else None
        if call is not None and call.has_begun:
            del _CALLS[sys._getframe(1)]
            call.end()
        elif call is not None:
            call.has_begun = True
        return ends(callback)

    if calls:
        _WATCHED.update({private.COMPILED_BEGINS: begins, private.COMPILED_ENDS: ends})
        dynamo.update({private.COMPILED_BEGINS: begin_call, private.COMPILED_ENDS: end_call})


def _module_of(function: object) -> str:
    """Return the name of the module that defines a function, or an empty string for other callables."""
    return str(function.__globals__.get("__name__", "")) if inspect.isfunction(function) else ""


def set_modes(modes: Iterable[Any]) -> None:
    """Set the function modes of this thread, the innermost last."""
    for _ in private.function_modes():
        private.pop_function_mode()
    for mode in modes:
        private.push_function_mode(mode)


def _find_taken(function: Any, arguments: Iterable[object]) -> Iterator[object]:
    """Yield the arguments, globals and closure of a function, and their contents."""
    found = [*arguments, getattr(function, "__self__", None)]
    if inspect.isfunction(function):
        found.extend(map(function.__globals__.get, function.__code__.co_names))
        found.extend(value for _, value in closure_variables(function))
    for entry in found:
        yield entry
        if isinstance(entry, (dict, list, tuple)):
            yield from entry.values() if isinstance(entry, dict) else entry
        elif not isinstance(entry, (nn.Module, torch.Tensor, ModuleType, type)):
            yield from private.fields_of(entry).values()


def _tensors_of(entry: object) -> Iterable[torch.Tensor]:
    if not isinstance(entry, nn.Module):
        return tensors_in(entry)
    return (tensor for _, tensor, _ in iter_module_tensors(modules_at(entry)))


def _leaves_of(tensors: Iterable[torch.Tensor], first: int) -> Iterator[torch.Tensor]:
    """Yield the leaves that tensors reach through nodes with numbers from ``first`` on."""

    def newer(fn: GradFn) -> list[GradFn]:
        is_new = type(fn).__name__ != private.ACCUMULATOR and private.sequence_number(fn) >= first
        return [following for following, _ in fn.next_functions if following is not None] if is_new else []

    starts: Iterator[GradFn] = (tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None)
    return (fn.variable for fn in find_reachable(starts, newer) if type(fn).__name__ == private.ACCUMULATOR)


def _unique(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    return [*{id(tensor): tensor for tensor in tensors}.values()]


def _version(tensor: torch.Tensor) -> int:
    # An inference tensor has no version.
    return 0 if tensor.is_inference() else private.version_of(tensor)


_FREEZING: Final = frozenset({"requires_grad", "requires_grad_"})
# Functions that read values: a tensor made of these values has no graph.
_EXITS: Final = {
    *("__array__", "__bool__", "__complex__", "__float__", "__index__", "__int__"),
    *("as_tensor", "asarray", "item", "numpy", "tensor", "tolist"),
}


class CallsMode(FunctionMode):
    """Reports each call of a torch function by the program to a flow, which it does not keep alive."""

    def __init__(self, flow: Flow) -> None:
        super().__init__()
        self._flow = weakref.ref(flow)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.compiler.is_compiling() or (flow := self._flow()) is None:
            return func(*args, **(kwargs or {}))
        before, called = flow.called, _name_of(func)
        flow.called = called
        frame = sys._getframe(1)
        try:
            _record_departure(flow, called, args, frame)
            _record_freezing(flow, called, args, kwargs, frame)
            if called in _EXITS:
                flow.record_exit(called, args, kwargs, frame)
            elif called == "new_tensor":
                flow.record_exit(called, args[1:], kwargs, frame)
            elif called == "data" and len(args) > 1 and isinstance(args[1], torch.Tensor):
                flow.exchanges.append(flow.exit_of("data", args[:2], frame))
            elif called == "grad" and len(args) > 1 and args[1] is None:
                flow.clearings.append(flow.exit_of("grad", args[:1], frame))
            elif called == SWITCH:
                flow.switches.record(frame, is_on=bool(args[0]))
            elif called == "register_hook":
                # The place of its code, as the flow must not keep the hook alive.
                hook = args[1] if len(args) > 1 else (kwargs or {}).get("hook")
                flow.hooks.append((flow.value_of(args[0]), locate_function(hook)))
            result = func(*args, **(kwargs or {}))
        except Exception as error:
            flow.record_failure(called, args, kwargs, frame, error)
            raise
        finally:
            flow.called = before
        flow.record_given(result)
        if isinstance(result, torch.Tensor):
            flow.record_variable(result, frame)
        return result


def _record_departure(flow: Flow, called: str, args: Sequence[Any], frame: FrameType) -> None:
    made = flow.find_value(args[0]) if called in LEAVING and args else None
    if made is not None and made.maker != FROM_OUTSIDE:
        flow.departures.add(args[0], flow.exit_of(LEAVING[called], args[:1], frame))


def _record_freezing(flow: Flow, called: str, args: Sequence[Any], kwargs: Any, frame: FrameType) -> None:
    if called in _FREEZING and not (*args[1:], *(kwargs or {}).values(), True)[0]:
        flow.freezings[id(args[0])] = weakref.ref(args[0]), flow.exit_of(called, (), frame).place


@lru_cache(maxsize=4096)
def _name_of(func: Any) -> str:
    """Return the name of a function of torch, or of the property for a tensor's getter or setter."""
    name = getattr(func, "__name__", "")
    return getattr(getattr(func, "__self__", None), "__name__", name) if name in {"__get__", "__set__"} else name
