"""Capture, or explain, at a backward that a program calls by itself."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Final

import torch
from msgspec.structs import replace
from torch import nn
from torch.optim import Optimizer

from gradir.errors import CaptureError
from gradir.explanations.model import Explanation
from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.explaining.words import located
from gradir.frontends.pytorch.reading.members import has_parameters, modules_in
from gradir.frontends.pytorch.recorder import Recorder
from gradir.frontends.pytorch.recording.compiled import set_modes
from gradir.frontends.pytorch.watching.backwards import Backwards
from gradir.frontends.pytorch.watching.optimizers import Optimizers
from gradir.ir import Graph
from gradir.protocols import Reached
from gradir.request import CaptureRequest

__all__ = ["Running"]

_OF_OPTIMIZERS: Final = frozenset({"moves_nothing", "not_in_optimizer", "replaced"})
"""The causes that are at the line where the optimizer was made."""

_NOTED: Final = 10
"""So many backwards before the one to capture the recording begins: part of what it goes through may be as old."""


class Running:
    """Counts the calls of backward of a program, and hands one of them to be captured or explained."""

    def __init__(self, request: CaptureRequest, reached: Reached) -> None:
        self.calls = 0
        self._request, self._step, self._reached = request, request.step, reached
        self._backwards = Backwards(self)
        self._optimizers = Optimizers()
        self._recorder: Recorder | None = None
        self._raised: BaseException | None = None

    def __enter__(self) -> Running:
        self._backwards.__enter__()
        if self._request.flow:
            self._optimizers.__enter__()
        self._record_in_time()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        self._stop_recording()

    def before_backward(self, tensors: object, frame: FrameType) -> None:
        """Count a call, and hand it on if it is the one."""
        if self._raised is not None:
            raise self._raised
        self.calls += 1
        if self.calls != self._step:
            return
        try:
            if self._reached(_Call(self, tensors, frame)):
                self._step += 1
        except BaseException as error:
            self._raised = error
            raise

    def before_failing(self, tensors: object, frame: FrameType) -> None:
        """Explain what has no graph; torch alone knows what else to say of it."""
        if self._request.flow and self.calls + 1 == self._step:
            self.before_backward(tensors, frame)

    def after_backward(self, tensors: object) -> None:  # noqa: ARG002 (as a listener has it)
        """Begin or end to record."""
        if self._recorder is not None:
            self._recorder.called_anew()
        self._record_in_time()

    def explained_failure(self, error: BaseException) -> Explanation | None:
        """Explain what an operation raised before the backward was reached; nothing if none did."""
        recorder = self._recorder
        if recorder is None or not self._request.flow or not recorder.has_failed:
            return None
        trace, frame = error.__traceback__, None
        while trace is not None:
            frame, trace = trace.tb_frame, trace.tb_next
        with suppress(CaptureError):
            return recorder.explain(error, model=_owner_of(recorder.called, frame))
        return None

    def captured(self, tensors: object, frame: FrameType) -> Graph:
        """Capture the graph of a call, with what was exchanged if that is asked for."""
        recorder = self._recorder or Recorder(self._request)
        parts = [part for part in recorder.forget_others(tensors) if has_parameters(part)]
        live = recorder.live_capture(tensors, model=_owner_of(parts, frame))
        return (recorder.exchanged.with_dry_backward(live) if self._request.collectives else live).graph

    def explained(self, outputs: object, frame: FrameType | None = None) -> Explanation:
        """Explain what a call starts from, with what steps behind it."""
        recorder = self._recorder
        if recorder is None:
            raise CaptureError("nothing was recorded before this backward")
        optimizers = self._optimizers.of_backward()
        # Of what did nothing for this loss, it may have been meant of what an optimizer has, and where there is one, of
        # what ran since the last backward.
        anew = recorder.called_anew() if optimizers or frame is None else []
        meant = [*anew, *_trained_by(optimizers, recorder.called)]
        parts = recorder.called
        with suppress(CaptureError):
            parts = recorder.forget_others(outputs, but=meant)
        owner = _owner_of([part for part in parts if has_parameters(part)], frame)
        found = recorder.explain(
            outputs,
            model=owner,
            params=None if owner is not None or parts else _leaves_around(frame),
            optimizer=optimizers or None,
            values=self._request.values,
        )
        place = self._optimizers.place_of(optimizers[0]) if optimizers else None
        causes = (located(each, place) if each.kind in _OF_OPTIMIZERS else each for each in found.causes)
        return replace(found, causes=tuple(causes))

    def _close(self) -> None:
        self._backwards.close()
        self._optimizers.close()

    def _record_in_time(self) -> None:
        """Begin to record where the backward to capture comes near, and end once it has been."""
        left = self._step - self.calls
        if left <= 0 and self._raised is None:
            self._close()
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
            recorder.leave(sys.exc_info()[1])


class _Call:
    """One call of backward, which has not run yet; see `gradir.protocols.ReachedBackward`."""

    def __init__(self, running: Running, tensors: object, frame: FrameType) -> None:
        self._running, self._tensors, self._frame = running, tensors, frame

    def capture(self) -> Graph:
        return self._running.captured(self._tensors, self._frame)

    def explain(self) -> Explanation:
        return self._running.explained(self._tensors, self._frame)


def _trained_by(optimizers: Sequence[Optimizer], modules: Iterable[nn.Module]) -> Iterator[nn.Module]:
    """The modules that have a parameter of an optimizer."""
    held = {id(tensor) for optimizer in optimizers for group in optimizer.param_groups for tensor in group["params"]}
    for module in modules:
        if any(id(tensor) in held for part in modules_in(module) for tensor in private.own_parameters(part).values()):
            yield module


def _owner_of(parts: list[nn.Module], frame: FrameType | None) -> nn.Module | None:
    """The module around a call that has all these parts, which a program may call by themselves."""
    return next((each for each in _modules_around(frame) if parts and {*parts} <= {*modules_in(each)}), None)


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


def _leaves_around(frame: FrameType | None) -> dict[str, torch.Tensor]:
    """The leaves that require grad in the variables of a call and those around it, the inner ones first."""
    found: dict[str, torch.Tensor] = {}
    while frame is not None:
        for name, value in frame.f_locals.items():
            if issubclass(type(value), torch.Tensor) and value.is_leaf and value.requires_grad:
                found.setdefault(name, value)
        frame = frame.f_back
    return found
