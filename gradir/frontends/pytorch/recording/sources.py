"""Find the line of the user's program that made each node, and the variable that got its result."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import islice, takewhile
from operator import itemgetter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

import torch
from torch.autograd.function import BackwardCFunction

from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.recording.removable_modes import FunctionMode
from gradir.frontends.pytorch.recording.results import LOST, MAYBE, SURE, UNKNOWN, CodeMemo, Fate, find_fates
from gradir.frontends.pytorch.recording.timelines import Coverage, Frame, Timeline, calls_from
from gradir.frontends.texts import ShownPaths, is_installed, plain_text
from gradir.frontends.walks import frames_from
from gradir.ir import Source
from gradir.ir.text import escape_unprintable


def _folders(file: str | None) -> tuple[str, ...]:
    parent = Path(file or "").parent
    return tuple(f"{folder}{os.sep}" for folder in dict.fromkeys((parent, parent.resolve())))


_OWN: Final = _folders(sys.modules["gradir"].__file__)
_INTERNAL: Final = (*_folders(torch.__file__), *_OWN)
_COMMANDS: Final = tuple(f"{folder}cli{os.sep}" for folder in _OWN)
_OVERRIDES: Final = frozenset({"__torch_function__", "__torch_dispatch__"})
# The kinds of code: of the user, of torch or gradir, of a module call, and of a class that overrides torch.
_USER, _INSIDE, _MODULE, _OVERRIDE = 1, 2, 3, 4


class _Call(NamedTuple):
    """One call into torch: the sequence numbers that it used, and the place in the user's program.

    ``variable`` gets the value of the instruction at this place. The call made that value if ``within`` is ``None``, or
    a module call that made nothing later. If it is ``MAYBE``, the instruction must have made no later call.
    """

    start: int
    end: int
    code: CodeType
    instruction: int
    variable: str | None
    within: Frame | int | None


class SourceLog:
    """The calls of one thread, in the order of its sequence numbers."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.calls: list[_Call] = []
        self.starts: list[int] = []
        self._kinds, self._fates = CodeMemo(_kind_of), CodeMemo(find_fates)
        self._overridden_nowhere: set[int] = set()

    def record(self, start: int, end: int, frame: FrameType, *, whole: bool = True) -> None:
        """Record a call that made the nodes from ``start`` to before ``end``; if ``whole``, the last has its result."""
        user, modules = self._user(frame)
        # No line of the user calls a module that a command runs.
        if user is None or is_command_code(user.f_code):
            return
        code, instruction = user.f_code, user.f_lasti
        variable = self._fate(code, instruction).variable if whole else None
        within: Frame | int | None = None
        if variable is not None:
            certainty = self._fate(code, instruction).direct
            if frame is not user:
                # The value must be returned by each function on the way.
                below = takewhile(lambda each: each is not user, frames_from(frame))
                between = (each for each in below if each.f_code is not private.OVERRIDES_CALL)
                certainty = min((self._fate(each.f_code, each.f_lasti).returned for each in between), default=SURE)
            if certainty == LOST:
                variable = None
            elif modules:
                # The running module call right below the user's frame.
                within = next(islice(calls_from(self.timeline.current), modules - 1, None), None)
            elif certainty == MAYBE:
                within = MAYBE
        self.starts.append(start)
        self.calls.append(_Call(start, end, code, instruction, variable, within))

    def index(self, number: int) -> int | None:
        """Return the index of the call that made this thread's node with this number."""
        index = bisect_right(self.starts, number) - 1
        return index if index >= 0 and number < self.calls[index].end else None

    def _user(self, frame: FrameType) -> tuple[FrameType | None, int]:
        """Return the user's frame, and the number of module calls that run below it."""
        kinds, nowhere = self._kinds, self._overridden_nowhere
        user: FrameType | None = None
        below, modules, searching, is_overridden = 0, 0, True, False
        running: list[int] = []
        call = self.timeline.current
        at: FrameType | None = frame
        while at is not None and (searching or user is None):
            code = at.f_code
            kind = kinds.get(id(code)) or kinds.of(code)
            if kind == _USER:
                if user is None:
                    user, below = at, modules
            elif kind == _MODULE:
                modules += 1
                # The timeline keeps each call alive, so that its id() stays unique.
                searching = searching and id(call) not in nowhere
                if searching:
                    running.append(id(call))
                    call = None if call is None else call.caller
            elif kind == _OVERRIDE:
                user, is_overridden = None, True
            at = at.f_back
        if running and not is_overridden:
            nowhere.update(running)
        return user, below

    def _fate(self, code: CodeType, instruction: int) -> Fate:
        return self._fates.of(code).get(instruction, UNKNOWN)


def _kind_of(code: CodeType) -> int:
    if code is private.MODULE_CALL:
        return _MODULE
    if code.co_name in _OVERRIDES and code is not _OWN_OVERRIDE:
        return _OVERRIDE
    return _INSIDE if is_internal(code) else _USER


