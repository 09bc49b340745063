"""What a backward gives each leaf, and where a gradient that is zero or not finite became so."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import torch

from gradir.frontends.pytorch.private import ACCUMULATOR, CHECKPOINT
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.reading.tensors import held_by
from gradir.frontends.pytorch.reading.walk import GradFn
from gradir.frontends.pytorch.verifying.verify import left_alone

__all__ = ["Arrival", "Gradients", "gradients_of", "is_zero"]

_NOTHING: Final = 1e-5
"""Which part of what came to a function is nothing."""

_ROUNDINGS: Final = 16
"""How many times the precision of a type a sum of numbers that cancel may be off."""

_ADDED_TO_ALL: Final[Mapping[str, int]] = {
    "AddmmBackward0": 0,
    "ConvolutionBackward0": 2,
    "NativeBatchNormBackward0": 2,
    "NativeGroupNormBackward0": 2,
    "NativeLayerNormBackward0": 2,
}
"""The input slot of a bias, by the function that adds it."""

_MOST_ORIGINS: Final = 16
"""How many places are told of where one gradient went bad."""


class Size(NamedTuple):
    """How large a gradient is: the largest number in it that is finite, and whether all are."""

    largest: float
    is_finite: bool


_IsBad: TypeAlias = "Callable[[Size | None], bool]"


class Arrival(NamedTuple):
    """What arrives at a leaf, and the grad_fns where that arose.

    ``none``, ``zero``, ``rounding`` (numbers that cancel but for their rounding), ``nonfinite`` or ``some``.
    """

    kind: str
    arose: tuple[GradFn, ...] = ()


class _Passed(NamedTuple):
    came: tuple[Size | None, ...]
    went: tuple[Size | None, ...]


class Gradients:
    """The sizes of the gradients that one backward brought to each grad_fn and each leaf."""

    def __init__(self, passed: Mapping[GradFn, _Passed], arrived: Mapping[int, Size | None]) -> None:
        self._passed = passed
        self._arrived = arrived
        self._consumers: dict[GradFn, list[tuple[GradFn, int]]] = {}
        for fn in passed:
            for slot, (child, _) in enumerate(fn.next_functions):
                if child is not None:
                    self._consumers.setdefault(child, []).append((fn, slot))
        self._origins = {is_bad: self._all_origins(is_bad) for is_bad in (_is_broken, _is_zero)}

    def at(self, leaf: torch.Tensor, accumulator: GradFn) -> Arrival:
        """What arrives at a leaf of the graph."""
        size = self._arrived.get(id(leaf))
        if size is None:
            return Arrival("none")
        if not size.is_finite:
            return Arrival("nonfinite", self._origins_above(accumulator, _is_broken, self._origins[_is_broken]))
        if not size.largest:
            arose = self._origins_above(accumulator, _is_zero, self._origins[_is_zero])
            direct = {
                fn for fn, slot in self._consumers.get(accumulator, ()) if _ADDED_TO_ALL.get(type(fn).__name__) == slot
            }
            # Of what is added to all the gradient is a sum, which is zero only where its terms cancel.
            return Arrival("rounding" if arose and direct.issuperset(arose) else "zero", arose)
        cancelling = [fn for fn, slot in self._consumers.get(accumulator, ()) if self._cancels(fn, slot)]
        if cancelling and len(cancelling) == len(self._consumers[accumulator]):
            rounding = max(torch.finfo(leaf.dtype).eps * _ROUNDINGS, 0.0)
            largest = max((known.largest for fn in cancelling for known in self._passed[fn].came if known), default=0.0)
            if size.largest <= rounding * largest:
                return Arrival("rounding", tuple(cancelling))
        return Arrival("some")

    def _cancels(self, fn: GradFn, slot: int) -> bool:
        """Whether what a function passes on is nothing beside what came to it."""
        came, went = self._passed[fn]
        known = [size.largest for size in came if size is not None]
        passed_on = went[slot] if slot < len(went) else None
        return passed_on is not None and bool(known) and passed_on.largest <= _NOTHING * max(known)

    def _all_origins(self, is_bad: _IsBad) -> dict[GradFn, tuple[GradFn, ...]]:
        """Of each function that bad gradients come to or arise in, the functions that made them of good ones."""
        origins: dict[GradFn, tuple[GradFn, ...]] = {}
        # They ran in an order in which nothing stands before what its gradient comes from.
        for fn, (came, went) in self._passed.items():
            known = [size for size in came if size is not None]
            if any(map(is_bad, known)):
                origins[fn] = self._origins_above(fn, is_bad, origins)
            elif known and any(map(is_bad, went)):
                origins[fn] = (fn,)
        return origins

    def _origins_above(
        self, fn: GradFn, is_bad: _IsBad, origins: Mapping[GradFn, tuple[GradFn, ...]]
    ) -> tuple[GradFn, ...]:
        """Those of what sends a function something bad, the first few."""
        found: dict[GradFn, None] = {}
        for sender, slot in self._consumers.get(fn, ()):
            went = self._passed[sender].went
            if slot >= len(went) or is_bad(went[slot]):
                found.update(dict.fromkeys(origins.get(sender, ())))
        return tuple(found)[:_MOST_ORIGINS]


def gradients_of(live: LiveGraph) -> Gradients:
    """Run a backward, and note on the way how large each gradient is; afterwards all is what it was.

    Raises:
        CaptureError: a backward could run only once, or would change the next one.
        RuntimeError: whatever the backward raises.
    """
    passed: dict[GradFn, _Passed] = {}

    def note(fn: GradFn, went: Sequence[torch.Tensor | None], came: Sequence[torch.Tensor | None]) -> None:
        passed[fn] = _Passed(tuple(map(_size, came)), tuple(map(_size, went)))

    tensors = [found.tensor for found in live.captured if found.role == "output"]
    leaves = list({id(tensor): tensor for tensor in live.leaves.values()}.values())
    # A reentrant checkpoint runs in no other backward than one that adds up.
    adds = any(type(fn).__name__ == CHECKPOINT for fn in live.grad_fns)
    with left_alone(live):
        hooks = [fn.register_hook(partial(note, fn)) for fn in live.grad_fns if type(fn).__name__ != ACCUMULATOR]
        try:
            seeds = [torch.ones_like(tensor) for tensor in tensors]
            with torch.random.fork_rng(), torch.autograd.set_multithreading_enabled(False):
                found = (_added if adds else _asked)(tensors, leaves, seeds)
        finally:
            for hook in hooks:
                hook.remove()
        return Gradients(passed, {id(leaf): _size(gradient) for leaf, gradient in zip(leaves, found, strict=True)})


def _asked(
    tensors: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor], seeds: Sequence[torch.Tensor]
) -> Sequence[torch.Tensor | None]:
    return torch.autograd.grad(tensors, leaves, seeds, retain_graph=True, allow_unused=True) if leaves else ()


def _added(
    tensors: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor], seeds: Sequence[torch.Tensor]
) -> Sequence[torch.Tensor | None]:
    torch.autograd.backward(tensors, seeds, retain_graph=True)
    return [leaf.grad for leaf in leaves]


def is_zero(leaf: torch.Tensor) -> bool:
    """Whether what this process has of a leaf is zero throughout."""
    held = held_by(leaf.detach())
    # The memory of what `fully_shard` gathers is freed between the passes.
    has_memory = held.layout is not torch.strided or held.untyped_storage().nbytes() > 0
    return has_memory and not bool(held.any())


def _size(gradient: torch.Tensor | None) -> Size | None:
    if gradient is None:
        return None
    with torch.no_grad():
        values = gradient.detach()
        if values.layout is not torch.strided:
            values = values.coalesce().values() if values.layout is torch.sparse_coo else values.values()
        if not values.numel():
            return Size(0.0, is_finite=True)
        largest = float(values.abs().max())
        if math.isfinite(largest):
            return Size(largest, is_finite=True)
        finite = values[torch.isfinite(values)]
        return Size(float(finite.abs().max()) if finite.numel() else 0.0, is_finite=False)


def _is_zero(size: Size | None) -> bool:
    return size is None or (size.is_finite and not size.largest)


def _is_broken(size: Size | None) -> bool:
    return size is not None and not size.is_finite
