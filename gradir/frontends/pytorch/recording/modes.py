"""Note each operation of a thread, and each call of a compiled part as one operation.

A dispatch mode sees operations below autograd, and a function mode the call of the program. torch compiles again if
other function modes are entered than before, so those of a recorder are left while compiled code runs.
"""

from __future__ import annotations

import inspect
import pkgutil
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any, Final

import torch
from torch import nn

from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.private import SWITCH
from gradir.frontends.pytorch.reading import members
from gradir.frontends.pytorch.reading.tensors import storage_of
from gradir.frontends.pytorch.reading.walk import GradFn
from gradir.frontends.pytorch.recording.departures import LEAVING
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.places import locate_function
from gradir.frontends.pytorch.recording.removable_modes import DispatchMode, FunctionMode, Noting
from gradir.frontends.pytorch.recording.sources import SourceMode
from gradir.frontends.pytorch.recording.steps import DATA, FROM_OUTSIDE, INPLACE, VIEW, tensors_in
from gradir.frontends.walks import closed_over, reached
from gradir.spec import calling_on_import

_COMPILER: Final = private.DYNAMO.rpartition(".")[0]
_WAITING: Final = ExitStack()
_OWN: Final = f"{__name__.partition('.')[0]}."
# A dropped recorder leaves at any time, in the middle of a change by the same thread too.
_LOCK: Final = threading.RLock()
_RECORDING: Final[list[CompiledParts]] = []
# The functions of torch that are replaced while something is recorded.
_WATCHED: Final[dict[str, Any]] = {}


class CompiledPart:
    """Stands for the operation that a call of compiled code is."""

    __name__ = "compiled_function"

    def __init__(self, function: object) -> None:
        owner = getattr(function, "__self__", None)
        name = getattr(function, "__qualname__", "") if owner is None else type(owner).__name__
        # What torch itself made of a module has no name of the user's.
        self._shown = "torch.compile" if _module_of(function).startswith("torch.") else f"torch.compile({name})"

    def __str__(self) -> str:
        return self._shown


class CompiledParts:
    """While entered, has compiled code that this thread calls noted as a whole, without keeping who notes it alive."""

    def __init__(self, noting: Noting) -> None:
        self.noting = weakref.ref(noting)
        self.thread = threading.get_ident()

    def __enter__(self) -> CompiledParts:
        self.thread = threading.get_ident()
        with _LOCK:
            _RECORDING.append(self)
            if _COMPILER in sys.modules:
                _begin()
            elif len(_RECORDING) == 1:
                # To import the compiler takes longer than most programs, which never use it.
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
    """A running call of compiled code, made by a frame of torch's, and what notes it."""

    def __init__(self, frame: FrameType, noting: Sequence[Noting]) -> None:
        self.has_begun = False
        self._frame, self._noting = frame, noting
        self._flows = [each for each in noting if isinstance(each, Flow)]
        local = frame.f_locals
        self._function = local.get("fn")
        self._tensors = _unique(_find_taken_tensors(self._function, [*local["args"], *local["kwargs"].values()]))
        self._reads = [[flow.read(tensor) for tensor in self._tensors] for flow in self._flows]
        self._versions = list(map(_version, self._tensors))
        self._first = private.next_sequence_number()
        for each in noting:
            each.is_paused = True
        self._modes = private.function_modes()
        set_modes([mode for mode in self._modes if not type(mode).__module__.startswith(_OWN)])

    def end(self) -> None:
        set_modes(self._modes)
        local, caller = self._frame.f_locals, self._frame.f_back
        for each in self._noting:
            each.is_paused = False
            if isinstance(each, SourceMode):
                each.note_whole(self._first, local.get("result"), caller or self._frame)
        if not self._flows:
            return
        error = None if "result" in local else sys.exc_info()[1]
        given = tensors_in(local.get("result"))
        # The graph of what it gave tells what it took that no argument and no module held.
        further = _unique([*self._tensors, *_leaves_of(given, self._first)])[len(self._tensors) :]
        taken = set(map(id, self._tensors))
        outputs = [tensor for tensor in given if id(tensor) not in taken]
        lent = set(map(storage_of, outputs))
        written = [t for t, before in zip(self._tensors, self._versions, strict=True) if _version(t) != before]
        changed = set(map(id, written))
        kinds = [
            INPLACE if id(tensor) in changed else VIEW if storage_of(tensor) in lent else DATA
            for tensor in self._tensors
        ]
        kinds.extend([DATA] * len(further))
        part = CompiledPart(self._function)
        for flow, reads in zip(self._flows, self._reads, strict=True):
            if error is not None:
                flow.note_failure(part.__name__, self._tensors, {}, self._frame, error)
                continue
            reads.extend(map(flow.read, further))
            flow.note_whole(part, reads, kinds, outputs or written, written=written, frame=self._frame)
            if caller is not None:
                flow.note_variable(local["result"], caller)


_CALLS: Final[dict[FrameType, _Call]] = {}


def _begin() -> None:
    """Do what the compiler needs, now that it is loaded: keep what notes operations apart from it, and watch it."""
    for method in DispatchMode.methods:
        if vars(method).get(private.KEPT_APART) is method:
            # torch itself does so at the next call.
            delattr(method, private.KEPT_APART)
    if not _WATCHED:
        _watch()


