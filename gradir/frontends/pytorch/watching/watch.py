"""Watch a training from step to step, which it leaves as it is."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from types import FrameType
from typing import Any, Final

import torch
from torch.optim import Optimizer

from gradir.errors import CaptureError, warn
from gradir.explanations.model import Cause
from gradir.frontends.pytorch.explaining.arrivals import BROKEN
from gradir.frontends.pytorch.explaining.naming import with_place
from gradir.frontends.pytorch.reading.tensors import modules_below, modules_of, number_of
from gradir.frontends.pytorch.recording.places import Place, Places
from gradir.frontends.pytorch.watching.backwards import Backwards
from gradir.frontends.pytorch.watching.holders import Variables, loop_counters
from gradir.frontends.pytorch.watching.kept import GraphCounter
from gradir.frontends.pytorch.watching.movements import Movements, Norms
from gradir.frontends.pytorch.watching.optimizers import Optimizers, Scaling, may_be_scale
from gradir.frontends.pytorch.watching.parameters import ByHand, Movement, Parameters, Sample, memory_of
from gradir.frontends.pytorch.watching.ranks import Replicas, world_size
from gradir.frontends.pytorch.watching.recordings import Recording, RecordingProgram, leaves_around
from gradir.frontends.pytorch.watching.tape import Tape, compute_again
from gradir.request import CaptureRequest
from gradir.watches.model import Finding, Modules, Step, number

_DEBUG: Final = "GRADIR_DEBUG"
# How many backwards to record at most until one of each optimizer was explained.
_EXPLAINED: Final = 4
# The step at which to look for parameters with a gradient that no optimizer has.
_LEFT_OUT_AT: Final = 3
# So many equal losses in a row are a finding.
_CONSTANT: Final = 20
_MOST_LOSSES: Final = 200
# How many times the first loss a loss is that exploded.
_GROWTH: Final = 1e3
# How many steps in a row a loss must grow before it counts as exploded.
_GROWING: Final = 3
# Before this step it is still open who keeps how much.
_TOLD_AT: Final = 64
# From this step on no backward can be expected for a graph that has had none.
_WAITED_UNTIL: Final = 1024
_BROKEN: Final = BROKEN | {"loss_undefined"}


def _guard(look: Callable[..., None]) -> Callable[..., None]:
    """Have a fault of gradir's leave the training alone: it is told once, and nothing is looked at any more."""

    @wraps(look)
    def guarded(self: Watching, *args: Any, **kwargs: Any) -> None:
        if self.failed:
            return
        try:
            with self.tape.aside():
                look(self, *args, **kwargs)
        except Exception as error:
            if os.environ.get(_DEBUG):
                raise
            self.failed = True
            warn(f"the training is not watched any more: {type(error).__name__}: {error}")

    return guarded


