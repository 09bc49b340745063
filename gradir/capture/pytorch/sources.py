"""Which line of the user's program made each node, and the variable its result was assigned to."""

from __future__ import annotations

import dis
import os
import sys
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from gradir.capture.pytorch.attributes import plain_text
from gradir.capture.pytorch.timelines import Coverage
from gradir.ir import Source
from gradir.ir.text import printable

__all__ = ["SourceLog", "SourceLookup", "SourceMode"]

_INTERNAL: Final = tuple(
    f"{Path(package).resolve().parent}{os.sep}" for package in (torch.__file__, sys.modules["gradir"].__file__ or "")
)
_CALL_MODULE: Final = nn.Module._call_impl.__code__
_STORES: Final = ("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF")


class _Call(NamedTuple):
    """One call into torch: the sequence numbers that it used up, and the place in the user's program.

    ``group`` is the same for the calls that one call of a module makes.
    """

    start: int
    end: int
    code: CodeType
    instruction: int
    line: int | None
    group: object


class SourceLog:
    """What one thread called, in the order of its sequence numbers."""

    def __init__(self) -> None:
        self.calls: list[_Call] = []
        self.starts: list[int] = []

    def note(self, start: int, frame: FrameType | None, module_call: Callable[[int], object]) -> None:
        """Note that the call that just returned made the nodes from ``start`` on.

        ``module_call`` gives what stands for the module's call, the given number of calls above the innermost.
        """
        modules = 0
        while frame is not None and _is_internal(frame.f_code):
            modules += frame.f_code is _CALL_MODULE
            frame = frame.f_back
        if frame is None:
            return
        group = module_call(modules - 1) if modules else object()
        end = torch._C._autograd._get_sequence_nr()
        self.starts.append(start)
        self.calls.append(_Call(start, end, frame.f_code, frame.f_lasti, frame.f_lineno, group))

    def index(self, number: int) -> int | None:
        """The place of the call that made this thread's node of this number."""
        index = bisect_right(self.starts, number) - 1
        return index if index >= 0 and number < self.calls[index].end else None


class SourceLookup:
    """Looks up the source line and the variable of a node by its autograd sequence number."""

    def __init__(self, logs: Sequence[tuple[SourceLog, Coverage]]) -> None:
        """``logs`` are those of the threads that were recorded, each with the numbers that may be other threads'."""
        self._logs = logs

    def source(self, number: int) -> Source | None:
        """Where the node of this number was made."""
        log, index = self._find(number)
        if log is None:
            return None
        call = log.calls[index]
        name = getattr(call.code, "co_qualname", call.code.co_name)
        return Source(_shown_path(call.code.co_filename), max(call.line or 0, 0), printable(plain_text(name)))

    def variable(self, number: int) -> str | None:
        """The variable that the node of this number, the last of its statement, was assigned to."""
        log, index = self._find(number)
        if log is None or number != log.calls[index].end - 1:
            return None
        call = log.calls[index]
        if index + 1 < len(log.calls) and log.calls[index + 1].group is call.group:
            return None
        variable = _assigned_variables(call.code).get(call.instruction)
        return None if variable is None else plain_text(variable)

    def _find(self, number: int) -> tuple[SourceLog | None, int]:
        for log, others in self._logs:
            index = log.index(number)
            if index is not None and number not in others:
                return log, index
        return None, 0


class SourceMode(TorchFunctionMode):
    """While entered, notes every call into torch of this thread that makes nodes."""

    def __init__(self, log: SourceLog, module_call: Callable[[int], object]) -> None:
        super().__init__()
        self._log = log
        self._module_call = module_call

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call through."""
        if torch.compiler.is_compiling():
            return func(*args, **(kwargs or {}))
        start = torch._C._autograd._get_sequence_nr()
        result = func(*args, **(kwargs or {}))
        if torch._C._autograd._get_sequence_nr() != start:
            self._log.note(start, sys._getframe(1), self._module_call)
        return result


@lru_cache(maxsize=4096)
def _is_internal(code: CodeType) -> bool:
    return code.co_filename.startswith(_INTERNAL)


@lru_cache(maxsize=1024)
def _assigned_variables(code: CodeType) -> dict[int, str]:
    """The variable that the instruction after each one stores to, by the offset of the first."""
    found = {}
    for call, store in pairwise(dis.get_instructions(code)):
        if store.opname.startswith(_STORES):
            # Python 3.13 joins two stores, or a store and a load, in one instruction.
            found[call.offset] = store.argval[0] if isinstance(store.argval, tuple) else store.argval
    return found


@lru_cache(maxsize=1024)
def _shown_path(filename: str) -> str:
    """The file relative to the working directory, else to where it is imported from, else its name alone."""
    path = Path(filename)
    if not path.is_absolute():
        return _plain_path(path)
    roots = sorted((Path(entry) for entry in sys.path if entry), key=lambda root: -len(root.parts))
    # The working directory may have been deleted.
    with suppress(OSError):
        roots.insert(0, Path.cwd())
    for root in roots:
        if path.is_relative_to(root):
            return _plain_path(path.relative_to(root))
    return _plain_path(Path(path.name))


def _plain_path(path: Path) -> str:
    # The name that a program gives to code it compiles is any text.
    return printable(plain_text(path.as_posix()))
