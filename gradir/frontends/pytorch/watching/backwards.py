"""Intercept the calls of backward that a program makes."""

from __future__ import annotations

import inspect
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch.autograd.graph import GradientEdge

from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.watching.optimizers import Patches
from gradir.frontends.walks import frames_from


class Listener:
    """Receives each call."""

    def on_backward_begin(self, tensors: object, frame: FrameType) -> bool | None:
        """Look at the tensors of a call, which does not run if this returns true or raises."""

    def on_backward_failing(self, tensors: object, frame: FrameType) -> None:
        """Look at the tensors of a call that will raise, since they have no graph."""

    def on_backward_end(self, tensors: object, *, has_ended: bool) -> None:
        """Note that a call has ended, or that it raised."""

    def counts_gradients(self, outputs: object, leaves: Sequence[torch.Tensor], frame: FrameType) -> bool | None:  # noqa: ARG002
        """Return whether a call of ``torch.autograd.grad`` is a backward pass; None keeps its graph to decide later."""
        return False


class Backwards(Patches):
    """Passes the calls of ``backward`` and of ``torch.autograd.grad`` that train to a listener."""

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
        signature = inspect.signature(grad)

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if not self._is_call():
                return grad(*args, **kwargs)
            frame, given = sys._getframe(1), signature.bind(*args, **kwargs)
            arguments = given.arguments
            arguments.update((name, _read_once(arguments[name])) for name in ("outputs", "inputs"))
            counts: bool | None = _is_stage_backward(frame)
            # An explanation computes gradients too.
            is_of_program = not module_of(frame).startswith(("gradir.", "torch."))
            if not counts and is_of_program and (leaves := _find_leaves(arguments)):
                counts = self._listener.counts_gradients(arguments["outputs"], leaves, frame)
            if counts is None:
                arguments["retain_graph"] = True
            run = partial(grad, *given.args, **given.kwargs)
            return self._run(arguments["outputs"], frame, run) if counts else run()

        return wrapper

    def _wrap_backward(self, backward: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            tensors = _read_once(args[0] if args else kwargs.pop("tensors", None))
            run = partial(backward, tensors, *args[1:], **kwargs)
            return self._run(tensors, sys._getframe(1), run) if self._is_call() else run()

        return wrapper

    def _run(self, tensors: object, frame: FrameType, run: Callable[[], Any]) -> Any:
        self._local.is_inside = True
        several = tensors if type(tensors) is tuple else (tensors,)
        has_graph = all(getattr(each, "requires_grad", each is not None) for each in several)
        begin = self._listener.on_backward_begin if has_graph else self._listener.on_backward_failing
        has_ended = True
        try:
            if begin(tensors, frame):
                return None
            has_ended = False
            result = run()
            has_ended = True
        finally:
            self._local.is_inside = False
            self._listener.on_backward_end(tensors, has_ended=has_ended)
        return result

    def _is_call(self) -> bool:
        # Calls inside another one, such as a checkpoint's, and calls in a forked process do not count. The first
        # condition is also all that dynamo traces.
        return (
            not torch.compiler.is_compiling()
            and not getattr(self._local, "is_inside", False)
            and private.current_backward() == -1
            and os.getpid() == self._process
        )


def _read_once(roots: Any) -> object:
    """Return tensors that can be read several times, unlike those of an iterator."""
    return roots if isinstance(roots, (torch.Tensor, GradientEdge, type(None))) else tuple(roots)


def _find_leaves(arguments: Mapping[str, Any]) -> list[torch.Tensor]:
    """Return the leaves whose gradients a call of ``torch.autograd.grad`` computes without a graph of them."""
    inputs = () if arguments.get("create_graph") else arguments["inputs"]
    several = inputs if isinstance(inputs, tuple) else (inputs,)
    return [each for each in several if isinstance(each, torch.Tensor) and each.is_leaf and each.requires_grad]


def _is_stage_backward(frame: FrameType) -> bool:
    """Return whether a schedule computes the gradients of a stage's inputs, not only their shapes."""
    if private.PIPELINES not in sys.modules:
        return False
    names = (each.f_code.co_name for each in frames_from(frame) if module_of(each).startswith(private.PIPELINES))
    return private.INPUTS_FIRST in names


def module_of(frame: FrameType) -> str:
    """Return the name of the module whose code a frame runs."""
    return str(frame.f_globals.get("__name__"))
