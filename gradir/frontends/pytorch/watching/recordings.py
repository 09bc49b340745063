"""Record a running program before a call of backward, to capture or explain the call."""

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
from gradir.explanations.model import Cause, Explanation
from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.explaining.naming import add_place
from gradir.frontends.pytorch.reading.members import has_parameters, modules_in
from gradir.frontends.pytorch.reading.tensors import Modules, read_scalar
from gradir.frontends.pytorch.recorder import Recorder
from gradir.frontends.pytorch.recording.exchange import find_stages, other_outputs
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
from gradir.protocols import BackwardCallback
from gradir.request import CaptureRequest

# These causes are at the line that makes the optimizer.
_OPTIMIZER_CAUSES: Final = frozenset({"moves_nothing", "not_in_optimizer", "not_registered", "replaced"})
# These functions may have a zero or small slope.
_SQUASHING: Final = frozenset({"hardtanh", "relu", "sigmoid", "softmax", "softsign", "tanh"})


class Layers(NamedTuple):
    """The line that runs each module, how often each squashing function ran, and its most frequent line."""

    lines: Mapping[str, Place]
    squashing: Mapping[str, int]
    squashed_at: Mapping[str, Place]


class Recording:
    """A recording of a program, which may begin inside contexts of the program."""

    def __init__(self, request: CaptureRequest, optimizers: Optimizers) -> None:
        self._request, self._optimizers = request, optimizers
        self._recorder = Recorder(request)
        self._graph = Graph({})
        modes = private.function_modes()
        default_device = getattr(private.default_device, "device_context", None)
        # The recorder's modes go below those of the program, which pops the topmost mode as its own.
        set_modes(())
        self._recorder.__enter__()
        has_default = modes[:1] == [default_device]
        set_modes((*modes[:has_default], *private.function_modes(), *modes[has_default:]))

    def leave(self) -> None:
        """Stop the recording."""
        self._recorder.leave(sys.exc_info()[1])

    def start_step(self, remaining: int = 0, *, has_ended: bool = True) -> None:
        """Record the end of a backward pass, with this number of calls up to the captured one."""
        self._recorder.take_new_modules()
        # The collectives of a backward pass that raised belong to the failed step.
        if self._request.collectives and has_ended:
            self._recorder.exchanged.begin(is_dry=self._request.dry and remaining == 1)

    @property
    def waiting(self) -> int | None:
        """The number of operations so far, if the program waits for other processes."""
        return self._recorder.exchanged.waiting if self._request.collectives else None

    def capture_stopped(self, why: str, error: BaseException | None) -> Graph | None:
        """Return a graph without nodes, with the collectives since the last backward pass."""
        if not self._request.collectives:
            return None
        if error is not None and not _is_of_exchange(error):
            why = "raises"
        thread = sys._current_frames().get(threading.main_thread().ident or 0)
        return self._recorder.exchanged.capture_stopped(why, self.modules(thread))

    @property
    def called(self) -> Sequence[nn.Module]:
        """The modules that were called from outside any other module."""
        return self._recorder.called

    def capture(self, tensors: object, frame: FrameType, *, is_piped: bool) -> Graph:
        """Capture the graph of a call, with its collectives if the request includes them.

        In a pipeline's schedule, the graph has the first microbatch of each stage, and the backward pass is real.
        """
        if is_piped:
            several = tensors if isinstance(tensors, (tuple, list)) else (tensors,)
            tensors = (*several, *other_outputs(frame))
        # The graph includes modules without effect on the loss if the optimizer of this backward pass has them.
        trained = _find_trained(self._optimizers.find_for_backward(), self._recorder.called)
        parts = filter(has_parameters, self._recorder.forget_others(tensors, but=trained))
        live = self._recorder.live_capture(tensors, model=_find_owner(parts, frame))
        if self._request.collectives and not is_piped:
            live = self._recorder.exchanged.with_dry_backward(live)
        self._graph = live.graph
        return live.graph

    def run_to_step(self, stepped: Callable[[Graph], None], *, sends: bool) -> UntilStep:
        """Let the program run until the optimizer's step, and pass the captured graph to ``stepped``."""
        return UntilStep(self._recorder.exchanged, self._graph, stepped, sends=sends)

    def modules(self, frame: FrameType | None) -> Modules:
        """Return all modules that ran, with their parameters and names."""
        return self._recorder.modules(_find_owner(filter(has_parameters, self._recorder.called), frame))

    def layers(self, frame: FrameType) -> Layers:
        """Return the first line of each module, and the squashing functions that ran."""
        paths, lines = self.modules(frame).paths, dict[str, Place]()
        for step in self._recorder.operations:
            path = path_of(step.call, paths) if step.call is not None and step.place is not None else None
            if path is not None and step.place is not None:
                lines.setdefault(path, step.place.caller or step.place)
        ran = [(plain_name(step.func), step.place) for step in self._recorder.operations]
        squashing = Counter(name for name, _ in ran if name in _SQUASHING)
        places = Counter((name, place.caller or place) for name, place in ran if name in _SQUASHING and place)
        # Reversed, so that the most common line of each name wins.
        return Layers(lines, squashing, {name: place for (name, place), _ in reversed(places.most_common())})

    def explain(self, outputs: object, frame: FrameType | None = None) -> Explanation:
        """Explain the roots of a call, with the optimizers of its gradients."""
        recorder = self._recorder
        optimizers = self._optimizers.find_for_backward()
        # Modules without effect on this loss are included if an optimizer has them. If there is one, modules that ran
        # since the last backward pass are included too.
        recent = recorder.take_new_modules() if optimizers or frame is None else []
        included = [*recent, *_find_trained(optimizers, recorder.called)]
        parts = recorder.called
        with suppress(CaptureError):
            parts = recorder.forget_others(outputs, but=included)
        owner = _find_owner(filter(has_parameters, parts), frame)
        params, values = None if owner is not None or parts else leaves_around(frame), self._request.values
        found = recorder.explain(outputs, model=owner, params=params, optimizer=optimizers or None, values=values)
        place = self._optimizers.place_of(optimizers[0]) if optimizers else None
        causes = (add_place(each, place) if each.kind in _OPTIMIZER_CAUSES else each for each in found.causes)
        return replace(found, causes=tuple(causes))

    def add_cleared(
        self, found: Explanation, frame: FrameType, optimizer: Optimizer, place: Place
    ) -> Explanation | None:
        """Return an explanation with the gradients that a place cleared before a step, if the step finds no others."""
        trained = parameters_of(optimizer)
        if any(tensor.grad is not None and bool(tensor.grad.any()) for tensor in trained):
            return None
        owned = {name: entry.tensor for entry in self.modules(frame).owned for name in entry.names}
        tensors, keys = leaves_around(frame) | owned, set(map(id, trained))
        reached = (name for name, status in found.statuses.items() if status == "reached" and name in tensors)
        names = tuple(name for name in reached if id(tensors[name]) in keys)
        cause = add_place(Cause("cleared", "error", names=names), place)
        statuses = {**found.statuses, **dict.fromkeys(names, "cleared")}
        return replace(found, statuses=statuses, causes=(*found.causes, cause)) if names else None

    def explain_failure(self, error: BaseException) -> Explanation | None:
        """Explain the error of an operation before the backward pass, or return ``None`` if no operation raised it."""
        recorder = self._recorder
        if not self._request.flow or not recorder.has_failed:
            return None
        frame = next(reversed([frame for frame, _ in walk_tb(error.__traceback__)]), None)
        with suppress(CaptureError):
            return recorder.explain(error, model=_find_owner(recorder.called, frame))
        return None