class SourceLookup:
    """Looks up the source line and the variable of a node by its autograd sequence number."""

    def __init__(self, logs: Mapping[Timeline, SourceLog], timelines: Sequence[Timeline]) -> None:
        """``logs`` are those of the recorded threads; ``timelines`` are those of all threads that ran modules."""
        others = {timeline: Coverage(other for other in timelines if other is not timeline) for timeline in logs}
        self._logs = [(log, others[timeline], _find_superseded(log)) for timeline, log in logs.items()]
        self._lines = ShownLines()

    def source(self, number: int) -> Source | None:
        """Return the line that made the node with this number."""
        call, _ = self._find_call(number)
        return None if call is None else self._lines(call.code, call.instruction)

    def variable(self, number: int) -> str | None:
        """Return the variable to which the program assigned the result of the node with this number."""
        call, is_superseded = self._find_call(number)
        if call is None or call.variable is None or number != call.end - 1 or is_superseded:
            return None
        return plain_text(call.variable)

    def _find_call(self, number: int) -> tuple[_Call | None, bool]:
        """Return the call that made a node, and whether a later call made the value of its instruction."""
        for log, others, superseded in self._logs:
            index = log.index(number)
            if index is not None and number not in others:
                return log.calls[index], index in superseded
        return None, False


class ShownLines:
    """Looks up the source line of an instruction."""

    def __init__(self) -> None:
        self._shown = ShownPaths()
        self._lines = CodeMemo(lambda code: list(code.co_lines()))
        self._sources: dict[tuple[int, int], Source] = {}

    def __call__(self, code: CodeType, instruction: int) -> Source:
        """Return the line of an instruction."""
        key = id(code), instruction
        if key not in self._sources:
            lines = self._lines.of(code)
            place = bisect_right(lines, instruction, key=itemgetter(0)) - 1
            line = lines[place][2] if place >= 0 else None
            # Python 3.10 has no qualified names of code.
            name = plain_text(getattr(code, "co_qualname", code.co_name))
            self._sources[key] = Source(self._shown(code.co_filename), max(line or 0, 0), escape_unprintable(name))
        return self._sources[key]


def _find_superseded(log: SourceLog) -> set[int]:
    """Return the indices of the calls whose instruction made its value in a later call."""
    numbers, frames = log.timeline.snapshot()
    # The number at which each module call ended.
    ends = {id(frame): number for frame, number in zip(frames, numbers[1:], strict=False)}
    found, later = set[int](), dict[int, int]()
    for index in range(len(log.calls) - 1, -1, -1):
        call = log.calls[index]
        if call.within is MAYBE:
            if later.get(id(call.code)) == call.instruction:
                found.add(index)
            later[id(call.code)] = call.instruction
        else:
            if call.within is not None and ends.get(id(call.within)) != call.end:
                found.add(index)
            later.pop(id(call.code), None)
    return found


class SourceMode(FunctionMode):
    """Records every call of this thread that makes nodes, in torch and in the user's custom Functions."""

    def __init__(self, log: SourceLog) -> None:
        super().__init__()
        self._log = weakref.ref(log)
        # True during a call that is recorded as a whole.
        self.is_paused = False

    def __enter__(self) -> SourceMode:
        with _LOCK:
            _RUNNING.append(self)
            BackwardCFunction.__init__ = _record_function  # type: ignore[method-assign, assignment]
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        with _LOCK:
            _RUNNING.remove(self)
            if not _RUNNING and "__init__" in vars(BackwardCFunction):
                del BackwardCFunction.__init__

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.compiler.is_compiling():
            return func(*args, **(kwargs or {}))
        start = private.next_sequence_number()
        self.is_paused = True
        try:
            result = func(*args, **(kwargs or {}))
        finally:
            self.is_paused = False
        end = private.next_sequence_number()
        if end != start and (log := self._log()) is not None:
            log.record(start, end, sys._getframe(1), whole=end == start + 1 or isinstance(result, torch.Tensor))
        return result

    def record_whole(self, start: int, result: object, frame: FrameType) -> None:
        """Record that a frame called compiled code, which made the nodes from ``start`` on and returned ``result``."""
        end, log = private.next_sequence_number(), self._log()
        if end != start and log is not None:
            made = result.grad_fn if isinstance(result, torch.Tensor) else None
            log.record(start, end, frame, whole=made is not None and private.sequence_number(made) == end - 1)


_OWN_OVERRIDE: Final = SourceMode.__torch_function__.__code__
# A dropped recorder leaves at any time, even during a change by the same thread.
_LOCK: Final = threading.RLock()
_RUNNING: Final[list[SourceMode]] = []


def _record_function(node: BackwardCFunction) -> None:  # noqa: ARG001 (an __init__)
    # Function modes do not see custom Functions, and programs keep `apply` in variables, so that replacing it does not
    # help. This runs when it makes the node.
    number = private.next_sequence_number() - private.NUMBERED_FIRST
    for mode in [] if torch.compiler.is_compiling() else _RUNNING:
        log = mode._log() if mode.thread == threading.get_ident() and not mode.is_paused else None
        if log is not None:
            log.record(number, number + 1, sys._getframe(1))


def is_command_code(code: CodeType) -> bool:
    """Return whether code belongs to gradir's commands, which run a program."""
    return code.co_filename.startswith(_COMMANDS)


def is_own_file(filename: str) -> bool:
    """Return whether a file belongs to gradir, but not to its commands."""
    return filename.startswith(_OWN) and not filename.startswith(_COMMANDS)


def is_user_code(code: CodeType) -> bool:
    """Return whether code is the user's: neither torch's, nor gradir's, nor a library's."""
    return not (is_internal(code) or is_command_code(code) or is_installed(code.co_filename))


def is_internal(code: CodeType) -> bool:
    """Return whether code belongs to torch, or to gradir without its commands."""
    return code.co_filename.startswith(_INTERNAL) and not code.co_filename.startswith(_COMMANDS)
