"""Intercept the calls of backward that a program makes."""

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
    """Receives each call."""

    def on_backward_begin(self, tensors: object, frame: FrameType) -> bool | None:
        """Look at the tensors of a call, which does not run if this returns true or raises."""

    def on_backward_failing(self, tensors: object, frame: FrameType) -> None:
        """Look at the tensors of a call that will raise, since they have no graph."""

    def on_backward_end(self, tensors: object, *, has_ended: bool) -> None:
        """Note that a call has ended, or that it raised."""


class Backwards(Patches):
    """Passes the calls of ``Tensor.backward`` and ``torch.autograd.backward`` to a listener."""

    def __init__(self, listener: Listener) -> None:
        super().__init__()
        self._listener = listener
        self._process = os.getpid()
        self._local = threading.local()

    def __enter__(self) -> Backwards:
        for place in (torch.Tensor, torch.autograd):
            self.patch(place, "backward", self._wrap_backward)
        self.patch(torch.autograd, "grad", self._wrap_grad)
        return self

    def _wrap_grad(self, grad: Callable[..., Any]) -> Callable[..., Any]:
        """Count only calls for the inputs of a pipeline's stage, as calls of backward."""

        @wraps(grad)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if self._is_call() and private.PIPELINES in sys.modules and _is_stage_backward(sys._getframe(1)):
                outputs = args[0] if args else kwargs.get("outputs")
                self._local.is_inside = True
                try:
                    self._listener.on_backward_begin(outputs, sys._getframe(1))
                finally:
                    self._local.is_inside = False
                self._listener.on_backward_end(outputs, has_ended=True)
            return grad(*args, **kwargs)

        return wrapper

    def _wrap_backward(self, backward: Callable[..., None]) -> Callable[..., None]:
        @wraps(backward)
        def wrapper(*args: Any, **kwargs: Any) -> None:
            roots = args[0] if args else kwargs.pop("tensors", None)
            # An iterator can be consumed only once.
            tensors = roots if isinstance(roots, (torch.Tensor, GradientEdge, type(None))) else tuple(roots)
            if not self._is_call():
                return backward(tensors, *args[1:], **kwargs)
            self._local.is_inside = True
            several = tensors if type(tensors) is tuple else (tensors,)
            has_graph = all(getattr(each, "requires_grad", each is not None) for each in several)
            begin = self._listener.on_backward_begin if has_graph else self._listener.on_backward_failing
            has_ended = True
            try:
                if begin(tensors, sys._getframe(1)):
                    return None
                has_ended = False
                backward(tensors, *args[1:], **kwargs)
                has_ended = True
            finally:
                self._local.is_inside = False
                self._listener.on_backward_end(tensors, has_ended=has_ended)
            return None

        return wrapper

    def _is_call(self) -> bool:
        # Calls inside another one, such as a checkpoint's, and calls in a forked process do not count. The first
        # condition is also all that dynamo traces.
        return (
            not torch.compiler.is_compiling()
            and not getattr(self._local, "is_inside", False)
            and private.current_backward() == -1
            and os.getpid() == self._process
        )


def _is_stage_backward(frame: FrameType) -> bool:
    """Return whether a schedule computes the gradients of a stage's inputs, not only their shapes."""
    names = (each.f_code.co_name for each in frames_from(frame) if module_of(each).startswith(private.PIPELINES))
    return private.INPUTS_FIRST in names


def module_of(frame: FrameType) -> str:
    """Return the name of the module whose code a frame runs."""
    return str(frame.f_globals.get("__name__"))