def _is_of_exchange(error: BaseException) -> bool:
    """Return whether a collective raised an error, or the autograd engine, which does not name the operation."""
    modules = [module_of(frame) for frame, _ in walk_tb(error.__traceback__)]
    # Skip the code of modes, which run each operation.
    last = next((name for name in reversed(modules) if not name.startswith(("gradir.", private.OPERATIONS))), "")
    is_refusal = any(part in str(error) for part in private.REFUSALS)
    return isinstance(error, RuntimeError) and not is_refusal and last.startswith((*private.WAITING, "torch.autograd"))


def _find_trained(optimizers: Sequence[Optimizer], modules: Iterable[nn.Module]) -> Iterator[nn.Module]:
    trained = {id(tensor) for optimizer in optimizers for tensor in parameters_of(optimizer)}
    for module in modules:
        if any(id(each) in trained for part in modules_in(module) for each in private.own_parameters(part).values()):
            yield module


def _find_owner(parts: Iterable[nn.Module], frame: FrameType | None) -> nn.Module | None:
    """Return a module in the variables around a call that has all these parts."""
    wanted = {*map(id, parts)}
    return next((each for each in _modules_around(frame) if wanted and wanted <= {*map(id, modules_in(each))}), None)


def _modules_around(frame: FrameType | None) -> Iterator[nn.Module]:
    for each in frames_from(frame):
        variables = each.f_locals
        arguments = each.f_code.co_varnames[: each.f_code.co_argcount]
        owner = variables.get(arguments[0]) if arguments else None
        for value in (*variables.values(), *private.fields_of(owner).values()):
            # By type, since `isinstance` makes a lazy proxy load its object.
            if issubclass(type(value), nn.Module):
                yield value