class Watching(RecordingProgram):
    """Watches the program inside; ``told`` gets each record, and may raise to end it. See `gradir.watch`."""

    def __init__(
        self,
        told: Callable[[Modules | Step | Finding], None],
        *,
        model: object = None,
        optimizers: Sequence[Optimizer] = (),
    ) -> None:
        self.steps = self.backwards = 0
        self.failed = self._is_lost = self._is_after_step = self._has_ended = False
        self._told = told
        self.tape = Tape()
        self._optimizers, self._calls = Optimizers(self, self.tape.aside), Backwards(self)
        self._parameters = Parameters()
        self._movements = Movements(self._parameters, self._optimizers)
        self._kept, self._replicas, self._scaling = GraphCounter(), Replicas(), Scaling(self._find)
        self._variables, self._places = Variables(), Places()
        self._place: Place | None = None
        self._explained: set[int] = set()
        self._samples: dict[int, Sample | None] = {}
        self._paths: tuple[str, ...] = ()
        self._loss: Any = None
        self._norms: dict[int, Norms] = {}
        self._losses: list[float] = []
        self._growing: list[Finding] = []
        self._seen: set[tuple[str, tuple[str, ...], str]] = set()
        self._by_hand: ByHand | None = None
        self._loops: Mapping[str, int] = {}
        for optimizer in optimizers:
            self._optimizers.add(optimizer)
        below = modules_below(modules_of(model))
        self._roots = [*below.roots.values()]
        self._parameters.name(below.owned)

    def __enter__(self) -> Watching:
        self._optimizers.__enter__()
        self._calls.__enter__()
        self._scaling.__enter__()
        # A script can be run once more, and the other ranks would wait for one that computes by itself.
        if (self._roots or self._optimizers.alive) and world_size() == 1:
            self.tape.__enter__()
            self.tape.note_calls(self._roots)
        self._recording = Recording(CaptureRequest(flow=True), self._optimizers)
        return self

    def __exit__(self, *_: object) -> None:
        self._calls.close()
        self._optimizers.close()
        self._scaling.close()
        self.tape.close()
        self.stop_recording()

    @_guard
    def on_backward_begin(self, tensors: object, frame: FrameType) -> None:
        """Note where a step of a training starts from."""
        place = self._places(frame)
        self._movements.on_backward_begin(place)
        self._step_by_hand(tensors, frame)
        self._replicas.on_backward_begin(frame)
        self.backwards += 1
        self._place = place
        self._loss = self._scaling.unscaled(tensors)
        if self._optimizers.stepping is not None:
            # What it computed before is of other parameters, as in each iteration of LBFGS.
            self.tape.forget()
        self.tape.keep(tensors)
        if self._recording is not None:
            self._explain(tensors, frame)

    # It explains what has no graph, too.
    on_backward_failing = on_backward_begin

    @_guard
    def on_backward_end(self, tensors: object, *, has_ended: bool) -> None:  # noqa: ARG002 (as a listener has it)
        """Note that the gradients are there."""
        if self._recording is not None:
            self._recording.forget_anew()
        self._movements.on_backward_end()
        if (value := number_of(self._loss)) is not None and not math.isfinite(value):
            self._tell_lost(value)
        if (optimizer := self._optimizers.stepping or self._by_hand) is not None:
            self._look_at_gradients(optimizer)
        if self._by_hand is not None:
            # The step is seen at the next backward, when the loops have gone on.
            self._loops = loop_counters(self._variables.note(sys._getframe(1)))
        # A program may never come to a step.
        if not self.steps and self._kept.note(self.backwards) is not None:
            self._look_at_memory(sys._getframe(1))

    @_guard
    def before_step(self, optimizer: Optimizer) -> None:
        """Take a sample of what the step is going to move, which is not yet spoilt by gradients that are not finite."""
        self._look_at_gradients(optimizer)
        sample = self._samples[id(optimizer)]
        self._replicas.before_first(id(optimizer), None if sample is None else sample.numbers)

    @_guard
    def after_step(self, optimizer: Optimizer) -> None:
        """Look at what a step did."""
        if not self.steps:
            self._kept = GraphCounter()
        self.steps += 1
        self._is_after_step = True
        self._scaling.stepped()
        self.tape.forget()
        moved = self._parameters.moved(optimizer, self._samples.pop(id(optimizer), None))
        if optimizer is self._by_hand:
            # It may be meant that others stay as they are.
            moved = [each for each in moved if each[1].moved]
        names = [self._parameters.name_of(optimizer, tensor) for tensor, _ in moved]
        step = self._noted(names, moved)
        self._told(step)
        parted = self._replicas.after_step(id(optimizer), self.steps, lambda: self._parameters.numbers(optimizer))
        if parted is not None:
            self._find(with_place(parted, self._place))
        self._look_at_numbers(optimizer, step, dict(zip(names, (movement for _, movement in moved), strict=True)))
        for cause in self._movements.after_step(optimizer, dict(zip(names, moved, strict=True))):
            # The first step may have told it of what gets 0, with the operation.
            if cause.kind != "vanished" or not self._has_told("vanished"):
                self._find(cause)
        norms = {path: float(norm) for path, norm in zip(self._paths, step.norms, strict=False) if norm is not None}
        if not self._has_told("vanished"):
            for cause in self._norms.setdefault(id(optimizer), Norms()).after_step(norms):
                self._find(cause)
        self._look_for_left_out()
        frame: FrameType | None = sys._getframe(1)
        self._variables.note(frame)
        if step.kept is not None:
            self._look_at_memory(frame)
        self._is_after_step = False

    @_guard
    def ended(self) -> None:
        """Judge what only the end of a training shows."""
        self._step_by_hand(None, None)
        self._has_ended = True
        left_out = list(self._scaling.at_end())
        backwards = 0 if left_out or self._scaling.leaves_out else self.backwards
        for cause in (*left_out, *self._movements.at_end(backwards)):
            self._find(cause)
        if self.steps or self.backwards:
            self._kept.count(self.steps or self.backwards)
        if self._growing or self._kept.trend == "grows":
            self._tell_kept(None)

    def _step_by_hand(self, tensors: object, frame: FrameType | None) -> None:
        """Take what became of parameters since the last backward for a step, in a program without an optimizer."""
        if self._is_after_step:
            # Its last step has ended the program.
            return
        if any(self._optimizers.made):
            self._optimizers.assume(None)
            self._by_hand = None
            return
        if self._by_hand is None:
            self._by_hand = ByHand()
            self._optimizers.assume(self._by_hand)
        for name, leaf in reversed(leaves_around(frame).items()):
            if not isinstance(leaf, torch.nn.Parameter):
                self._parameters.names[id(leaf)] = name
        sample = self._samples.get(id(self._by_hand))
        may_be_moved = tensors is None or self._by_hand.take(tensors)
        if may_be_moved and any(movement.moved for _, movement in self._parameters.moved(self._by_hand, sample)):
            self.after_step(self._by_hand)
            if self.steps == 1:
                self._find(with_place(Cause("by_hand", "info"), self._place))
        elif not may_be_moved:
            self._samples.pop(id(self._by_hand), None)

    def _explain(self, tensors: object, frame: FrameType) -> None:
        recording, optimizers = self._recording, self._optimizers.of_backward()
        if recording is None:
            return
        self._parameters.name(recording.modules(frame).owned)
        self._movements.layers = self._movements.layers or recording.places(frame)
        self.tape.note_calls(recording.called)
        try:
            found = recording.explained(tensors, frame)
        except CaptureError:
            return
        finally:
            self._explained.update(map(id, optimizers))
            if self._explained.issuperset(map(id, self._optimizers.alive)) or self.backwards >= _EXPLAINED:
                self.stop_recording()
        self._movements.excused |= {name for name, status in found.statuses.items() if status == "zero"}
        is_scaled = self._scaling.excuses(tensors, self._loss)
        for cause in found.causes:
            if cause.level == "error" and not (is_scaled and may_be_scale(cause)):
                self._find(cause)

    def _noted(self, names: Sequence[str], moved: Sequence[tuple[torch.Tensor, Movement]]) -> Step:
        norms: dict[str, float] = {}
        updates: dict[str, tuple[float, float]] = {}
        for name, (tensor, movement) in zip(names, moved, strict=True):
            path = self._parameters.scopes.get(id(tensor), name)
            update, length = updates.get(path, (0.0, 0.0))
            updates[path] = (update + movement.update**2, length + movement.length**2)
            if movement.norm is not None:
                norms[path] = norms.get(path, 0.0) + movement.norm**2
        new = updates.keys() - set(self._paths)
        if new:
            self._paths += tuple(path for path in updates if path in new)
            self._told(Modules(self._paths))
        ratios = {path: math.sqrt(update / length) for path, (update, length) in updates.items() if length}
        loss = number_of(self._loss)
        self._loss = None
        return Step(
            self.steps,
            self.backwards,
            None if loss is None else number(loss),
            number(math.sqrt(sum(norms.values()))) if norms else None,
            memory_of([tensor for tensor, _ in moved]),
            self._kept.note(self.steps),
            _order_numbers(self._paths, {path: math.sqrt(norm) for path, norm in norms.items()}),
            _order_numbers(self._paths, ratios),
        )

    def _look_at_numbers(self, optimizer: Optimizer, step: Step, moved: Mapping[str, Movement]) -> None:
        if isinstance(step.loss, float):
            self._losses = [*self._losses[-_MOST_LOSSES:], step.loss]
            is_constant = len(self._losses) == _CONSTANT and len({*self._losses}) == 1
            if is_constant and any(each.moved and each.norm for each in moved.values()):
                cause = Cause("constant_loss", "error", detail=f"it is {step.loss:.6g} in all {_CONSTANT} steps")
                self._find(with_place(cause, self._place))
        if _is_left_out(optimizer) or self._is_lost:
            return
        broken = [name for name, each in moved.items() if each.norm is not None and not math.isfinite(each.norm)]
        if broken:
            self._find(with_place(Cause("nonfinite_grad", "error", names=tuple(broken)), self._place))
        lost = [name for name, each in moved.items() if not math.isfinite(each.length)]
        if lost and not broken:
            cause = Cause("parameter_not_finite", "error", names=tuple(lost))
            self._find(with_place(cause, self._optimizers.place_of(optimizer)))

    def _look_at_gradients(self, optimizer: Optimizer) -> None:
        """Look at the gradients that a step takes, which may call backward by itself, before they spoil parameters."""
        sample, before = self._parameters.sample(optimizer), self._samples.get(id(optimizer))
        self._samples[id(optimizer)] = sample._replace(numbers=before.numbers) if before and sample else sample
        if self.tape.losses and sample is not None and not _is_left_out(optimizer) and not sample.is_finite:
            self._find_again()

    def _find_again(self) -> bool:
        name_of = partial(self._parameters.name_among, self._optimizers.alive)
        for computed in () if self._is_lost else compute_again(self.tape, name_of):
            causes = [each for each in computed.found.causes if each.level == "error" and each.kind in _BROKEN]
            how = "found by computing the loss of this step once more"
            if computed.value != computed.before and computed.before is not None and math.isfinite(computed.before):
                how += f", which was {computed.value} and not {computed.before}"
            for cause in causes:
                self._find(cause, how)
            if causes:
                self._is_lost = True
                break
        return self._is_lost

    def _look_for_left_out(self) -> None:
        names = self._parameters.left_out(self._optimizers.alive) if self.steps == _LEFT_OUT_AT else []
        if names:
            self._find(Cause("in_no_optimizer", "info", names=tuple(names)))

    def _look_at_memory(self, frame: FrameType | None) -> None:
        """Look who keeps graphs, which takes long, and so only at a step at which they were counted."""
        trend = self._kept.trend
        if trend == "grows" and not self._growing:
            self._growing = [self._finding(cause) for cause in self._kept.causes(self._variables, frame)]
        elif trend == "stays":
            self._growing = []
        elif trend == "falls":
            # What waited for a backward has had it, as the actor's at the end of an episode.
            self._growing = [finding for finding in self._growing if finding.cause.op not in self._kept.waiting]
        if self._growing and self.steps in {_TOLD_AT, _WAITED_UNTIL}:
            self._tell_kept(frame)

    def _tell_kept(self, frame: FrameType | None) -> None:
        waited = self._kept.waiting
        now = [self._finding(cause) for cause in self._kept.causes(self._variables, frame)]
        waiting = self._kept.waiting
        if frame is None and self._growing:
            # At the end the variables of functions are gone, and with them the lines that know them by their names.
            found = {finding.cause.op: finding for finding in now}
            now = [found.get(finding.cause.op, finding) for finding in self._growing]
        # Of what waits for a backward, that may still come; at the end it has, or has not.
        left_out = waiting if frame is not None and self.steps < _WAITED_UNTIL else waited - waiting
        for finding in now or self._growing:
            if finding.cause.op not in left_out:
                self._tell(finding)

    def _tell_lost(self, value: float) -> None:
        if self._is_lost:
            return
        losses = self._losses[-_GROWING:]
        grew = [*losses, math.inf] == sorted({*losses, math.inf}) and len(losses) > 1
        if grew and self._losses[0] and abs(losses[-1]) > _GROWTH * abs(self._losses[0]):
            optimizers = self._optimizers.of_backward()
            detail = f"from {self._losses[0]:.3g} to {losses[-1]:.3g}, and then it is {number(value)}"
            place = self._optimizers.place_of(optimizers[0]) if optimizers else None
            self._find(with_place(Cause("loss_explodes", "error", detail=detail), place or self._place))
        elif not self._find_again():
            self._find(with_place(Cause("loss_not_finite", "error", detail=f"it is {number(value)}"), self._place))

    def _find(self, cause: Cause, how: str = "") -> None:
        self._tell(self._finding(cause, how))

    def _tell(self, finding: Finding) -> None:
        # Later steps find the same again, with other details.
        key = (finding.cause.kind, finding.cause.names, finding.cause.op)
        if key not in self._seen:
            self._seen.add(key)
            self._told(finding)

    def _has_told(self, kind: str) -> bool:
        return any(each == kind for each, *_ in self._seen)

    def _finding(self, cause: Cause, how: str = "") -> Finding:
        is_past = self._is_after_step and self._by_hand is not None
        loops = self._loops if is_past else loop_counters(self._variables.note(sys._getframe(1)))
        # A step that has not ended yet is the next one.
        step = self.steps if self._is_after_step or self._has_ended else self.steps + 1
        return Finding(max(step, 1), cause, how, loops)


def _is_left_out(optimizer: Optimizer) -> bool:
    return bool(float(getattr(optimizer, "found_inf", 0) or 0))


def _order_numbers(paths: Sequence[str], found: Mapping[str, float]) -> tuple[Any, ...]:
    return tuple(number(found[path]) if path in found else None for path in paths)
