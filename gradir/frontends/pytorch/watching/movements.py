"""Find parameters that a training does not change although they have a gradient, and gradients that vanish or grow."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch.optim import Optimizer

from gradir.explanations.model import Cause, Level
from gradir.frontends.pytorch.explaining.naming import add_place
from gradir.frontends.pytorch.private import version_of, without_overrides
from gradir.frontends.pytorch.reading.tensors import checksum, read_stored_values, unwrap_tensor
from gradir.frontends.pytorch.recording.places import Place
from gradir.frontends.pytorch.watching.optimizers import Optimizers
from gradir.frontends.pytorch.watching.parameters import Moved, Parameters, parameters_of
from gradir.frontends.pytorch.watching.recordings import Layers
from gradir.ir.memo import group_by_key
from gradir.ir.text import pluralize

# At the end fewer steps without a change are enough.
_UNCHANGED: Final = 10
_LEAST: Final = 3
_AT_ZERO: Final = 20
# A schedule is a fault if this fraction of all steps, and at least `_AT_ZERO`, have a rate of zero.
_MOST_STEPS: Final = 0.75
# A gradient below this fraction of the largest one has vanished.
_VANISHED: Final = 1e-6
# The program sets parameters back if no more than this part of a step remains.
_TAKEN_BACK: Final = 0.01


class _Unchanged(NamedTuple):
    """The step since which a parameter has not changed, and a checksum of its bits if it has readable values."""

    since: int
    bits: int | None


class _History:
    """The steps of one optimizer."""

    def __init__(self) -> None:
        self.steps = 0
        self.unchanged: dict[str, _Unchanged] = {}
        self.tensors: dict[str, torch.Tensor] = {}
        self.norms: dict[str, float] = {}
        self.moved: set[str] = set()
        self.far: Counter[str] = Counter()
        self.graded: dict[str, tuple[int, int]] = {}
        self.reported: set[str] = set()
        self.at_zero = self.wiped = self.not_zeroed = self.dropping = self.undone = 0
        self.stamp: tuple[int, int] | None = None
        self.is_cleared = True
        # The number of backward passes since the last step whose gradients were cleared, and the place of that.
        self.dropped: tuple[int, Place | None] = 0, None
        self.before_step: torch.Tensor | None = None
        self.update = 0.0


class Movements:
    """Finds faults in the steps of optimizers."""

    def __init__(self, parameters: Parameters, optimizers: Optimizers) -> None:
        self._parameters, self._optimizers = parameters, optimizers
        self._histories: WeakKeyDictionary[Optimizer, _History] = WeakKeyDictionary()
        self._steps = self._steps_before = 0
        self._backward: Place | None = None
        self.excused: frozenset[str] = frozenset()
        """Parameters whose gradient the explanation of the first step calls zero."""
        self.layers: Layers | None = None
        """The lines of the modules of the first step."""

    def on_backward_begin(self, place: Place | None) -> None:
        """Record a call of backward, and whether the program cleared gradients since the last one."""
        # A step such as that of LBFGS computes several gradients itself.
        is_again = self._optimizers.stepping is None and (place, self._steps) == (self._backward, self._steps_before)
        self._backward, self._steps_before = place, self._steps
        for optimizer in self._optimizers.alive:
            history = self._history_of(optimizer)
            cleared = self._optimizers.clearing_place(optimizer)
            if not is_again:
                history.dropped = 0, None
            elif cleared is not None and history.stamp is not None:
                history.dropped = history.dropped[0] + 1, cleared
            now, before = _stamp_gradient(optimizer), history.stamp
            # Clipping changes the version of a gradient without clearing it, and writes to `.data` keep the version.
            length = 1 if self._optimizers.has_clipped else 2
            gradient = _first_gradient(optimizer)
            # Read the values last, since that waits for the device.
            if before and (gradient is None or (now or ())[:length] != before[:length] or not gradient.any()):
                history.is_cleared = True
            history.stamp = None

    def on_backward_end(self) -> None:
        """Record the gradients after a backward pass."""
        self._optimizers.forget_changes()
        for optimizer in self._optimizers.alive:
            self._history_of(optimizer).stamp = _stamp_gradient(optimizer)

    def on_step_begin(self, optimizer: Optimizer, numbers: torch.Tensor | None) -> None:
        """Count the steps after which the program sets the sampled ``numbers`` back."""
        history = self._history_of(optimizer)
        before, history.before_step = history.before_step, numbers
        is_same = False
        if before is not None and numbers is not None and before.shape == numbers.shape:
            is_same = float((numbers - before).norm()) <= _TAKEN_BACK * history.update
        history.undone = history.undone + 1 if is_same else 0
        if history.undone == _LEAST:
            self._optimizers.follow_writes(parameters_of(optimizer))

    def on_step_end(self, optimizer: Optimizer, moved: Moved, norms: Mapping[str, float]) -> Iterator[Cause]:
        """Yield the faults that are certain after a step; ``norms`` are those of modules."""
        history = self._history_of(optimizer)
        history.steps += 1
        self._steps += 1
        rates = [float(group.get("lr", 1)) for group in optimizer.param_groups]
        history.at_zero = 0 if any(rates) else history.at_zero + 1
        yield from self._find_dropped(optimizer, history, moved)
        # An attack of one step sets its tensor, which is in no module, back on purpose.
        owned = self._parameters.names
        names = tuple(name for name, (tensor, movement) in moved.items() if movement.moved and id(tensor) in owned)
        history.undone = history.undone if names else 0
        history.update = math.hypot(*(movement.update for _, movement in moved.values()))
        if history.undone == _UNCHANGED:
            place = self._optimizers.writing_place or self._optimizers.place_of(optimizer)
            yield add_place(Cause("undone", "error", names=names), place)
        yield from self._find_wiped(optimizer, history, moved)
        yield from self._find_not_zeroed(optimizer, history)
        self._note_unchanged(history, moved)
        if history.steps >= _UNCHANGED:
            yield from self._find_unchanged(optimizer, history, _UNCHANGED)
        yield from compare_norms(norms, history.far)

    def find_ungraded(self, optimizer: Optimizer, moved: Moved) -> Mapping[str, int]:
        """Return the parameters whose gradient ended, with the first step without it."""
        history = self._history_of(optimizer)
        now = history.steps, self._steps
        history.graded.update((name, now) for name, (_, movement) in moved.items() if movement.norm)
        return {name: last + 1 for name, (own, last) in history.graded.items() if history.steps - own == _LEAST}

    def find_final_faults(self, backwards: int) -> Iterator[Cause]:
        """Yield the faults that are certain at the end of a training."""
        detail = f"in {pluralize(backwards, 'call')} of backward"
        for origin in self._optimizers.origins if backwards >= _UNCHANGED else ():
            # If another optimizer steps, this one may be for later, unless the program clears its gradients.
            if not origin.steps and (not self._steps or origin.cleared >= _UNCHANGED):
                yield add_place(Cause("never_stepped", "error", origin.name, detail=detail), origin.place)
        for origin in self._optimizers.origins:
            if origin.steps >= _UNCHANGED and not origin.is_graded:
                detail = f"in {pluralize(origin.steps, 'step')} of {origin.name}"
                yield add_place(Cause("moves_nothing", "error", detail=detail), origin.place)
        for optimizer in self._optimizers.alive:
            history = self._history_of(optimizer)
            if history.at_zero >= max(_AT_ZERO, _MOST_STEPS * history.steps) and history.moved:
                detail = f"in the last {history.at_zero:,} of {pluralize(history.steps, 'step')}"
                place = self._optimizers.scheduler_place(optimizer) or self._optimizers.place_of(optimizer)
                yield add_place(Cause("lr_zero", "error", names=tuple(history.norms), detail=detail), place)
            if _LEAST <= history.steps < _UNCHANGED:
                yield from self._find_unchanged(optimizer, history, history.steps)

    def _history_of(self, optimizer: Optimizer) -> _History:
        return self._histories.setdefault(optimizer, _History())

    def _find_wiped(self, optimizer: Optimizer, history: _History, moved: Moved) -> Iterator[Cause]:
        norms = [each.norm for _, each in moved.values()]
        # Without a gradient after the backward pass, the program has cleared nothing.
        is_zero = bool(norms) and not any(norms) and history.stamp is not None
        cleared = self._optimizers.clearing_place(optimizer) if is_zero else None
        place = cleared or (self._optimizers.clipping_place() if is_zero else None)
        history.wiped = history.wiped + 1 if place else 0
        if history.wiped >= 2:
            kind, op = ("wiped", "zero_grad") if cleared else ("clipped_to_zero", "clip_grad_norm_")
            yield add_place(Cause(kind, "error", op, tuple(moved)), place)

    def _find_dropped(self, optimizer: Optimizer, history: _History, moved: Moved) -> Iterator[Cause]:
        (count, place), history.dropped = history.dropped, (0, None)
        # A program that combines several gradients by itself writes to the last one, or gives the step another tensor.
        is_last = history.stamp is not None and history.stamp == _stamp_gradient(optimizer)
        history.dropping = history.dropping + 1 if count and is_last else 0
        if history.dropping == _LEAST:
            detail = f"the step uses 1 of {count + 1} backward passes"
            yield add_place(Cause("cleared", "error", "zero_grad", tuple(moved), detail=detail), place)

    def _find_not_zeroed(self, optimizer: Optimizer, history: _History) -> Iterator[Cause]:
        before, history.stamp = history.stamp, _stamp_gradient(optimizer)
        # A program may give the step another tensor, such as the difference of two models.
        history.is_cleared |= before is not None and history.stamp is not None and before[0] != history.stamp[0]
        history.not_zeroed = 0 if history.is_cleared or history.stamp is None else history.not_zeroed + 1
        history.is_cleared = False
        if history.not_zeroed == _LEAST:
            graded = (each for each in parameters_of(optimizer) if each.grad is not None)
            names = tuple(self._parameters.name_of(optimizer, each) for each in graded)
            yield add_place(Cause("not_zeroed", "error", "zero_grad", names), self._backward)

    def _note_unchanged(self, history: _History, moved: Moved) -> None:
        unchanged: dict[str, _Unchanged] = {}
        for name, (tensor, movement) in moved.items():
            history.tensors[name] = tensor
            history.norms[name] = movement.norm or 0.0
            if movement.moved:
                # A parameter that has moved once may be at its optimum.
                history.moved.add(name)
            if name not in history.moved and movement.norm is not None and math.isfinite(movement.norm):
                unchanged[name] = history.unchanged.get(name) or _Unchanged(history.steps, _checksum(tensor))
        history.unchanged = unchanged

    def _find_unchanged(self, optimizer: Optimizer, history: _History, least: int) -> Iterator[Cause]:
        names = [name for name, each in history.unchanged.items() if history.steps - each.since + 1 >= least]
        before = {name: history.unchanged.pop(name).bits for name in names}
        unchanged = [name for name, bits in before.items() if _checksum(history.tensors[name]) == bits is not None]
        groups = group_by_key((self._classify(optimizer, history, name), name) for name in unchanged)
        groups.pop("", None)
        for kind, found in groups.items():
            # More parameters with a reported fault are no new finding.
            if kind not in history.reported:
                history.reported.add(kind)
                yield self._make_cause(kind, optimizer, history, found)

    def _classify(self, optimizer: Optimizer, history: _History, name: str) -> str:
        """Return the kind of fault of an unchanged parameter, or an empty text."""
        tensor, norm = history.tensors[name], history.norms[name]
        group = next(group for group in optimizer.param_groups if any(each is tensor for each in group["params"]))
        rate = float(group.get("lr", 1))
        # A bias before a normalization has a zero gradient with rounding errors.
        is_excused = tensor.dim() <= 1 and name in self.excused
        if not norm:
            # The squares of small values underflow. An unused parameter has zeros in its gradient.
            is_used = tensor.grad is not None and bool(unwrap_tensor(tensor.grad).any())
            return "vanished" if is_used and not is_excused else ""
        if not rate:
            return "lr_zero"
        if norm < _VANISHED * max(history.norms.values(), default=0.0):
            return "" if is_excused else "vanished"
        return "below_resolution" if _is_below(optimizer, tensor, rate) else "no_movement"

    def _make_cause(self, kind: str, optimizer: Optimizer, history: _History, names: Sequence[str]) -> Cause:
        place, detail = self._optimizers.place_of(optimizer), ""
        level: Level = "error"
        if kind == "lr_zero":
            place = self._optimizers.scheduler_place(optimizer) or place
            level = "info" if any(float(group.get("lr", 1)) for group in optimizer.param_groups) else "error"
            detail = f"in all of the last {pluralize(history.steps, 'step')}" if history.steps < _UNCHANGED else ""
        elif kind == "vanished":
            norms, layers = history.norms, self.layers or Layers({}, {}, {})
            first, last = min(names, key=norms.__getitem__), max(norms, key=norms.__getitem__)
            detail = f"its norm falls from {norms[last]:.2g} at {last} to {norms[first]:.2g} at {first}"
            most = max(layers.squashing, key=layers.squashing.__getitem__, default="")
            place = layers.lines.get(self._parameters.scopes.get(id(history.tensors[first]), ""), self._backward)
            if layers.squashing.get(most, 0) > 1:
                detail += f", over {layers.squashing[most]} calls of {most}"
                place = layers.squashed_at.get(most, place)
        elif kind == "below_resolution":
            detail = f"their dtype is {str(history.tensors[names[0]].dtype).removeprefix('torch.')}"
        return add_place(Cause(kind, level, names=tuple(names), detail=detail), place)


def _checksum(tensor: torch.Tensor) -> int | None:
    with without_overrides():
        return checksum(read_stored_values(tensor))


def _is_below(optimizer: Optimizer, tensor: torch.Tensor, rate: float) -> bool:
    """Return whether a step of this rate is smaller than the spacing of floats of the parameter's size."""
    if not tensor.is_floating_point():
        return False
    spacing = torch.finfo(tensor.dtype).eps
    with torch.no_grad():
        size = float(tensor.detach().abs().float().mean())
        grad = 0.0 if tensor.grad is None else float(tensor.grad.detach().abs().float().max())
    # An adaptive step has the length of the rate, for any gradient.
    step = rate * (grad if type(optimizer).__name__ in {"ASGD", "SGD"} else max(grad, 1.0))
    return step <= spacing * size


