"""A recording of what runs before a call of backward, to capture or explain it."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from traceback import walk_tb
from types import FrameType
from typing import Final, NamedTuple

import torch
from msgspec.structs import replace
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from gradir.errors import CaptureError
from gradir.explanations.model import Explanation
from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.explaining.naming import with_place
from gradir.frontends.pytorch.reading.members import has_parameters, modules_in
from gradir.frontends.pytorch.reading.tensors import Modules, number_of
from gradir.frontends.pytorch.recorder import Recorder
from gradir.frontends.pytorch.recording.exchange import other_outputs, stages_around
from gradir.frontends.pytorch.recording.modes import set_modes
from gradir.frontends.pytorch.recording.places import Place
from gradir.frontends.pytorch.recording.rank import UntilStep
from gradir.frontends.pytorch.recording.steps import plain_name
from gradir.frontends.pytorch.recording.timelines import path_of
from gradir.frontends.pytorch.watching.backwards import Backwards, module_of
from gradir.frontends.pytorch.watching.optimizers import Optimizers, Scaling, may_be_scale
from gradir.frontends.pytorch.watching.parameters import parameters_of
from gradir.frontends.walks import frames_from
from gradir.ir import Graph
from gradir.protocols import Reached
from gradir.request import CaptureRequest

# These causes are at the line where the optimizer was made.
_OF_OPTIMIZERS: Final = frozenset({"moves_nothing", "not_in_optimizer", "not_registered", "replaced"})
# These may have no slope, or a small one.
_SQUASHING: Final = frozenset({"hardtanh", "relu", "sigmoid", "softmax", "softsign", "tanh"})


class Layers(NamedTuple):
    """The line that runs each module, how often each squashing function ran, and the line where it mostly did."""

    lines: Mapping[str, Place]
    squashing: Mapping[str, int]
    squashed_at: Mapping[str, Place]


class Recording:
    """A recording of a program, which begins in the middle of whatever the program is doing."""

    def __init__(self, request: CaptureRequest, optimizers: Optimizers) -> None:
        self._request, self._optimizers = request, optimizers
        self._recorder = Recorder(request)
        self._graph = Graph({})
        around = private.function_modes()
        lowest = getattr(private.default_device, "device_context", None)
        # Below the modes that the program is in: it leaves them in their order, and takes the last for its own.
        set_modes(())
        self._recorder.__enter__()
        is_lowest = around[:1] == [lowest]
        set_modes((*around[:is_lowest], *private.function_modes(), *around[is_lowest:]))

    def leave(self) -> None:
        """Record no more."""
        self._recorder.leave(sys.exc_info()[1])

    def forget_anew(self, left: int = 0, *, has_ended: bool = True) -> None:
        """Note that a backward has run: what was called before it is older than the next one, with so many to go."""
        self._recorder.called_anew()
        # What a backward that raised has exchanged belongs to the step that failed.
        if self._request.collectives and has_ended:
            self._recorder.exchanged.begin(is_dry=self._request.dry and left == 1)

    @property
    def waiting(self) -> int | None:
        """How many operations ran, where the program waits for other processes."""
        return self._recorder.exchanged.waiting if self._request.collectives else None

    def stopped(self, why: str, error: BaseException | None) -> Graph | None:
        """Return a graph without nodes, with what was exchanged since the last backward."""
        if not self._request.collectives:
            return None
        if error is not None and not _is_of_exchange(error):
            why = "raises"
        thread = sys._current_frames().get(threading.main_thread().ident or 0)
        owner = _find_owner(filter(has_parameters, self._recorder.called), thread)
        return self._recorder.exchanged.stopped(why, self._recorder.modules(owner))

    @property
    def called(self) -> Sequence[nn.Module]:
        """The modules that were called from outside any other."""
        return self._recorder.called

    def captured(self, tensors: object, frame: FrameType, *, is_piped: bool) -> Graph:
        """Capture the graph of a call, with what was exchanged if that is asked for.

        In a pipeline's schedule, the graph has the first microbatch of each stage, and its backward is the real one.
        """
        if is_piped:
            several = tensors if isinstance(tensors, (tuple, list)) else (tensors,)
            tensors = (*several, *other_outputs(frame))
        # A module that does nothing for the loss belongs to the graph where the optimizer of this backward has it.
        meant = _find_trained(self._optimizers.of_backward(), self._recorder.called)
        parts = filter(has_parameters, self._recorder.forget_others(tensors, but=meant))
        live = self._recorder.live_capture(tensors, model=_find_owner(parts, frame))
        if self._request.collectives and not is_piped:
            live = self._recorder.exchanged.with_dry_backward(live)
        self._graph = live.graph
        return live.graph

    def until_step(self, stepped: Callable[[Graph], None], *, sends: bool) -> UntilStep:
        """Let the program run until the optimizer's step, and give ``stepped`` the graph that was captured last."""
        return UntilStep(self._recorder.exchanged, self._graph, stepped, sends=sends)

    def modules(self, frame: FrameType) -> Modules:
        """Return all that ran, with their parameters and names."""
        return self._recorder.modules(_find_owner(filter(has_parameters, self._recorder.called), frame))

    def places(self, frame: FrameType) -> Layers:
        """Return the line that ran each module for the first time, and how often which squashing function ran."""
        paths, lines = self.modules(frame).paths, dict[str, Place]()
        for step in self._recorder.operations:
            path = path_of(step.call, paths) if step.call is not None and step.place is not None else None
            if path is not None and step.place is not None:
                lines.setdefault(path, step.place.caller or step.place)
        ran = [(plain_name(step.func), step.place) for step in self._recorder.operations]
        squashing = Counter(name for name, _ in ran if name in _SQUASHING)
        places = Counter((name, place.caller or place) for name, place in ran if name in _SQUASHING and place)
        # The last of a name stays, which is the most common one.
        return Layers(lines, squashing, {name: place for (name, place), _ in reversed(places.most_common())})

    def explained(self, outputs: object, frame: FrameType | None = None) -> Explanation:
        """Explain what a call starts from, with what steps behind it."""
        recorder = self._recorder
        optimizers = self._optimizers.of_backward()
        # Of what did nothing for this loss, it may have been meant of what an optimizer has, and where there is one, of
        # what ran since the last backward.
        anew = recorder.called_anew() if optimizers or frame is None else []
        meant = [*anew, *_find_trained(optimizers, recorder.called)]
        parts = recorder.called
        with suppress(CaptureError):
            parts = recorder.forget_others(outputs, but=meant)
        owner = _find_owner(filter(has_parameters, parts), frame)
        params, values = None if owner is not None or parts else leaves_around(frame), self._request.values
        found = recorder.explain(outputs, model=owner, params=params, optimizer=optimizers or None, values=values)
        place = self._optimizers.place_of(optimizers[0]) if optimizers else None
        causes = (with_place(each, place) if each.kind in _OF_OPTIMIZERS else each for each in found.causes)
        return replace(found, causes=tuple(causes))

    def explained_failure(self, error: BaseException) -> Explanation | None:
        """Explain what an operation raised before the backward was reached; nothing if none did."""
        recorder = self._recorder
        if not self._request.flow or not recorder.has_failed:
            return None
        frame = next(reversed([frame for frame, _ in walk_tb(error.__traceback__)]), None)
        with suppress(CaptureError):
            return recorder.explain(error, model=_find_owner(recorder.called, frame))
        return None


