"""Find the instructions of a program that frames and functions run, and the blocks in which gradients are off."""

from __future__ import annotations

import dis
import functools
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from itertools import takewhile
from types import CodeType, FrameType, TracebackType
from typing import Any, Final, NamedTuple, cast

import torch

from gradir.frontends.pytorch.recording.results import CodeMemo
from gradir.frontends.pytorch.recording.sources import is_command_code, is_internal, is_own_file
from gradir.frontends.texts import is_installed
from gradir.frontends.walks import frames_from

# The owners of code: torch or gradir, an installed library, the user, and gradir's commands.
_INTERNAL, _LIBRARY, _USER, _COMMAND = 1, 2, 3, 4


class Place(NamedTuple):
    """An instruction of a program; ``caller`` is the user's instruction that led to it if it is a library's."""

    code: CodeType
    instruction: int
    caller: Place | None = None


class Places:
    """Finds the places of frames, and remembers the owners of code."""

    def __init__(self) -> None:
        self._kinds = CodeMemo(_kind_of)

    def __call__(self, frame: FrameType | None) -> Place | None:
        """Return the innermost instruction around a frame that is neither torch's nor gradir's."""
        # A fast lookup, since this runs for each operation, and most frames of a deep stack are known.
        kinds, kind = self._kinds, self._kinds.of
        while frame is not None and (kinds.get(id(frame.f_code)) or kind(frame.f_code)) == _INTERNAL:
            frame = frame.f_back
        if frame is None or kind(frame.f_code) == _COMMAND:
            return None
        if frame.f_code is run_at.__code__:
            place: Place | None = frame.f_locals["place"]
            return place
        code, instruction = frame.f_code, frame.f_lasti
        outer: FrameType | None = frame
        # Up to the user's instruction, or to a command.
        while outer is not None and (kinds.get(id(outer.f_code)) or kind(outer.f_code)) < _USER:
            outer = outer.f_back
        is_own = outer is None or outer is frame or kind(outer.f_code) == _COMMAND
        caller = None if outer is None or is_own else Place(outer.f_code, outer.f_lasti)
        return Place(code, instruction, caller)

    def locate_error(self, trace: TracebackType | None) -> Place | None:
        """Return the innermost instruction of a traceback that is neither torch's nor gradir's."""
        found: Place | None = None
        caller: Place | None = None
        while trace is not None:
            kind = self._kinds.of(trace.tb_frame.f_code)
            place = Place(trace.tb_frame.f_code, trace.tb_lasti)
            if kind == _USER:
                found = caller = place
            elif kind == _LIBRARY:
                found = place._replace(caller=caller)
            trace = trace.tb_next
        return found

    def is_inside(self, frame: FrameType) -> bool:
        """Return whether a frame is torch's or gradir's."""
        return self._kinds.of(frame.f_code) == _INTERNAL


def _kind_of(code: CodeType) -> int:
    if code is run_at.__code__:
        return _USER
    if is_internal(code):
        return _INTERNAL
    if is_command_code(code):
        return _COMMAND
    return _LIBRARY if is_installed(code.co_filename) else _USER


