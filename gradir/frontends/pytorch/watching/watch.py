"""Watch a training from step to step without changing it."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from itertools import chain
from types import FrameType
from typing import Any, Final

import torch
from msgspec.structs import replace
from torch.optim import Optimizer

from gradir.errors import CaptureError, warn
from gradir.explanations.model import Cause
from gradir.frontends.pytorch.explaining.arrivals import BROKEN
from gradir.frontends.pytorch.explaining.naming import add_place
from gradir.frontends.pytorch.reading.tensors import modules_below, modules_of, read_scalar
from gradir.frontends.pytorch.recording.places import Place, Places
from gradir.frontends.pytorch.watching.backwards import Backwards
from gradir.frontends.pytorch.watching.holders import Variables, loop_counters
from gradir.frontends.pytorch.watching.lacking import Lacking
from gradir.frontends.pytorch.watching.movements import Movements
from gradir.frontends.pytorch.watching.old_graphs import GraphCounter, GrowingGraphs
from gradir.frontends.pytorch.watching.optimizers import Optimizers, Scaling, has_skipped, may_be_scale
from gradir.frontends.pytorch.watching.parameters import ByHand, Moved, Movement, Parameters, Sample, memory_of
from gradir.frontends.pytorch.watching.programs import RecordingProgram
from gradir.frontends.pytorch.watching.ranks import Replicas, world_size
from gradir.frontends.pytorch.watching.recordings import Recording, leaves_around
from gradir.frontends.pytorch.watching.tape import Tape, compute_again
from gradir.protocols import RecordCallback
from gradir.request import CaptureRequest
from gradir.watches.model import Finding, Modules, Step, encode_number

_DEBUG: Final = "GRADIR_DEBUG"
# Maximum number of backward passes to record until gradir has explained one of each optimizer.
_EXPLAINED: Final = 4
# At this step gradir looks for parameters with a gradient in no optimizer; later ones may lack it for as many steps.
_UNUSED_AT: Final = 3
# This many equal losses in a row are a finding.
_CONSTANT: Final = 20
_MOST_LOSSES: Final = 200
# A loss beyond this multiple of the first loss has exploded if it grew in this many steps in a row.
_GROWTH: Final = 1e3
_GROWING: Final = 3
_BROKEN: Final = BROKEN | {"loss_undefined"}
# Findings about small gradients.
_SMALL: Final = frozenset({"exploding_gradient", "vanished", "vanishing"})


def _guard(method: Callable[..., None]) -> Callable[..., None]:
    """Keep an error of gradir away from the training: warn once, and watch no longer."""

    @wraps(method)
    def wrapper(self: Watching, *args: Any, **kwargs: Any) -> None:
        if self.failed:
            return
        try:
            with self.tape.pause():
                method(self, *args, **kwargs)
        except Exception as error:
            if os.environ.get(_DEBUG):
                raise
            self.failed = True
            warn(f"the training is not watched any more: {type(error).__name__}: {error}")

    return wrapper


class Watching(RecordingProgram):
    """Watches the program inside; ``callback`` gets each record, and may raise to end it. See `gradir.watch`."""

    def __init__(self, callback: RecordCallback, *, model: object, optimizers: Sequence[Optimizer]) -> None:
        self.steps = self.backwards = self._thawed = 0
        self.failed = self._is_lost = self._is_after_step = self._has_ended = False
        self._callback = callback
        self.tape = Tape()
        self._optimizers = Optimizers(self.on_step_begin, self.on_step_end, self.tape.pause)
        self._calls = Backwards(self)
        self._parameters = Parameters()
        self._movements = Movements(self._parameters, self._optimizers)
        self._replicas, self._scaling = Replicas(), Scaling(self._report)
        self._optimizers.scaling = self._scaling
        self._variables, self._places = Variables(), Places()
        self._graphs = GrowingGraphs(self._variables, self._make_finding, self._report_once)
        self._place: Place | None = None
        self._explained: set[int] = set()
        # Errors of explained backward passes that the next steps may excuse.
        self._undecided: list[tuple[Lacking, list[Cause]]] = []
        self._explained_until = _EXPLAINED
        # Parameters that no longer get a gradient, with the first step without it.
        self._ungraded: Mapping[str, int] = {}
        self._samples: dict[int, Sample | None] = {}
        self._paths: tuple[str, ...] = ()
        self._loss: Any = None
        self._losses: list[float] = []
        self._seen: set[tuple[str, tuple[str, ...], str]] = set()
        self._by_hand: ByHand | None = None
        self._loops: Mapping[str, int] = {}
        for optimizer in optimizers:
            self._optimizers.add(optimizer)
        below = modules_below(modules_of(model))
        self._roots = [*below.roots.values()]
        self._parameters.add_names(below.owned)

    def __enter__(self) -> Watching:
        for patches in (self._optimizers, self._calls, self._scaling):
            patches.__enter__()
        # No tape for a whole script, which the user can run again, nor with other ranks, which would wait for a rank
        # that computes alone.
        if (self._roots or self._optimizers.alive) and world_size() == 1:
            self.tape.__enter__()
            self.tape.record_modules(self._roots)
        self._recording = Recording(CaptureRequest(flow=True), self._optimizers)
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._calls, self._optimizers, self._scaling, self.tape):
            each.close()
        self.stop_recording()

    @_guard
    def on_backward_begin(self, tensors: object, frame: FrameType) -> None:
        """Record the start of a backward pass."""
        place = self._places(frame)
        self._movements.on_backward_begin(place)
        self._step_by_hand(tensors, frame)
        self._replicas.on_backward_begin(frame)
        self.backwards += 1
        self._place = place
        self._undecided = [each for each in self._undecided if not each[0].has_stepped]
        self._loss = self._scaling.remove_scale(tensors)
        if self._optimizers.stepping is not None:
            # Inside a step, such as an iteration of LBFGS, earlier losses belong to other values of the parameters.
            self.tape.forget()
        self.tape.add_loss(tensors)
        if self._recording is not None:
            self._explain(self._recording, tensors, frame)

    # It also explains roots without a graph.
    on_backward_failing = on_backward_begin

    @_guard
    def on_backward_end(self, tensors: object, *, has_ended: bool) -> None:  # noqa: ARG002 (as a listener has it)
        """Check the new gradients."""
        if self._recording is not None:
            self._recording.start_step()
        self._movements.on_backward_end()
        if (value := read_scalar(self._loss)) is not None and not math.isfinite(value):
            self._report_lost(value)
        if (optimizer := self._optimizers.stepping or self._by_hand) is not None:
            self._check_gradients(optimizer)
        if self._by_hand is not None:
            # gradir sees the step at the next backward pass, when the loops have continued.
            self._loops = loop_counters(self._variables.note(sys._getframe(1)))
        # A program may have no steps.
        if not self.steps and self._graphs.counter.note(self.backwards) is not None:
            self._graphs.check(sys._getframe(1), self.steps)

    @_guard
    def on_step_begin(self, optimizer: Optimizer) -> None:
        """Sample the parameters before a step, while infinite gradients have not spoiled them."""
        self._scaling.on_step_begin(sys._getframe(1))
        self._decide(optimizer)
        # Before its closure runs, a first step has no explained backward pass.
        if self._recording is not None and self._undecided:
            self._note_explained([optimizer])
        self._check_gradients(optimizer)
        sample = self._samples[id(optimizer)]
        numbers = None if sample is None else sample.numbers
        self._movements.on_step_begin(optimizer, numbers)
        self._replicas.note_first(id(optimizer), numbers)

    @_guard
    def on_step_end(self, optimizer: Optimizer) -> None:
        """Check the effects of a step."""
        if not self.steps:
            self._graphs.counter = GraphCounter()
        # The step may have run the backward itself, in a closure.
        self._decide(optimizer)
        self.steps += 1
        self._is_after_step = True
        self._scaling.note_step()
        self.tape.forget()
        moved = self._parameters.measure(optimizer, self._samples.pop(id(optimizer), None))
        if optimizer is self._by_hand:
            # The program may leave other parameters unchanged on purpose.
            moved = [each for each in moved if each[1].moved]
        pairs = {self._parameters.name_of(optimizer, each[0]): each for each in moved}
        step = self._make_step(pairs)
        self._callback(step)
        parted = self._replicas.on_step_end(id(optimizer), self.steps, lambda: self._parameters.numbers(optimizer))
        if parted is not None:
            self._report(add_place(parted, self._place))
        self._check_numbers(optimizer, step, {name: movement for name, (_, movement) in pairs.items()})
        norms = {path: float(norm) for path, norm in zip(self._paths, step.norms, strict=True) if norm is not None}
        for cause in self._movements.on_step_end(optimizer, pairs, norms):
            # The explanation of the first step may have reported zero gradients, with the operation.
            if cause.kind not in _SMALL or all(kind != "vanished" for kind, *_ in self._seen):
                self._report(cause)
        if optimizer is not self._by_hand and (ungraded := self._movements.find_ungraded(optimizer, pairs)):
            self._record_again(optimizer, ungraded)
        if self.steps == _UNUSED_AT and (unused := self._parameters.find_unused(self._optimizers.alive)):
            self._report(Cause("in_no_optimizer", "info", names=tuple(unused)))
        thawed = self._parameters.find_unused(self._optimizers.alive, thawed=True)
        self._thawed = self._thawed + 1 if thawed else 0
        if self._thawed == _UNUSED_AT:
            cause = Cause("in_no_optimizer", "error", names=tuple(thawed), detail="the program froze it before")
            self._report(add_place(cause, self._optimizers.place_of(optimizer)))
        frame: FrameType | None = sys._getframe(1)
        self._variables.note(frame)
        if step.kept is not None:
            self._graphs.check(frame, self.steps)
        self._is_after_step = False

    @_guard
    def finish(self) -> None:
        """Report the faults that are certain at the end of a training."""
        self._step_by_hand(None, None)
        self._has_ended = True
        for cause in chain(*(causes for lacking, causes in self._undecided if not lacking.has_stepped)):
            self._report(cause)
        backwards = 0 if self._scaling.skipped else self.backwards
        for cause in (*self._scaling.find_final_faults(), *self._movements.find_final_faults(backwards)):
            self._report(cause)
        self._graphs.finish(self.steps or self.backwards)

    def _step_by_hand(self, tensors: object, frame: FrameType | None) -> None:
        """Treat changes of parameters since the last backward pass as a step, in a program without an optimizer."""
        if self._is_after_step:
            # The callback of the last step has ended the program.
            return
        if any(self._optimizers.origins):
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
        is_same = tensors is None or self._by_hand.take_leaves(tensors)
        if is_same and any(movement.moved for _, movement in self._parameters.measure(self._by_hand, sample)):
            self.on_step_end(self._by_hand)
            if self.steps == 1:
                self._report(add_place(Cause("by_hand", "info"), self._place))
        elif not is_same:
            self._samples.pop(id(self._by_hand), None)

    def _explain(self, recording: Recording, tensors: object, frame: FrameType) -> None:
        optimizers = self._optimizers.find_for_backward()
        self._parameters.add_names(recording.modules(frame).owned)
        self._movements.layers = self._movements.layers or recording.layers(frame)
        self.tape.record_modules(recording.called)
        try:
            found = recording.explain(tensors, frame)
        except CaptureError:
            return
        finally:
            # If several may step with these gradients, the next steps tell which.
            is_clear = len(optimizers) == 1 or len(optimizers) < len(self._optimizers.alive)
            self._note_explained(optimizers if is_clear else [])
        self._movements.excused |= {name for name, status in found.statuses.items() if status == "zero"}
        is_scaled = self._scaling.excuses(tensors, self._loss)
        lacking = recording.find_lacking(found)
        self._undecided.append((lacking, []))
        for cause in found.causes:
            since = min((self._ungraded[name] for name in cause.names if name in self._ungraded), default=0)
            if is_scaled and may_be_scale(cause):
                continue
            if since and cause.level != "note":
                # Other inputs may give a gradient of zero again.
                is_zero = all(found.statuses.get(name) == "zero" for name in cause.names)
                how = f"without a gradient since step {since}"
                self._report(replace(cause, level="info") if is_zero else cause, how)
            elif cause.level == "error" and self._by_hand is None and lacking.is_open(cause):
                self._undecided[-1][1].append(cause)
            elif cause.level == "error":
                self._report(cause)
        if self._recording is None:
            self._ungraded = {}

    def _decide(self, optimizer: Optimizer) -> None:
        """Report the errors that a step with these gradients shows."""
        for lacking, causes in self._undecided:
            lacking.note_step(optimizer)
            for cause in [cause for cause in causes if not lacking.is_open(cause)]:
                causes.remove(cause)
                self._report(cause)

    def _note_explained(self, optimizers: Sequence[Optimizer]) -> None:
        self._explained.update(map(id, optimizers))
        if self._explained.issuperset(map(id, self._optimizers.alive)) or self.backwards >= self._explained_until:
            self.stop_recording()

    def _record_again(self, optimizer: Optimizer, ungraded: Mapping[str, int]) -> None:
        """Record the next backward pass."""
        self._ungraded = {**self._ungraded, **ungraded}
        self._explained.discard(id(optimizer))
        self._explained_until = self.backwards + _EXPLAINED
        self._recording = self._recording or Recording(CaptureRequest(flow=True), self._optimizers)

    def _make_step(self, moved: Moved) -> Step:
        parts = self._parameters.sum_by_module(moved)
        known = {*self._paths}
        new = tuple(path for path in parts if path not in known)
        if new:
            self._paths += new
            self._callback(Modules(self._paths))
        loss, self._loss = read_scalar(self._loss), None
        norms = [norm for norm, _ in parts.values() if norm is not None]
        rows = [parts.get(path, (None, None)) for path in self._paths]
        return Step(
            self.steps,
            self.backwards,
            encode_number(loss),
            encode_number(math.hypot(*norms) if norms else None),
            memory_of([tensor for tensor, _ in moved.values()]),
            self._graphs.counter.note(self.steps),
            tuple(encode_number(norm) for norm, _ in rows),
            tuple(encode_number(ratio) for _, ratio in rows),
        )

    def _check_numbers(self, optimizer: Optimizer, step: Step, moved: Mapping[str, Movement]) -> None:
        if isinstance(step.loss, float):
            self._losses = [*self._losses[-_MOST_LOSSES:], step.loss]
            is_constant = len(self._losses) == _CONSTANT and len({*self._losses}) == 1
            if is_constant and any(each.moved and each.norm for each in moved.values()):
                cause = Cause("constant_loss", "error", detail=f"it is {step.loss:.6g} in all {_CONSTANT} steps")
                self._report(add_place(cause, self._place))
        if has_skipped(optimizer) or self._is_lost:
            return
        broken = [name for name, each in moved.items() if each.norm is not None and not math.isfinite(each.norm)]
        lost = [name for name, each in moved.items() if not math.isfinite(each.length)]
        if broken:
            self._report(add_place(Cause("nonfinite_grad", "error", names=tuple(broken)), self._place))
        elif lost:
            cause = Cause("parameter_not_finite", "error", names=tuple(lost))
            self._report(add_place(cause, self._optimizers.place_of(optimizer)))

    def _check_gradients(self, optimizer: Optimizer) -> None:
        sample, before = self._parameters.sample(optimizer), self._samples.get(id(optimizer))
        self._samples[id(optimizer)] = sample._replace(numbers=before.numbers) if before and sample else sample
        if not self.tape.losses or sample is None or has_skipped(optimizer):
            return
        if not sample.norms.isfinite().all():
            self._explain_again()

    def _explain_again(self) -> bool:
        """Compute the losses once more to find causes of infinity or NaN; return whether any is known."""
        name_of = partial(self._parameters.name_among, self._optimizers.alive)
        for computed in () if self._is_lost else compute_again(self.tape, name_of):
            how = "found by computing the loss of this step once more"
            if computed.value != computed.before and computed.before is not None and math.isfinite(computed.before):
                how += f", which was {computed.value} and not {computed.before}"
            for cause in computed.found.causes:
                if cause.level == "error" and cause.kind in _BROKEN:
                    self._report(cause, how)
                    self._is_lost = True
            if self._is_lost:
                break
        return self._is_lost

    def _report_lost(self, value: float) -> None:
        if self._is_lost:
            return
        losses = self._losses[-_GROWING:]
        grew = [*losses, math.inf] == sorted({*losses, math.inf}) and len(losses) > 1
        if grew and self._losses[0] and abs(losses[-1]) > _GROWTH * abs(self._losses[0]):
            optimizers = self._optimizers.find_for_backward()
            detail = f"from {self._losses[0]:.3g} to {losses[-1]:.3g}, and then it is {encode_number(value)}"
            place = self._optimizers.place_of(optimizers[0]) if optimizers else None
            self._report(add_place(Cause("loss_explodes", "error", detail=detail), place or self._place))
        elif not self._explain_again():
            cause = Cause("loss_not_finite", "error", detail=f"it is {encode_number(value)}")
            self._report(add_place(cause, self._place))

    def _report(self, cause: Cause, how: str = "") -> None:
        self._report_once(self._make_finding(cause, how))

    def _report_once(self, finding: Finding) -> None:
        # Later steps find the same fault again, with other details.
        key = (finding.cause.kind, finding.cause.names, finding.cause.op)
        if key not in self._seen:
            self._seen.add(key)
            self._callback(finding)

    def _make_finding(self, cause: Cause, how: str = "") -> Finding:
        is_past = self._is_after_step and self._by_hand is not None
        loops = self._loops if is_past else loop_counters(self._variables.note(sys._getframe(1)))
        # Before its end, a step counts as the next one.
        step = self.steps if self._is_after_step or self._has_ended else self.steps + 1
        return Finding(max(step, 1), cause, how, loops)