def _is_of_exchange(error: BaseException) -> bool:
    """Return whether an operation that communicates raised an error, or the engine, which says no more of it."""
    modules = [module_of(frame) for frame, _ in walk_tb(error.__traceback__)]
    # A mode runs each operation from code of its own.
    last = next((name for name in reversed(modules) if not name.startswith(("gradir.", private.OPERATIONS))), "")
    is_refusal = any(part in str(error) for part in private.REFUSALS)
    return isinstance(error, RuntimeError) and not is_refusal and last.startswith((*private.WAITING, "torch.autograd"))


def _find_trained(optimizers: Sequence[Optimizer], modules: Iterable[nn.Module]) -> Iterator[nn.Module]:
    held = {id(tensor) for optimizer in optimizers for tensor in parameters_of(optimizer)}
    for module in modules:
        if any(id(tensor) in held for part in modules_in(module) for tensor in private.own_parameters(part).values()):
            yield module


def _find_owner(parts: Iterable[nn.Module], frame: FrameType | None) -> nn.Module | None:
    """Return the module around a call that has all these parts, which a program may call by themselves."""
    wanted = {*map(id, parts)}
    return next((each for each in _modules_around(frame) if wanted and wanted <= {*map(id, modules_in(each))}), None)


def _modules_around(frame: FrameType | None) -> Iterator[nn.Module]:
    for each in frames_from(frame):
        known = each.f_locals
        arguments = each.f_code.co_varnames[: each.f_code.co_argcount]
        owner = known.get(arguments[0]) if arguments else None
        for value in (*known.values(), *private.fields_of(owner).values()):
            # By its type: to be asked what it is, an object may load what it stands for.
            if issubclass(type(value), nn.Module):
                yield value


def leaves_around(frame: FrameType | None) -> dict[str, torch.Tensor]:
    """Return the leaves that require grad in the variables of a call and those around it, the inner ones first."""
    found: dict[str, torch.Tensor] = {}
    for name, value in (variable for each in frames_from(frame) for variable in each.f_locals.items()):
        if issubclass(type(value), torch.Tensor) and value.is_leaf and value.requires_grad:
            found.setdefault(name, value)
    return found


# Part of what the backward goes through may be as old as so many backwards before it.
_NOTED: Final = 10


class RecordingProgram:
    """A program whose beginning, or what comes before one of its backwards, is recorded."""

    _recording: Recording | None = None

    def explained_failure(self, error: BaseException) -> Explanation | None:
        """Explain what an operation raised while it was recorded; nothing if none did."""
        return None if self._recording is None else self._recording.explained_failure(error)

    def stop_recording(self) -> None:
        """Record no more, if anything is recorded."""
        recording, self._recording = self._recording, None
        if recording is not None:
            recording.leave()


