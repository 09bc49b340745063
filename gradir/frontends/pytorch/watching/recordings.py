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
from torch import distributed, nn
from torch.optim import Optimizer

from gradir.errors import CaptureError
from gradir.explanations.model import Explanation
from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.explaining.naming import add_place
from gradir.frontends.pytorch.reading.members import has_parameters, modules_in
from gradir.frontends.pytorch.reading.tensors import Modules
from gradir.frontends.pytorch.recorder import Recorder
from gradir.frontends.pytorch.recording.exchange import other_outputs
from gradir.frontends.pytorch.recording.modes import set_modes
from gradir.frontends.pytorch.recording.places import Place
from gradir.frontends.pytorch.recording.rank import UntilStep
from gradir.frontends.pytorch.recording.steps import plain_name
from gradir.frontends.pytorch.recording.timelines import path_of
from gradir.frontends.pytorch.watching.backwards import module_of
from gradir.frontends.pytorch.watching.lacking import Lacking
from gradir.frontends.pytorch.watching.optimizers import Optimizers, Patches
from gradir.frontends.pytorch.watching.parameters import parameters_of
from gradir.frontends.walks import frames_from
from gradir.ir import Graph
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
        # The graph without nodes of the last end of all communication.
        self._ended: Graph | None = None
        self._patches = Patches()
        self._owner: nn.Module | None = None
        if request.collectives and distributed.is_available():
            self._patches.patch(distributed, "destroy_process_group", self._wrap_destroy)
        modes = private.function_modes()
        default_device = getattr(private.default_device, "device_context", None)
        # The recorder's modes go below those of the program, which pops the topmost mode as its own.
        set_modes(())
        self._recorder.__enter__()
        has_default = modes[:1] == [default_device]
        set_modes((*modes[:has_default], *private.function_modes(), *modes[has_default:]))

    def leave(self) -> None:
        """Stop the recording."""
        self._patches.close()
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

    @property
    def sends_by_hand(self) -> bool:
        """Whether the step is one of a pipeline without a schedule, whose other stages need its messages."""
        return self._request.collectives and not self._request.dry and self._recorder.exchanged.sends_by_hand

    def capture_stopped(self, why: str, error: BaseException | None) -> Graph | None:
        """Return a graph without nodes, with the collectives since the last backward pass."""
        if not self._request.collectives:
            return None
        if error is not None and not _is_of_exchange(error):
            why = "raises"
        thread = sys._current_frames().get(threading.main_thread().ident or 0)
        graph = self._recorder.exchanged.capture_stopped(why, self.modules(thread))
        return self._ended if graph is None and why == "ends" else graph

    def _wrap_destroy(self, original: Callable[..., None]) -> Callable[..., None]:
        def wrapper(group: object = None) -> None:
            if group in (None, distributed.group.WORLD):
                self._ended = self.capture_stopped("ends", None)
            original(group)

        return wrapper

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
        owner = self._owner = _find_owner(filter(has_parameters, parts), frame)
        params, values = None if owner is not None or parts else leaves_around(frame), self._request.values
        found = recorder.explain(outputs, model=owner, params=params, optimizer=optimizers or None, values=values)
        place = self._optimizers.place_of(optimizers[0]) if optimizers else None
        causes = (add_place(each, place) if each.kind in _OPTIMIZER_CAUSES else each for each in found.causes)
        return replace(found, causes=tuple(causes))

    def find_lacking(self, found: Explanation) -> Lacking:
        """Return the parameters without a gradient of the last explanation."""
        owned = self._recorder.modules(self._owner).owned
        tensors = {name: entry.tensor for entry in owned for name in entry.names}
        return Lacking(found, tensors, self._optimizers.find_for_backward())

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
