"""Capture at a backward that a program calls by itself."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial, wraps
from types import FrameType, TracebackType
from typing import Any, Final

import torch
from torch import nn
from torch.autograd.graph import GradientEdge

from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.reading.members import has_parameters, modules_in
from gradir.frontends.pytorch.recorder import Recorder
from gradir.frontends.pytorch.recording.compiled import set_modes
from gradir.ir import Graph
from gradir.request import CaptureRequest

__all__ = ["Watch"]

_NOTED: Final = 10
"""So many backwards before the one to capture the recording begins: part of what it goes through may be as old."""


class Watch:
    """Counts the calls of ``Tensor.backward`` and ``torch.autograd.backward``, and captures at one of them.

    A call inside another, as by a checkpoint, is none of the program's, and neither is one in a process that this one
    has forked. What has no graph is left to torch, which says so.
    """

    def __init__(self, request: CaptureRequest, reached: Callable[[Callable[[], Graph]], None]) -> None:
        self.calls = 0
        self._request, self._step, self._reached = request, request.step, reached
        self._process = os.getpid()
        self._of_thread = threading.local()
        self._patches = ExitStack()
        self._recorder: Recorder | None = None
        self._raised: BaseException | None = None

    def __enter__(self) -> Watch:
        for place in (torch.Tensor, torch.autograd):
            backward = place.backward
            counting = self._counting(backward)
            setattr(place, "backward", counting)  # noqa: B010 (types know no other)
            self._patches.callback(_put_back, place, counting, backward)
        self._record_in_time()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._patches.close()
        self._stop_recording()

    def _counting(self, backward: Callable[..., None]) -> Callable[..., None]:
        @wraps(backward)
        def counted(*args: Any, **kwargs: Any) -> None:
            given = args[0] if args else kwargs.pop("tensors", None)
            # It may be something that can be gone through once.
            tensors = given if isinstance(given, (torch.Tensor, GradientEdge, type(None))) else tuple(given)
            if not self._is_step(tensors):
                return backward(tensors, *args[1:], **kwargs)
            self._of_thread.is_inside = True
            try:
                self._count(tensors)
                return backward(tensors, *args[1:], **kwargs)
            finally:
                self._of_thread.is_inside = False
                self._record_in_time()

        return counted

    def _is_step(self, tensors: object) -> bool:
        return (
            not getattr(self._of_thread, "is_inside", False)
            and not torch.compiler.is_compiling()
            and private.current_backward() == -1
            and os.getpid() == self._process
            and all(
                getattr(each, "requires_grad", each is not None)
                for each in (tensors if type(tensors) is tuple else (tensors,))
            )
        )

    def _count(self, tensors: object) -> None:
        if self._raised is not None:
            raise self._raised
        self.calls += 1
        if self.calls != self._step:
            return
        try:
            self._reached(partial(self._captured, tensors, sys._getframe(1)))
        except BaseException as error:
            self._raised = error
            raise

    def _captured(self, tensors: object, frame: FrameType) -> Graph:
        recorder = self._recorder or Recorder(self._request)
        parts = [part for part in recorder.forget_others(tensors) if has_parameters(part)]
        # A program may call the parts of its model, as a step of Lightning does: then whose they are is to be found.
        owners = (each for each in _modules_around(frame) if parts and {*parts} <= {*modules_in(each)})
        return recorder.capture(tensors, model=next(owners, None))

    def _record_in_time(self) -> None:
        """Begin to record where the backward to capture comes near, and end once it has been."""
        left = self._step - self.calls
        if left <= 0 and self._raised is None:
            self._patches.close()
            self._stop_recording()
        elif left <= _NOTED and self._recorder is None:
            self._recorder = Recorder(self._request)
            around = private.function_modes()
            lowest = getattr(private.default_device, "device_context", None)
            # Below the modes that the program is in: it leaves them in their order, and takes the last for its own.
            set_modes(())
            self._recorder.__enter__()
            own = private.function_modes()
            is_lowest = around[:1] == [lowest]
            set_modes((*around[:is_lowest], *own, *around[is_lowest:]))

    def _stop_recording(self) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.leave()


def _put_back(place: object, counting: object, backward: object) -> None:
    # A program may have put something of its own in front.
    if getattr(place, "backward") is counting:  # noqa: B009 (types know no other)
        setattr(place, "backward", backward)  # noqa: B010


def _modules_around(frame: FrameType | None) -> Iterator[nn.Module]:
    """The modules in the variables of a call and those around it, and in the attributes of whose method each is."""
    while frame is not None:
        known = frame.f_locals
        arguments = frame.f_code.co_varnames[: frame.f_code.co_argcount]
        owner = known.get(arguments[0]) if arguments else None
        for value in (*known.values(), *private.fields_of(owner).values()):
            # By its type: to be asked what it is, an object may load what it stands for.
            if issubclass(type(value), nn.Module):
                yield value
        frame = frame.f_back
