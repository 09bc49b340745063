"""Leave modes in any order, when they are dropped, and from another thread.

torch always removes the last mode of the running thread, and takes a mode off the stack while it handles a call. This
module removes its modes from any position on the stack, or after the next call of their own thread.
"""

from __future__ import annotations

import gc
import sys
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from threading import get_ident
from types import FrameType
from typing import Any, ClassVar, Final, NamedTuple, Protocol

import torch
from torch.nn.modules import module as module_hooks
from torch.overrides import TorchFunctionMode

from gradir.errors import GradirWarning
from gradir.frontends.pytorch import private
from gradir.frontends.walks import replace_function
from gradir.spec import calling_on_import


class Pausable(Protocol):
    """An object that pauses while compiled code runs."""

    is_paused: bool


class OperationRecorder(Pausable, Protocol):
    """Runs and records operations, unless it is paused."""

    def run(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Run an operation."""


class _Dropped(GeneratorExit):
    """Tells a mode on leaving that its recorder is dead, perhaps during a call that the mode handles."""


class _Stack(NamedTuple):
    modes: Callable[[], list[Any]]
    pop: Callable[[], Any]
    push: Callable[[Any], None]

    def remove(self, mode: _Mode) -> None:
        above = []
        while self.modes()[-1] is not mode:
            above.append(self.pop())
        if above:
            self.pop()
            # The next mode restores the state of torch from before this mode.
            for name, before in vars(mode).items():
                if isinstance(before, deque):
                    vars(above[-1])[name][-1] = before[-1]
        else:
            mode.leave()
        for other in reversed(above):
            self.push(other)


class _Mode:
    stack: ClassVar[_Stack]
    left: ClassVar[type]
    thread = 0

    def __enter__(self) -> Any:
        self.thread = get_ident()
        return super().__enter__()  # type: ignore[misc]

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        modes = self.stack.modes() if self.thread == get_ident() else []
        if any(mode is self for mode in modes):
            self.stack.remove(self)
        elif modes and kind is not _Dropped:
            # A mode that was left too early removed this one, so remove that mode instead.
            self.stack.pop()
        else:
            self.__class__ = self.left

    def leave(self) -> None:
        super().__exit__(None, None, None)  # type: ignore[misc]


class FunctionMode(_Mode, TorchFunctionMode):
    """A function mode that can be left in any order."""

    stack = _Stack(private.function_modes, private.pop_function_mode, private.push_function_mode)


class DispatchMode(_Mode, private.TorchDispatchMode):  # type: ignore[misc]
    """A dispatch mode that can be left in any order."""

    # The methods with which its subclasses handle operations.
    methods: ClassVar[list[Any]] = []

    def __init_subclass__(cls, **options: Any) -> None:
        cls.methods.append(cls.__dict__["__torch_dispatch__"])
        super().__init_subclass__(**options)

    stack = _Stack(private.dispatch_modes, private.pop_dispatch_mode, private.push_dispatch_mode)

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Return whether torch compiles while the mode is entered; otherwise it runs uncompiled code or raises."""
        return True


class RecordingMode(DispatchMode):
    """Lets a recorder run each operation of its thread, without keeping it alive."""

    supports_higher_order_operators = True

    def __init__(self, recorder: OperationRecorder) -> None:
        super().__init__()
        self._recorder = weakref.ref(recorder)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        recorder = self._recorder()
        if recorder is None or recorder.is_paused:
            return func(*args, **(kwargs or {}))
        return recorder.run(func, args, kwargs or {})


class _LeftFunctions(FunctionMode):
    """A function mode that its thread must still remove."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _call_and_remove(func, args, kwargs)


class _LeftOperations(DispatchMode):
    """A dispatch mode that its thread must still remove."""

    supports_higher_order_operators = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _call_and_remove(func, args, kwargs)


FunctionMode.left, DispatchMode.left = _LEFT = _LeftFunctions, _LeftOperations
_STACKS: Final = (FunctionMode.stack, DispatchMode.stack)


def remove_left() -> bool:
    """Remove this thread's modes that could not be removed when they were left; return whether there were any."""
    left = [(stack, mode) for stack in _STACKS for mode in stack.modes() if isinstance(mode, _LEFT)]
    for stack, mode in left:
        stack.remove(mode)
    return bool(left)


def _call_and_remove(func: Any, args: Any, kwargs: Any) -> Any:
    try:
        return func(*args, **(kwargs or {}))
    finally:
        if sys.getprofile() is None:
            # torch puts the mode back after this, without a hook. Python reports the next call or return.
            sys.setprofile(_remove_soon)


def _remove_soon(frame: FrameType, event: str, argument: object) -> None:  # noqa: ARG001 (Python's signature)
    if remove_left():
        sys.setprofile(None)


# Recorders that may still be dropped while they record.
_ENTERED: Final[weakref.WeakSet[Any]] = weakref.WeakSet()


def leave_when_dropped(recorder: object, entered: ExitStack, caller: FrameType) -> weakref.finalize[..., Any]:
    """Leave everything that a recorder entered for ``caller`` when it dies, unless the result is detached first."""
    found = weakref.finalize(recorder, _leave_dropped, entered, caller.f_code.co_filename, caller.f_lineno)
    found.atexit = False
    _ENTERED.add(recorder)
    return found


def _leave_dropped(entered: ExitStack, file: str, line: int) -> None:
    text = "the recorder entered here was dropped while it recorded, and has left: write `with gradir.record(...):`"
    entered.__exit__(_Dropped, _Dropped(), None)
    warnings.warn_explicit(text, GradirWarning, file, line)


def release_dropped() -> None:
    """Let every recorder leave that the program dropped, and remove this thread's left modes."""
    if _ENTERED:
        # A recorder in its own model is in a cycle of references.
        gc.collect()
    remove_left()


def add_hooks(hooks: ExitStack, enter: Any, leave: Any) -> None:
    """Call two methods around each call of a module until a stack is closed."""
    before, after = _weak_hook(enter), _weak_hook(leave)
    handles: list[Any] = []
    entered = hooks.enter_context(ExitStack())

    def remove() -> None:
        while handles:
            handles.pop().remove()

    def add() -> None:
        handles.append(module_hooks.register_module_forward_pre_hook(before))
        handles.append(module_hooks.register_module_forward_hook(after, always_call=True))

    def replace_export() -> None:
        module = sys.modules[private.EXPORTS]
        original = getattr(module, private.EXPORTS_STRICTLY)

        def export(*args: Any, **options: Any) -> Any:
            # Dynamo refuses to begin a strict export while there are hooks for all modules.
            is_active = bool(handles)
            remove()
            try:
                return original(*args, **options)
            finally:
                if is_active:
                    add()

        replace_function(entered, module, private.EXPORTS_STRICTLY, export)

    add()
    entered.callback(remove)
    if private.EXPORTS in sys.modules:
        replace_export()
    else:
        entered.enter_context(calling_on_import({private.EXPORTS: replace_export}))


def _weak_hook(method: Any) -> Callable[..., Any]:
    """Return a module hook that calls a method, except in compiled code, and does not keep its object alive."""
    # `WeakMethod` is slower, and this runs twice for each call of a module.
    owner, function = weakref.ref(method.__self__), method.__func__

    def hook(*given: object) -> Any:
        found = None if torch.compiler.is_compiling() else owner()
        return None if found is None else function(found, *given)

    return hook
