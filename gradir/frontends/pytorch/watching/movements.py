"""Find parameters that a training does not move although they have a gradient, and gradients that vanish or grow."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch.optim import Optimizer

from gradir.explanations.model import Cause, Level
from gradir.frontends.pytorch.explaining.naming import with_place
from gradir.frontends.pytorch.private import version_of
from gradir.frontends.pytorch.reading.tensors import held_by
from gradir.frontends.pytorch.recording.places import Place
from gradir.frontends.pytorch.watching.optimizers import Optimizers
from gradir.frontends.pytorch.watching.parameters import Movement, Parameters, checksum, parameters_of
from gradir.frontends.pytorch.watching.recordings import Layers
from gradir.frontends.walks import grouped
from gradir.ir.text import counted

# At the end fewer steps without a move are enough.
_STILL: Final = 10
_LEAST: Final = 3
_AT_ZERO: Final = 20
# A schedule is at fault if this part of all steps, and so many, have a rate of zero.
_MOST_STEPS: Final = 0.75
# A gradient has vanished if it is a smaller part of the largest one.
_VANISHED: Final = 1e-6


class _Still(NamedTuple):
    """Since which step a parameter has not moved, and its bits then."""

    since: int
    bits: int | None
    norm: float


class _OfOptimizer:
    def __init__(self) -> None:
        self.steps = 0
        self.still: dict[str, _Still] = {}
        self.tensors: dict[str, torch.Tensor] = {}
        self.norms: dict[str, float] = {}
        self.moved: set[str] = set()
        self.told: set[str] = set()
        self.at_zero = 0
        self.wiped = 0
        self.not_zeroed = 0
        self.stamp: tuple[int, int] | None = None
        self.is_cleared = True


class Movements:
    """Judges the steps of optimizers."""

    def __init__(self, parameters: Parameters, optimizers: Optimizers) -> None:
        self._parameters, self._optimizers = parameters, optimizers
        self._known: WeakKeyDictionary[Optimizer, _OfOptimizer] = WeakKeyDictionary()
        self._steps = 0
        self._backward: Place | None = None
        self.excused: frozenset[str] = frozenset()
        """Parameters whose gradient the explanation of the first step calls zero."""
        self.layers: Layers | None = None
        """What is known of the modules of the first step."""

    def before_backward(self, place: Place | None) -> None:
        """Note a call of backward, and whether gradients were cleared since the last one."""
        self._backward = place
        for optimizer in self._optimizers.alive:
            known = self._of(optimizer)
            now, before = _stamp_gradient(optimizer), known.stamp
            # To clip a gradient writes to it, and leaves it what it was.
            length = 1 if self._optimizers.has_clipped else 2
            if before is not None and (now is None or now[:length] != before[:length] or _is_zero(optimizer)):
                known.is_cleared = True
            known.stamp = None

    def after_backward(self) -> None:
        """Note the gradients as the backward left them."""
        self._optimizers.forget_changes()
        for optimizer in self._optimizers.alive:
            self._of(optimizer).stamp = _stamp_gradient(optimizer)

    def after_step(self, optimizer: Optimizer, moved: Mapping[str, tuple[torch.Tensor, Movement]]) -> Iterator[Cause]:
        """Yield the faults of a step that are proved by now."""
        known = self._of(optimizer)
        known.steps += 1
        self._steps += 1
        rates = [float(group.get("lr", 1)) for group in optimizer.param_groups]
        known.at_zero = 0 if any(rates) else known.at_zero + 1
        yield from self._gone(optimizer, known, moved)
        yield from self._added_up(optimizer, known)
        self._note_still(known, moved)
        if known.steps >= _STILL:
            yield from self._told(optimizer, known, _STILL)

    def at_end(self, backwards: int) -> Iterator[Cause]:
        """Yield the faults that the end of a training proves."""
        detail = f"in {counted(backwards, 'call')} of backward"
        for made in self._optimizers.made if backwards >= _STILL else ():
            # Beside others that step it may be for later, but not if its gradients are cleared all the time.
            if not made.steps and (not self._steps or made.cleared >= _STILL):
                yield with_place(Cause("never_stepped", "error", made.name, detail=detail), made.place)
        for optimizer in self._optimizers.alive:
            known = self._of(optimizer)
            if known.at_zero >= _AT_ZERO and known.at_zero >= _MOST_STEPS * known.steps and known.moved:
                detail = f"in the last {known.at_zero:,} of {counted(known.steps, 'step')}"
                place = self._optimizers.scheduler_place(optimizer) or self._optimizers.place_of(optimizer)
                yield with_place(Cause("lr_zero", "error", names=tuple(known.norms), detail=detail), place)
            if _LEAST <= known.steps < _STILL:
                yield from self._told(optimizer, known, known.steps)

    def _of(self, optimizer: Optimizer) -> _OfOptimizer:
        return self._known.setdefault(optimizer, _OfOptimizer())

    def _gone(
        self, optimizer: Optimizer, known: _OfOptimizer, moved: Mapping[str, tuple[torch.Tensor, Movement]]
    ) -> Iterator[Cause]:
        norms = [each.norm for _, each in moved.values()]
        is_gone = bool(norms) and not any(norms)
        cleared = self._optimizers.cleared_at(optimizer) if is_gone else None
        place = cleared or (self._optimizers.clipped_at() if is_gone else None)
        known.wiped = known.wiped + 1 if place else 0
        if known.wiped >= 2:
            kind, op = ("wiped", "zero_grad") if cleared else ("clipped_to_zero", "clip_grad_norm_")
            yield with_place(Cause(kind, "error", op, tuple(moved)), place)

    def _added_up(self, optimizer: Optimizer, known: _OfOptimizer) -> Iterator[Cause]:
        known.stamp = _stamp_gradient(optimizer)
        known.not_zeroed = 0 if known.is_cleared or known.stamp is None else known.not_zeroed + 1
        known.is_cleared = False
        if known.not_zeroed == _LEAST:
            graded = (each for each in parameters_of(optimizer) if each.grad is not None)
            names = tuple(self._parameters.name_of(optimizer, each) for each in graded)
            yield with_place(Cause("not_zeroed", "error", "zero_grad", names), self._backward)

    def _note_still(self, known: _OfOptimizer, moved: Mapping[str, tuple[torch.Tensor, Movement]]) -> None:
        still: dict[str, _Still] = {}
        for name, (tensor, movement) in moved.items():
            known.tensors[name] = tensor
            known.norms[name] = movement.norm or 0.0
            has_gradient = movement.norm is not None and math.isfinite(movement.norm)
            if movement.moved:
                known.moved.add(name)
            if name in known.moved or not has_gradient:
                # What has moved once may be where it wants to be.
                continue
            before = known.still.get(name)
            still[name] = _Still(known.steps, None, 0.0) if before is None else before
        unknown = {name: known.tensors[name] for name, each in still.items() if each.bits is None}
        for name, bits in checksum(unknown).items():
            still[name] = _Still(known.steps, bits, known.norms[name])
        known.still = still

    def _told(self, optimizer: Optimizer, known: _OfOptimizer, least: int) -> Iterator[Cause]:
        names = [name for name, each in known.still.items() if known.steps - each.since + 1 >= least]
        if not names:
            return
        now = checksum({name: known.tensors[name] for name in names})
        still = [name for name in names if now[name] == known.still[name].bits]
        for name in names:
            known.still.pop(name)
        groups = grouped((self._why(optimizer, known, name), name) for name in still)
        groups.pop("", None)
        for kind, found in groups.items():
            # Of some parameters it may take more steps to be proved, which is nothing new.
            if kind not in known.told:
                known.told.add(kind)
                yield self._cause(kind, optimizer, known, found)

    def _why(self, optimizer: Optimizer, known: _OfOptimizer, name: str) -> str:
        tensor, norm = known.tensors[name], known.norms[name]
        group = next(group for group in optimizer.param_groups if any(each is tensor for each in group["params"]))
        # A bias before a normalisation has what rounding leaves of a gradient of zero.
        is_excused = tensor.dim() <= 1 and name in self.excused
        if not norm:
            # The squares of small numbers are nothing; of what is not used for a while, the numbers are 0 themselves.
            is_used = tensor.grad is not None and bool(held_by(tensor.grad).any())
            return "vanished" if is_used and not is_excused else ""
        if not float(group.get("lr", 1)):
            return "lr_zero"
        if norm < _VANISHED * max(known.norms.values(), default=0.0):
            return "" if is_excused else "vanished"
        return "below_resolution" if _is_below(optimizer, tensor, float(group.get("lr", 1))) else "no_movement"

    def _cause(self, kind: str, optimizer: Optimizer, known: _OfOptimizer, names: Sequence[str]) -> Cause:
        place, detail = self._optimizers.place_of(optimizer), ""
        level: Level = "error"
        if kind == "lr_zero":
            place = self._optimizers.scheduler_place(optimizer) or place
            level = "info" if any(float(group.get("lr", 1)) for group in optimizer.param_groups) else "error"
            detail = f"in all of the last {counted(known.steps, 'step')}" if known.steps < _STILL else ""
        elif kind == "vanished":
            first, last = min(names, key=known.norms.__getitem__), max(known.norms, key=known.norms.__getitem__)
            detail = f"its norm falls from {known.norms[last]:.2g} at {last} to {known.norms[first]:.2g} at {first}"
            layers = self.layers or Layers({}, {}, {})
            most = max(layers.squashing, key=layers.squashing.__getitem__, default="")
            place = layers.lines.get(self._parameters.scopes.get(id(known.tensors[first]), ""), self._backward)
            if layers.squashing.get(most, 0) > 1:
                detail += f", over {layers.squashing[most]} calls of {most}"
                place = layers.squashed_at.get(most, place)
        elif kind == "below_resolution":
            detail = f"their dtype is {str(known.tensors[names[0]].dtype).removeprefix('torch.')}"
        return with_place(Cause(kind, level, names=tuple(names), detail=detail), place)


def _is_below(optimizer: Optimizer, tensor: torch.Tensor, rate: float) -> bool:
    """Return whether a step of that rate is smaller than half the spacing of the numbers, going by their sizes."""
    if not tensor.is_floating_point():
        return False
    spacing = torch.finfo(tensor.dtype).eps
    with torch.no_grad():
        size = float(tensor.detach().abs().float().mean())
        grad = 0.0 if tensor.grad is None else float(tensor.grad.detach().abs().float().max())
    # An adaptive step is as long as the rate, whatever the gradient is.
    step = rate * (grad if type(optimizer).__name__ in {"ASGD", "SGD"} else max(grad, 1.0))
    return step <= spacing * size


def _stamp_gradient(optimizer: Optimizer) -> tuple[int, int] | None:
    """Return a stamp of an optimizer's first gradient that changes when it is cleared or written to."""
    for tensor in parameters_of(optimizer):
        if tensor.grad is not None:
            return id(tensor.grad), version_of(tensor.grad)
    return None