class Running(RecordingProgram):
    """Counts the calls of backward of a program, and hands one of them to be captured or explained."""

    def __init__(self, request: CaptureRequest, reached: Reached) -> None:
        self.calls = 0
        self._request, self._step, self._reached = request, request.step, reached
        self._backwards = Backwards(self)
        self._optimizers = Optimizers()
        self._scaling = Scaling()
        self._raised: BaseException | None = None
        self._until: UntilStep | None = None
        self.is_piped = False
        """Whether a schedule's backward was counted, whose other microbatches belong to the same step."""

    def __enter__(self) -> Running:
        self._backwards.__enter__()
        self._optimizers.__enter__()
        self._optimizers.callback(register_optimizer_step_pre_hook(self._before_step).remove)
        if self._request.flow:
            self._scaling.__enter__()
        self._record_in_time()
        return self

    def __exit__(self, *_: object) -> None:
        if self._until is not None:
            self._until.close()
        self._close()
        self.stop_recording()

    def on_backward_begin(self, tensors: object, frame: FrameType) -> bool:
        """Count a call, and hand it on if it is the one; return whether it ran already."""
        if self._raised is not None:
            raise self._raised
        if self.is_piped:
            return False
        if self._until is not None:
            self._until.end()
        self.is_piped = stages_around(frame) is not None
        self.calls += 1
        if self.calls != self._step:
            return False
        try:
            if self._reached(_Call(self, tensors, frame)):
                self._step += 1
        except BaseException as error:
            self._raised = error
            raise
        return self._until is not None and not self._until.sends

    def on_backward_failing(self, tensors: object, frame: FrameType) -> None:
        """Explain what has no graph; torch alone knows what else to say of it."""
        if self._request.flow and self.calls + 1 == self._step:
            self.on_backward_begin(tensors, frame)

    def on_backward_end(self, tensors: object, *, has_ended: bool) -> None:  # noqa: ARG002
        """Begin or end to record."""
        if self._until is None and not self.is_piped:
            self._begin_anew(has_ended=has_ended)

    def _before_step(self, *_: object) -> None:
        if self.is_piped and self._until is None:
            self.is_piped = False
            self._begin_anew(has_ended=True)

    def _begin_anew(self, *, has_ended: bool) -> None:
        if self._recording is not None:
            self._recording.forget_anew(self._step - self.calls, has_ended=has_ended)
        self._record_in_time()

    @property
    def waiting(self) -> int | None:
        """How many operations ran, where the program waits for other processes."""
        return None if self._recording is None else self._recording.waiting

    def stopped(self, why: str, error: BaseException | None = None) -> Graph | None:
        """Return a graph without nodes, with what was exchanged since the last backward."""
        return None if self._recording is None else self._recording.stopped(why, error)

    def explained(self, outputs: object, frame: FrameType | None = None) -> Explanation:
        """Explain what the program has made, as if it called backward of it."""
        is_scaled = self._scaling.excuses(outputs, self._scaling.unscaled(outputs))
        found = self._noted().explained(outputs, frame)
        causes = (replace(each, level="info") if is_scaled and may_be_scale(each) else each for each in found.causes)
        return replace(found, causes=tuple(causes))

    def captured(self, tensors: object, frame: FrameType) -> Graph:
        """Capture the graph of a call."""
        return self._noted().captured(tensors, frame, is_piped=self.is_piped)

    def finished(self) -> Graph | None:
        """Return what was captured, with what was exchanged until the program ended, if no step came."""
        return None if self._until is None or self._until.is_over else self._until.graph

    def go_on(self, stepped: Callable[[Graph], None]) -> bool:
        """Let the program run on without its backward, up to the optimizer's step."""
        if self._recording is None or not (self._request.collectives or self.is_piped):
            return False
        self._until = self._recording.until_step(stepped, sends=self.is_piped)
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
        left = self._step - self.calls
        if left <= 0 and self._raised is None:
            self._close()
            self.stop_recording()
        elif left <= _NOTED and self._recording is None:
            self._recording = Recording(replace(self._request, step=left), self._optimizers)


class _Call:
    """One call of backward, which has not run yet; see `gradir.protocols.ReachedBackward`."""

    def __init__(self, running: Running, tensors: object, frame: FrameType) -> None:
        self._running, self._tensors, self._frame = running, tensors, frame

    @property
    def loss(self) -> float | None:
        return number_of(self._tensors)

    @property
    def is_piped(self) -> bool:
        return self._running.is_piped

    def capture(self) -> Graph:
        return self._running.captured(self._tensors, self._frame)

    def go_on(self, stepped: Callable[[Graph], None]) -> bool:
        return self._running.go_on(stepped)

    def explain(self) -> Explanation:
        return self._running.explained(self._tensors, self._frame)
