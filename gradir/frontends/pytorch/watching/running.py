"""Capture, or explain, at a backward that a program calls by itself."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Final

from msgspec.structs import replace

from gradir.errors import CaptureError
from gradir.explanations.model import Explanation
from gradir.frontends.pytorch.reading.tensors import number_of
from gradir.frontends.pytorch.recording.stepping import UntilStep
from gradir.frontends.pytorch.watching.backwards import Backwards
from gradir.frontends.pytorch.watching.optimizers import Optimizers
from gradir.frontends.pytorch.watching.recordings import Recording
from gradir.frontends.pytorch.watching.scaling import Scaling, may_be_scale
from gradir.ir import Graph
from gradir.protocols import Reached
from gradir.request import CaptureRequest

# Part of what the backward goes through may be as old as so many backwards before it.
_NOTED: Final = 10


class Running:
    """Counts the calls of backward of a program, and hands one of them to be captured or explained."""

    def __init__(self, request: CaptureRequest, reached: Reached) -> None:
        self.calls = 0
        self._request, self._step, self._reached = request, request.step, reached
        self._backwards = Backwards(self)
        self._optimizers = Optimizers()
        self._scaling = Scaling()
        self._recording: Recording | None = None
        self._raised: BaseException | None = None
        self._until: UntilStep | None = None

    def __enter__(self) -> Running:
        self._backwards.__enter__()
        if self._request.flow:
            self._optimizers.__enter__()
            self._scaling.__enter__()
        self._record_in_time()
        return self

    def __exit__(self, *_: object) -> None:
        if self._until is not None:
            self._until.close()
        self._close()
        self._stop_recording()

    def before_backward(self, tensors: object, frame: FrameType) -> bool:
        """Count a call, and hand it on if it is the one; return whether it ran already."""
        if self._raised is not None:
            raise self._raised
        if self._until is not None:
            self._until.end()
        self.calls += 1
        if self.calls != self._step:
            return False
        try:
            if self._reached(_Call(self, tensors, frame)):
                self._step += 1
        except BaseException as error:
            self._raised = error
            raise
        return self._until is not None

    def before_failing(self, tensors: object, frame: FrameType) -> None:
        """Explain what has no graph; torch alone knows what else to say of it."""
        if self._request.flow and self.calls + 1 == self._step:
            self.before_backward(tensors, frame)

    def after_backward(self, tensors: object) -> None:  # noqa: ARG002 (as a listener has it)
        """Begin or end to record."""
        if self._until is not None:
            return
        if self._recording is not None:
            self._recording.forget_anew(self._step - self.calls)
        self._record_in_time()

    def explained_failure(self, error: BaseException) -> Explanation | None:
        """Explain what an operation raised before the backward was reached; nothing if none did."""
        return None if self._recording is None else self._recording.explained_failure(error)

    @property
    def waiting(self) -> int | None:
        """How many operations ran, where the program waits for other processes."""
        return None if self._recording is None else self._recording.waiting

    def stopped(self, why: str) -> Graph | None:
        """Return a graph without nodes, with what was exchanged since the last backward."""
        return None if self._recording is None else self._recording.stopped(why)

    def explained(self, outputs: object, frame: FrameType | None = None) -> Explanation:
        """Explain what the program has made, as if it called backward of it."""
        is_scaled = self._scaling.excuses(outputs, self._scaling.unscaled(outputs))
        found = self._noted().explained(outputs, frame)
        causes = (replace(each, level="info") if is_scaled and may_be_scale(each) else each for each in found.causes)
        return replace(found, causes=tuple(causes))

    def captured(self, tensors: object, frame: FrameType) -> Graph:
        """Capture the graph of a call."""
        return self._noted().captured(tensors, frame)

    def go_on(self, stepped: Callable[[Graph | None], None]) -> bool:
        """Let the program run on without its backward, up to the optimizer's step."""
        if self._recording is None or not self._request.collectives:
            return False
        self._until = self._recording.until_step(stepped)
        return True

    def _noted(self) -> Recording:
        if self._recording is None:
            raise CaptureError("nothing was recorded before this backward")
        return self._recording

    def _close(self) -> None:
        self._backwards.close()
        self._optimizers.close()
        self._scaling.close()

    def _record_in_time(self) -> None:
        """Begin to record where the backward to capture comes near, and end once it has been."""
        left = self._step - self.calls
        if left <= 0 and self._raised is None:
            self._close()
            self._stop_recording()
        elif left <= _NOTED and self._recording is None:
            self._recording = Recording(replace(self._request, step=left), self._optimizers)

    def _stop_recording(self) -> None:
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.leave()


class _Call:
    """One call of backward, which has not run yet; see `gradir.protocols.ReachedBackward`."""

    def __init__(self, running: Running, tensors: object, frame: FrameType) -> None:
        self._running, self._tensors, self._frame = running, tensors, frame

    @property
    def loss(self) -> float | None:
        return number_of(self._tensors)

    def capture(self) -> Graph:
        return self._running.captured(self._tensors, self._frame)

    def go_on(self, stepped: Callable[[Graph | None], None]) -> bool:
        return self._running.go_on(stepped)

    def explain(self) -> Explanation:
        return self._running.explained(self._tensors, self._frame)
