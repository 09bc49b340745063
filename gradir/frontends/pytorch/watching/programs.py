"""Capture or explain one of the backward passes of a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import Final

import torch
from msgspec.structs import replace
from torch.optim import Optimizer

from gradir.errors import CaptureError
from gradir.explanations.model import Explanation
from gradir.frontends.pytorch.reading.tensors import read_scalar
from gradir.frontends.pytorch.recording.exchange import find_stages
from gradir.frontends.pytorch.recording.rank import UntilStep
from gradir.frontends.pytorch.watching.backwards import Backwards, Listener
from gradir.frontends.pytorch.watching.lacking import Lacking
from gradir.frontends.pytorch.watching.optimizers import Optimizers, Scaling, may_be_scale
from gradir.frontends.pytorch.watching.parameters import parameters_of
from gradir.frontends.pytorch.watching.recordings import Recording
from gradir.ir import Graph
from gradir.protocols import BackwardCallback
from gradir.request import CaptureRequest

# Operations of the captured graph may run this many backward passes earlier.
_RECORDED: Final = 10


class RecordingProgram(Listener):
    """A program with a recording of its beginning, or of the time before one of its backward passes."""

    _recording: Recording | None = None

    def explain_failure(self, error: BaseException) -> Explanation | None:
        """Explain the error of a recorded operation, or return ``None`` if no operation raised it."""
        return None if self._recording is None else self._recording.explain_failure(error)

    def stop_recording(self) -> None:
        """Stop the recording, if there is one."""
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.leave()


class Running(RecordingProgram):
    """Counts the calls of backward of a program, and captures or explains one of them."""

    def __init__(self, request: CaptureRequest, reached: BackwardCallback) -> None:
        self.calls = 0
        self._request, self._step, self._reached = request, request.step, reached
        self._backwards = Backwards(self)
        self._optimizers = Optimizers(self._on_step_begin)
        self._scaling = Scaling()
        self._raised: BaseException | None = None
        self._until: UntilStep | None = None
        # The last call of `torch.autograd.grad`, until an optimizer steps with its gradients.
        self._undecided: tuple[object, Sequence[torch.Tensor], FrameType] | None = None
        self._explained: tuple[object, FrameType] | None = None
        self._lacking: Lacking | None = None
        self.is_piped = False
        """Whether the last counted call is a schedule's, so that its other microbatches do not count."""

    def __enter__(self) -> Running:
        self._backwards.__enter__()
        self._optimizers.__enter__()
        if self._request.flow:
            self._scaling.__enter__()
        self._update_recording()
        return self

    def __exit__(self, *_: object) -> None:
        if self._until is not None:
            self._until.close()
        self._close()
        self.stop_recording()
        # The program has ended anyway.
        with suppress(SystemExit):
            self._decide(self.calls)

    def on_backward_begin(self, tensors: object, frame: FrameType) -> bool:
        """Count a call, and capture or explain the requested one; return whether to skip its backward pass."""
        if self._raised is not None:
            raise self._raised
        self._undecided = None
        if self._lacking is None:
            self._explained = None
        if self.is_piped:
            return False
        if self._until is not None:
            self._until.end()
        self.is_piped = find_stages(frame) is not None
        self.calls += 1
        try:
            if self._lacking is not None and self._lacking.has_stepped:
                self._decide(self.calls)
            if self.calls != self._step:
                return False
            # Without a step of an optimizer, the step of a pipeline by hand has no end.
            self.is_piped |= bool(self._optimizers.alive) and self.recording.sends_by_hand
            if self._reached(_Call(self, tensors, frame)):
                self._step += 1
        except _Undecided:
            return False
        except BaseException as error:
            self._raised = error
            raise
        return self._until is not None and not self._until.sends

    def on_backward_failing(self, tensors: object, frame: FrameType) -> None:
        """Explain roots without a graph. Otherwise torch raises its own error."""
        if self._request.flow and self.calls + 1 == self._step:
            self.on_backward_begin(tensors, frame)

    def counts_gradients(self, outputs: object, leaves: Sequence[torch.Tensor], frame: FrameType) -> bool | None:
        """Count a call of a program without an optimizer; else a step with its gradients decides."""
        if not self._request.flow or self._optimizers.stepping is not None:
            return False
        if not self._optimizers.alive:
            return True
        self._undecided = outputs, leaves, frame
        return None

    def on_backward_end(self, tensors: object, *, has_ended: bool) -> None:  # noqa: ARG002
        """Start or stop the recording."""
        if self._until is None and not self.is_piped:
            self._start_step(has_ended=has_ended)

    def _on_step_begin(self, optimizer: Optimizer) -> None:
        # The last messages of a step by hand may follow its backward.
        is_by_hand = self._recording is not None and self._recording.sends_by_hand
        if self._until is None and (self.is_piped or is_by_hand):
            self.is_piped = False
            self._start_step(has_ended=True)
        trained = parameters_of(optimizer)
        if self._undecided is not None:
            outputs, leaves, frame = self._undecided
            if not {id(tensor) for tensor in trained if tensor.grad is not None}.isdisjoint(map(id, leaves)):
                self.on_backward_begin(outputs, frame)
                self.on_backward_end(outputs, has_ended=True)
        if self._lacking is not None:
            self._lacking.note_step(optimizer)
            if not self._lacking.has_open:
                self._decide(self.calls + 1)
            return
        call, self._explained = self._explained, None
        if call is not None and not any(tensor.grad is not None and bool(tensor.grad.any()) for tensor in trained):
            # The program has cleared the gradients since this backward pass.
            self._reached(_Call(self, *call))

    def _start_step(self, *, has_ended: bool) -> None:
        if self._recording is not None:
            self._recording.start_step(self._step - self.calls, has_ended=has_ended)
        self._update_recording()

    @property
    def waiting(self) -> int | None:
        """The number of operations so far, if the program waits for other processes."""
        return None if self._recording is None else self._recording.waiting

    def capture_stopped(self, why: str, error: BaseException | None = None) -> Graph | None:
        """Return a graph without nodes, with the collectives since the last backward pass."""
        return None if self._recording is None else self._recording.capture_stopped(why, error)

    def explain(self, outputs: object, frame: FrameType | None = None) -> Explanation:
        """Explain outputs of the program, as if it called backward on them."""
        is_scaled = self._scaling.excuses(outputs, self._scaling.remove_scale(outputs))
        found = self.recording.explain(outputs, frame)
        causes = (replace(each, level="info") if is_scaled and may_be_scale(each) else each for each in found.causes)
        self._explained = None if frame is None else (outputs, frame)
        found = replace(found, causes=tuple(causes))
        lacking = self.recording.find_lacking(found)
        if frame is not None and self._optimizers.alive and lacking.has_open:
            self._lacking = lacking
            raise _Undecided
        return found

    def _decide(self, step: int) -> None:
        lacking, call, self._lacking = self._lacking, self._explained, None
        if lacking is not None and call is not None and self._reached(_Call(self, *call, lacking.excuse_errors())):
            self._step = step

    def finish(self) -> Graph | None:
        """Return the captured graph with the collectives until the program's end, ``None`` after a step."""
        return None if self._until is None or self._until.is_over else self._until.graph

    def go_on(self, stepped: Callable[[Graph], None]) -> bool:
        """Let the program run on without its backward pass, up to the optimizer's step."""
        if self._recording is None or not (self._request.collectives or self.is_piped):
            return False
        self._until = self._recording.run_to_step(stepped, sends=self.is_piped)
        return True

    @property
    def recording(self) -> Recording:
        """The recording, which must exist."""
        if self._recording is None:
            raise CaptureError("nothing was recorded before this backward")
        return self._recording

    def _close(self) -> None:
        for patches in (self._backwards, self._optimizers, self._scaling):
            patches.close()

    def _update_recording(self) -> None:
        remaining = self._step - self.calls
        if remaining <= 0 and self._raised is None and self._lacking is None:
            self._close()
            self.stop_recording()
        elif remaining <= _RECORDED and self._recording is None:
            self._recording = Recording(replace(self._request, step=remaining), self._optimizers)


class _Undecided(BaseException):
    """Leaves a callback, which is called again after the steps that may excuse errors."""


class _Call:
    """A call of backward before it runs; see `gradir.protocols.ReachedBackward`."""

    def __init__(self, running: Running, tensors: object, frame: FrameType, decided: Explanation | None = None) -> None:
        self._running, self._tensors, self._frame, self._decided = running, tensors, frame, decided

    @property
    def loss(self) -> float | None:
        return read_scalar(self._tensors)

    @property
    def is_piped(self) -> bool:
        return self._running.is_piped

    def capture(self) -> Graph:
        return self._running.recording.capture(self._tensors, self._frame, is_piped=self.is_piped)

    def go_on(self, stepped: Callable[[Graph], None]) -> bool:
        return self._running.go_on(stepped)

    def explain(self) -> Explanation:
        explanation = self._decided
        return self._running.explain(self._tensors, self._frame) if explanation is None else explanation
