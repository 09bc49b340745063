"""The calls of backward that a program makes."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from functools import wraps
from types import FrameType
from typing import Any, Protocol

import torch
from torch.autograd.graph import GradientEdge

from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.watching.optimizers import Patches
from gradir.frontends.walks import frames_from


class Listener(Protocol):
    """Gets each call."""

    def before_backward(self, tensors: object, frame: FrameType) -> bool | None:
        """Look at the tensors of a call, which does not run if this is true or raises."""

    def before_failing(self, tensors: object, frame: FrameType) -> None:
        """Look at the tensors of a call that is going to raise, since they have no graph."""

    def after_backward(self, tensors: object, *, has_ended: bool) -> None:
        """Note that a call has ended, or that it raised."""


class Backwards(Patches):
    """Tells a listener of the calls of ``Tensor.backward`` and ``torch.autograd.backward``."""

    def __init__(self, listener: Listener) -> None:
        super().__init__()
        self._listener = listener
        self._process = os.getpid()
        self._of_thread = threading.local()

    def __enter__(self) -> Backwards:
        for place in (torch.Tensor, torch.autograd):
            self.patch(place, "backward", self._telling)
        self.patch(torch.autograd, "grad", self._telling_of_stages)
        return self

    def _telling_of_stages(self, grad: Callable[..., Any]) -> Callable[..., Any]:
        """Count a call for the inputs of a pipeline's stage as one of backward, and no other."""

        @wraps(grad)
        def told(*args: Any, **kwargs: Any) -> Any:
            if self._is_call() and private.PIPELINES in sys.modules and _is_of_stage(sys._getframe(1)):
                outputs = args[0] if args else kwargs.get("outputs")
                self._of_thread.is_inside = True
                try:
                    self._listener.before_backward(outputs, sys._getframe(1))
                finally:
                    self._of_thread.is_inside = False
                self._listener.after_backward(outputs, has_ended=True)
            return grad(*args, **kwargs)

        return told

    def _telling(self, backward: Callable[..., None]) -> Callable[..., None]:
        @wraps(backward)
        def told(*args: Any, **kwargs: Any) -> None:
            given = args[0] if args else kwargs.pop("tensors", None)
            # It may be something that can be gone through once.
            tensors = given if isinstance(given, (torch.Tensor, GradientEdge, type(None))) else tuple(given)
            if not self._is_call():
                return backward(tensors, *args[1:], **kwargs)
            self._of_thread.is_inside = True
            several = tensors if type(tensors) is tuple else (tensors,)
            has_graph = all(getattr(each, "requires_grad", each is not None) for each in several)
            looked = self._listener.before_backward if has_graph else self._listener.before_failing
            has_ended = True
            try:
                if looked(tensors, sys._getframe(1)):
                    return None
                has_ended = False
                backward(tensors, *args[1:], **kwargs)
                has_ended = True
            finally:
                self._of_thread.is_inside = False
                self._listener.after_backward(tensors, has_ended=has_ended)
            return None

        return told

    def _is_call(self) -> bool:
        # Calls inside another one, as by a checkpoint, and calls in a forked process do not count. The first of these
        # is all that dynamo traces.
        return (
            not torch.compiler.is_compiling()
            and not getattr(self._of_thread, "is_inside", False)
            and private.current_backward() == -1
            and os.getpid() == self._process
        )


def _is_of_stage(frame: FrameType) -> bool:
    """Return whether a schedule computes the gradients of a stage's inputs, and no shape of them."""
    names = (each.f_code.co_name for each in frames_from(frame) if module_of(each).startswith(private.PIPELINES))
    return private.INPUTS_FIRST in names


def module_of(frame: FrameType) -> str:
    """Return the name of the module whose code a frame runs."""
    return str(frame.f_globals.get("__name__"))