def leaves_around(frame: FrameType | None) -> dict[str, torch.Tensor]:
    """Return the leaves that require grad in the variables of running functions, inner ones first."""
    found: dict[str, torch.Tensor] = {}
    for name, value in (variable for each in frames_from(frame) for variable in each.f_locals.items()):
        if issubclass(type(value), torch.Tensor) and value.is_leaf and value.requires_grad:
            found.setdefault(name, value)
    return found


# Operations of the captured graph may run this many backward passes earlier.
_RECORDED: Final = 10


class RecordingProgram:
    """A program with a recording of its beginning, or of the time before one of its backward passes."""

    _recording: Recording | None = None

    def explain_failure(self, error: BaseException) -> Explanation | None:
        """Explain the error of a recorded operation, or return ``None`` if no operation raised it."""
        return None if self._recording is None else self._recording.explain_failure(error)

    def counts_gradients(self, outputs: object, leaves: Sequence[torch.Tensor], frame: FrameType) -> bool | None:  # noqa: ARG002
        """Return whether a call of ``torch.autograd.grad`` is a backward, or None."""
        return False

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
        self._optimizers = Optimizers()
        self._scaling = Scaling()
        self._raised: BaseException | None = None
        self._until: UntilStep | None = None
        # The last call of `torch.autograd.grad`, until an optimizer steps with its gradients.
        self._undecided: tuple[object, Sequence[torch.Tensor], FrameType] | None = None
        self._explained: tuple[Explanation, FrameType] | None = None
        self.is_piped = False
        """Whether the last counted call is a schedule's, so that its other microbatches do not count."""

    def __enter__(self) -> Running:
        self._backwards.__enter__()
        self._optimizers.__enter__()
        self._optimizers.callback(register_optimizer_step_pre_hook(self._on_step_begin).remove)
        if self._request.flow:
            self._scaling.__enter__()
        self._update_recording()
        return self

    def __exit__(self, *_: object) -> None:
        if self._until is not None:
            self._until.close()
        self._close()
        self.stop_recording()

    def on_backward_begin(self, tensors: object, frame: FrameType) -> bool:
        """Count a call, and capture or explain the requested one; return whether to skip its backward pass."""
        if self._raised is not None:
            raise self._raised
        self._undecided = self._explained = None
        if self.is_piped:
            return False
        if self._until is not None:
            self._until.end()
        self.is_piped = find_stages(frame) is not None
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
        self._optimizers.forget_changes()
        if self._until is None and not self.is_piped:
            self._start_step(has_ended=has_ended)

    def _on_step_begin(self, optimizer: Optimizer, *_: object) -> None:
        if self.is_piped and self._until is None:
            self.is_piped = False
            self._start_step(has_ended=True)
        trained = {id(tensor) for tensor in parameters_of(optimizer) if tensor.grad is not None}
        if self._undecided is not None:
            outputs, leaves, frame = self._undecided
            if not trained.isdisjoint(map(id, leaves)):
                self.on_backward_begin(outputs, frame)
                self.on_backward_end(outputs, has_ended=True)
        place = self._optimizers.clearing_place(optimizer)
        if self._explained is not None and place is not None:
            found = self.recording.add_cleared(*self._explained, optimizer, place)
            if found is not None:
                self._reached(_Call(self, None, self._explained[1], found))
            self._explained = None

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
        found = replace(found, causes=tuple(causes))
        self._explained = None if frame is None else (found, frame)
        return found

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
        if remaining <= 0 and self._raised is None:
            self._close()
            self.stop_recording()
        elif remaining <= _RECORDED and self._recording is None:
            self._recording = Recording(replace(self._request, step=remaining), self._optimizers)


class _Call:
    """A call of backward before it runs; see `gradir.protocols.ReachedBackward`."""

    def __init__(
        self, running: Running, tensors: object, frame: FrameType, explained: Explanation | None = None
    ) -> None:
        self._running, self._tensors, self._frame, self._explained = running, tensors, frame, explained

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
        return self._explained or self._running.explain(self._tensors, self._frame)