def _stamp_gradient(optimizer: Optimizer) -> tuple[int, int] | None:
    """Return id() and version of an optimizer's first gradient, which show if it is cleared or written to."""
    gradient = _first_gradient(optimizer)
    return None if gradient is None else (id(gradient), version_of(gradient))


def _first_gradient(optimizer: Optimizer) -> torch.Tensor | None:
    return next((each.grad for each in parameters_of(optimizer) if each.grad is not None), None)


# A fault needs this ratio of norms in this many consecutive steps.
_RATIO: Final = 1e6
_STEPS: Final = 10
# With fewer modules, the norms depend more on the modules than on depth.
_FEWEST_MODULES: Final = 6


def compare_norms(norms: Mapping[str, float], far: Counter[str]) -> Iterator[Cause]:
    """Yield a fault if norms differ in enough steps, which ``far`` counts."""
    # The modules are in the order of their creation.
    sizes = {path: norm for path, norm in norms.items() if norm and math.isfinite(norm)}
    if len(sizes) < _FEWEST_MODULES:
        return
    smallest, largest = min(sizes, key=sizes.__getitem__), max(sizes, key=sizes.__getitem__)
    is_far = sizes[largest] > _RATIO * sizes[smallest]
    order = [*sizes]
    first, last = order[: len(order) // 3], order[-(len(order) // 3) :]
    for kind, at, start in (("vanishing", smallest, largest), ("exploding_gradient", largest, smallest)):
        far[kind] = far[kind] + 1 if is_far and at in first and start in last else 0
        if far[kind] == _STEPS:
            detail = f"from {sizes[start]:.2g} at {start} to {sizes[at]:.2g} at {at}"
            yield Cause(kind, "info", names=(at,), detail=detail)
