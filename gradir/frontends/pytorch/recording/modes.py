"""Has torch tell what a thread computes.

Below autograd it tells each operation with the tensors that it takes and gives, above it what the program called.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from functools import lru_cache
from typing import Any, Final

import torch

from gradir.frontends.pytorch.private import SWITCH
from gradir.frontends.pytorch.recording.compiled import CompiledParts
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.leaving import DispatchMode, FunctionMode

__all__ = ["enter_modes"]

_EXITS: Final = frozenset(
    {
        *("__array__", "__bool__", "__complex__", "__float__", "__index__", "__int__"),
        *("as_tensor", "asarray", "item", "numpy", "tensor", "tolist"),
    }
)
"""Functions that read the numbers of a tensor, so that what is made of these has no past."""


def enter_modes(entered: ExitStack, flow: Flow) -> None:
    """Note in a flow what this thread computes until a stack is left, without keeping the flow alive."""
    entered.enter_context(CompiledParts(flow))
    calls = entered.enter_context(_Calls(flow))
    entered.enter_context(_Operations(flow, calls))


class _Calls(FunctionMode):
    """Knows which function of torch the program called."""

    def __init__(self, flow: Flow) -> None:
        super().__init__()
        self._flow = weakref.ref(flow)
        self.called = ""

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call through."""
        if torch.compiler.is_compiling() or (flow := self._flow()) is None:
            return func(*args, **(kwargs or {}))
        before, self.called = self.called, _name_of(func)
        frame = sys._getframe(1)
        try:
            if self.called in _EXITS:
                flow.note_exit(self.called, args, kwargs, frame)
            elif self.called == "new_tensor":
                flow.note_exit(self.called, args[1:], kwargs, frame)
            elif self.called == "data" and len(args) > 1 and isinstance(args[1], torch.Tensor):
                flow.note_exchange(args[0], args[1], frame)
            elif self.called == "grad" and len(args) > 1 and args[1] is None:
                flow.note_clearing(args[0], frame)
            elif self.called == SWITCH:
                flow.switches.note(frame, is_on=bool(args[0]))
            elif self.called == "register_hook":
                flow.note_hook(args[0], args[1] if len(args) > 1 else (kwargs or {}).get("hook"))
            result = func(*args, **(kwargs or {}))
        except Exception as error:
            flow.note_failure(self.called, args, kwargs, frame, error)
            raise
        finally:
            self.called = before
        flow.note_given(result)
        if isinstance(result, torch.Tensor):
            flow.note_variable(result, frame)
        return result


class _Operations(DispatchMode):
    """Sees every operation below autograd."""

    supports_higher_order_operators = True

    def __init__(self, flow: Flow, calls: _Calls) -> None:
        super().__init__()
        self._flow = weakref.ref(flow)
        self._calls = calls

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation and note it."""
        flow = self._flow()
        if flow is None or flow.is_paused:
            return func(*args, **(kwargs or {}))
        return flow.run(func, args, kwargs or {}, self._calls.called)


@lru_cache(maxsize=4096)
def _name_of(func: Any) -> str:
    """What a program calls a function of torch: for a property of a tensor, the property's name."""
    name = getattr(func, "__name__", "")
    return getattr(getattr(func, "__self__", None), "__name__", name) if name in {"__get__", "__set__"} else name