def _is_zero(optimizer: Optimizer) -> bool:
    """Return whether the first gradient of an optimizer is zero: what writes to its `.data` leaves no trace."""
    return next((not bool(each.grad.any()) for each in parameters_of(optimizer) if each.grad is not None), True)


_STEPS: Final = 10
# How many times smaller or larger, in so many steps in a row.
_FAR: Final = 1e6
# Sizes in fewer modules depend on the modules, and not on the way.
_FEWEST_MODULES: Final = 6


class Norms:
    """Compares the norms of modules in the order in which a program made them, as long as an optimizer steps."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def after_step(self, norms: Mapping[str, float]) -> Iterator[Cause]:
        """Yield the faults that the norms of a step prove, after so many like it."""
        sizes = {path: norm for path, norm in norms.items() if norm and math.isfinite(norm)}
        if len(sizes) < _FEWEST_MODULES:
            return
        smallest, largest = min(sizes, key=sizes.__getitem__), max(sizes, key=sizes.__getitem__)
        is_far = sizes[largest] > _FAR * sizes[smallest]
        order = [*sizes]
        first, last = order[: len(order) // 3], order[-(len(order) // 3) :]
        for kind, at, start in (("vanishing", smallest, largest), ("exploding_gradient", largest, smallest)):
            self._counts[kind] = self._counts[kind] + 1 if is_far and at in first and start in last else 0
            if self._counts[kind] == _STEPS:
                detail = f"from {sizes[start]:.2g} at {start} to {sizes[at]:.2g} at {at}"
                yield Cause(kind, "info", names=(at,), detail=detail)