def run_at(place: Place | None, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:  # noqa: ARG001
    """Call a function of torch; `Places` reports ``place`` as the place of its operations."""
    return function(*args, **kwargs)


class _WarningsAtCallers:
    """Shows warnings at the line that called torch, since torch would name the frame of a mode while it records."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._before: Any = warnings.showwarning

    def __call__(self, message: Warning | str, category: type[Warning], filename: str, lineno: int, *rest: Any) -> None:
        frame: FrameType | None = sys._getframe(1)
        if self._count and is_own_file(filename):
            while frame and (is_internal(frame.f_code) or frame.f_code.co_filename == warnings.__file__):
                frame = frame.f_back
            if frame is not None:
                filename, lineno = frame.f_code.co_filename, frame.f_lineno
        self._before(message, category, filename, lineno, *rest)

    def __enter__(self) -> None:
        with self._lock:
            self._count += 1
            current: Any = warnings.showwarning
            if current is not self:
                self._before, warnings.showwarning = current, cast("Any", self)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._count -= 1
            current: Any = warnings.showwarning
            if not self._count and current is self:
                warnings.showwarning = self._before


warnings_at_callers: Final = _WarningsAtCallers()


class Written(NamedTuple):
    """The name of a function, and its first line, if it has one."""

    name: str
    place: Place | None


def locate_function(hook: object) -> Written:
    """Return the name and the first line of a callable."""
    function = hook
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    name = str(getattr(function, "__name__", type(function).__name__))
    if not isinstance(code, CodeType):
        return Written(name, None)
    return Written(name, Place(code, next((start for start, _, line in code.co_lines() if line), 0)))


def locate_return(function: object) -> Place | None:
    """Return the place of a function's only return, or of its only return of ``None``, or else its first line."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType) or is_internal(code):
        return None
    instructions = list(dis.get_instructions(code))
    places = [index for index, found in enumerate(instructions) if found.opname.startswith("RETURN_")]
    # Python 3.12 and 3.13 return a constant in one instruction, others load it first.
    results = [(index, instructions[index - ("CONST" not in instructions[index].opname)]) for index in places]
    nothing = [index for index, instruction in results if instruction.argval is None]
    only = next((found[0] for found in (places, nothing) if len(found) == 1), None)
    return locate_function(function).place if only is None else Place(code, instructions[only].offset)


class _Block(NamedTuple):
    """The id() of the running frame that contains the block, or the line that switched gradients off."""

    frame: int
    place: Place | None = None


class Switches:
    """Tracks the block of a thread in which gradients are off."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._block: _Block | None = None
        self._around: list[_Block | None] = []

    def record(self, frame: FrameType | None, *, is_on: bool) -> None:
        """Record that a call from a frame of torch switches gradients on or off."""
        if _passes(frame, "__exit__"):
            # Leaving a block restores the block around it.
            before = self._around.pop() if self._around else None
            self._block = None if is_on else before
            return
        if _passes(frame, "__enter__"):
            self._around.append(self._block)
        if is_on:
            self._block = None
        elif torch.is_grad_enabled() or (self._block is not None and self._block.place is not None):
            # A nested block changes nothing.
            self._open(frame)

    def _open(self, frame: FrameType | None) -> None:
        decorator, is_opened = None, False
        while frame is not None and self._places.is_inside(frame):
            is_opened = is_opened or frame.f_code.co_name == "__enter__"
            # The frame that runs a decorated function, whose name depends on the release.
            decorator = frame if frame.f_code.co_filename.endswith("_contextlib.py") else decorator
            # torch opened the block for its own use, for instance in a distribution.
            if decorator is None and not _is_of_modes(frame):
                return
            frame = frame.f_back
        place = self._places(frame)
        if frame is None or place is None or place.caller is not None:
            self._block = None
        elif decorator is not None:
            self._block = _Block(id(decorator))
        elif is_opened or self._block is None:
            self._block = _Block(id(frame)) if is_opened else _Block(0, place)

    def locate_block(self, frame: FrameType | None) -> Place | None:
        """Return the running line of the function with the block, or the line that switched gradients off, if known."""
        if self._block is None or self._block.place is not None:
            return None if self._block is None else self._block.place
        inner: FrameType | None = None
        while frame is not None and id(frame) != self._block.frame:
            inner = frame if not self._places.is_inside(frame) else inner
            frame = frame.f_back
        return None if frame is None else self._places(inner if self._places.is_inside(frame) else frame)


def _is_of_modes(frame: FrameType) -> bool:
    return frame.f_code.co_filename.endswith(("grad_mode.py", "_contextlib.py"))


def _passes(frame: FrameType | None, name: str) -> bool:
    """Return whether a function of torch's gradient modes with this name called the frame."""
    return any(each.f_code.co_name == name for each in takewhile(_is_of_modes, frames_from(frame)))