def _watch() -> None:
    """Have torch tell when compiled code is about to run, and when it has."""
    dynamo = vars(pkgutil.resolve_name(private.DYNAMO))
    begins, ends = dynamo.get(private.COMPILED_BEGINS), dynamo.get(private.COMPILED_ENDS)
    if begins is None or ends is None:
        return
    codes = (code for code in dynamo[private.COMPILED_CALLS].__call__.__code__.co_consts if isinstance(code, CodeType))
    # Before torch 2.12 what was given is in no variable of the call, and no call is noted as a whole.
    calls = [code for code in codes if "result" in code.co_varnames]

    def note_begin(callback: Any) -> Any:
        callback = begins(callback)
        # Without a callback torch runs what was compiled as it stands in the program, and each operation's dispatch.
        if callback is None:
            return None
        frame = sys._getframe(1)
        home = _module_of(frame.f_locals.get("fn"))
        # An operation of torch's that takes functions has them compiled, too.
        if frame.f_code in calls and (home.startswith(private.WRAPPERS) or not home.startswith("torch.")):
            thread = threading.get_ident()
            known = [parts.noting() for parts in _RECORDING if parts.thread == thread]
            noting = [each for each in known if each is not None and not each.is_paused]
            if noting:
                _CALLS[frame] = _Call(frame, noting)
        return callback

    def note_end(callback: Any) -> Any:
        # Called by a frame with what `note_begin` gave, and then with what was there before.
        call = _CALLS.get(sys._getframe(1)) if _CALLS else None
        if call is not None and call.has_begun:
            del _CALLS[sys._getframe(1)]
            call.end()
        elif call is not None:
            call.has_begun = True
        return ends(callback)

    if calls:
        _WATCHED.update({private.COMPILED_BEGINS: begins, private.COMPILED_ENDS: ends})
        dynamo.update({private.COMPILED_BEGINS: note_begin, private.COMPILED_ENDS: note_end})


def _module_of(function: object) -> str:
    """Return the name of the module that has the code of a function; nothing of what is none, such as a method."""
    return str(function.__globals__.get("__name__", "")) if inspect.isfunction(function) else ""


def set_modes(modes: Iterable[Any]) -> None:
    """Have these be the function modes of this thread, the innermost last."""
    for _ in private.function_modes():
        private.pop_function_mode()
    for mode in modes:
        private.push_function_mode(mode)


def _find_taken_tensors(function: Any, arguments: Iterable[object]) -> Iterator[torch.Tensor]:
    """Yield the tensors that a call gives a function, and those that the function has as variables, in modules too."""
    found = [*arguments, getattr(function, "__self__", None)]
    if inspect.isfunction(function):
        found.extend(map(function.__globals__.get, function.__code__.co_names))
        found.extend(value for _, value in closed_over(function))
    for entry in found:
        if isinstance(entry, nn.Module):
            yield from members.tensors_in(entry)
        else:
            yield from tensors_in(entry)


def _leaves_of(tensors: Iterable[torch.Tensor], first: int) -> Iterator[torch.Tensor]:
    """Yield the leaves of the nodes with a number from ``first`` on that tensors were made by."""

    def newer(fn: GradFn) -> list[GradFn]:
        is_new = type(fn).__name__ != private.ACCUMULATOR and private.sequence_number(fn) >= first
        return [following for following, _ in fn.next_functions if following is not None] if is_new else []

    starts: Iterator[GradFn] = (tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None)
    return (fn.variable for fn in reached(starts, newer) if type(fn).__name__ == private.ACCUMULATOR)


def _unique(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    return [*{id(tensor): tensor for tensor in tensors}.values()]


def _version(tensor: torch.Tensor) -> int:
    # One of inference mode has no version.
    return 0 if tensor.is_inference() else private.version_of(tensor)


# What is made of the numbers that these read has no past.
_EXITS: Final = {
    *("__array__", "__bool__", "__complex__", "__float__", "__index__", "__int__"),
    *("as_tensor", "asarray", "item", "numpy", "tensor", "tolist"),
}


class CallsMode(FunctionMode):
    """Tells a flow which function of torch the program called, without keeping the flow alive."""

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
            _note_departure(flow, called, args, frame)
            if called in _EXITS:
                flow.note_exit(called, args, kwargs, frame)
            elif called == "new_tensor":
                flow.note_exit(called, args[1:], kwargs, frame)
            elif called == "data" and len(args) > 1 and isinstance(args[1], torch.Tensor):
                flow.exchanges.append(flow.exit_of("data", args[:2], frame))
            elif called == "grad" and len(args) > 1 and args[1] is None:
                flow.clearings.append(flow.exit_of("grad", args[:1], frame))
            elif called == SWITCH:
                flow.switches.note(frame, is_on=bool(args[0]))
            elif called == "register_hook":
                # By its place in the code, as the flow must not keep the hook alive.
                hook = args[1] if len(args) > 1 else (kwargs or {}).get("hook")
                flow.hooks.append((flow.value_of(args[0]), locate_function(hook)))
            result = func(*args, **(kwargs or {}))
        except Exception as error:
            flow.note_failure(called, args, kwargs, frame, error)
            raise
        finally:
            flow.called = before
        flow.note_given(result)
        if isinstance(result, torch.Tensor):
            flow.note_variable(result, frame)
        return result


def _note_departure(flow: Flow, called: str, args: Sequence[Any], frame: FrameType) -> None:
    made = flow.noted(args[0]) if called in LEAVING and args else None
    if made is not None and made.maker != FROM_OUTSIDE:
        flow.departures.note(args[0], flow.exit_of(LEAVING[called], args[:1], frame))


@lru_cache(maxsize=4096)
def _name_of(func: Any) -> str:
    """Return the program's name of a function of torch: for a property of a tensor, the property's name."""
    name = getattr(func, "__name__", "")
    return getattr(getattr(func, "__self__", None), "__name__", name) if name in {"__get__", "__set__"} else name
