"""The parameters of the optimizers of a program: their names, their gradients, and how far a step moves them."""

from __future__ import annotations

import math
import mmap
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.optim import Optimizer

from gradir.frontends.pytorch.private import ACCUMULATOR, norms_of
from gradir.frontends.pytorch.reading.outputs import flatten
from gradir.frontends.pytorch.reading.tensors import Owned, held_by, numbers_in
from gradir.frontends.pytorch.reading.walk import walk

# How many numbers of a parameter to look at in each step.
_SAMPLE: Final = 64


class Movement(NamedTuple):
    """The norm of a parameter's gradient, the lengths of a sample of update and parameter, and whether it moved."""

    norm: float | None
    update: float
    length: float
    moved: bool


class Sample(NamedTuple):
    """Some numbers of each parameter of an optimizer, a row each, and which have a gradient, of which norm."""

    numbers: torch.Tensor
    norms: torch.Tensor
    graded: Sequence[bool]

    @property
    def is_finite(self) -> bool:
        """Whether all gradients are."""
        return bool(self.norms.isfinite().all())


class _Sampled(NamedTuple):
    tensors: Sequence[torch.Tensor]
    pointers: Sequence[int]
    views: Sequence[torch.Tensor]
    places: torch.Tensor


class Parameters:
    """Follows the parameters of optimizers from step to step, which it only reads."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.scopes: dict[int, str] = {}
        self._sampled: WeakKeyDictionary[Optimizer, _Sampled] = WeakKeyDictionary()
        self._owned: list[tuple[str, weakref.ref[torch.Tensor]]] = []

    def left_out(self, optimizers: Iterable[Optimizer]) -> list[str]:
        """Return the names of parameters that have a gradient and are in none of these optimizers."""
        held = {id(tensor) for optimizer in optimizers for tensor in parameters_of(optimizer)}
        found = [(name, ref()) for name, ref in self._owned]
        return [name for name, each in found if each is not None and each.grad is not None and id(each) not in held]

    def name(self, owned: Iterable[Owned]) -> None:
        """Know what parameters are called, and whose they are."""
        for entry in owned:
            if id(entry.tensor) not in self.names:
                self.names[id(entry.tensor)] = entry.names[0]
                self.scopes[id(entry.tensor)] = entry.scope
                if entry.is_parameter:
                    self._owned.append((entry.names[0], weakref.ref(entry.tensor)))

    def name_of(self, optimizer: Optimizer, tensor: torch.Tensor) -> str:
        """Return the name of a parameter in its module, or else its place in the optimizer."""
        known = self.names.get(id(tensor))
        if known is not None:
            return known
        place = next(place for place, each in enumerate(parameters_of(optimizer)) if each is tensor)
        return f"{type(optimizer).__name__}.params[{place}]"

    def name_among(self, optimizers: Iterable[Optimizer], tensor: torch.Tensor) -> str:
        """Return the name of a tensor by the one of these optimizers that has it, or else in its module."""
        for optimizer in optimizers:
            if any(each is tensor for each in parameters_of(optimizer)):
                return self.name_of(optimizer, tensor)
        return self.names.get(id(tensor), "")

    def sample(self, optimizer: Optimizer) -> Sample | None:
        """Return a sample of each parameter and its gradient, ``None`` if there is none."""
        sampled = self._sampled_of(optimizer)
        if sampled is None:
            return None
        with torch.no_grad():
            numbers = _numbers(sampled)
            found = [None if tensor.grad is None else held_by(tensor.grad) for tensor in sampled.tensors]
            values = [_real(gradient) for gradient in found if gradient is not None]
            norms, zero = iter(norms_of(values, 2, dtype=_wide_enough(values)) if values else ()), numbers.new_zeros(())
            rows = [zero if gradient is None else next(norms).to(zero.device) for gradient in found]
            return Sample(numbers, torch.stack(rows), [gradient is not None for gradient in found])

    def numbers(self, optimizer: Optimizer) -> torch.Tensor | None:
        """Return the numbers of a sample."""
        sampled = self._sampled_of(optimizer)
        with torch.no_grad():
            return None if sampled is None else _numbers(sampled)

    def moved(self, optimizer: Optimizer, before: Sample | None) -> Sequence[tuple[torch.Tensor, Movement]]:
        """Return how far a step moved each parameter of an optimizer since a sample."""
        sampled = self._sampled_of(optimizer)
        if sampled is None or before is None:
            return []
        with torch.no_grad():
            after = _numbers(sampled)
            if before.numbers.shape != after.shape:
                return []
            change = after - before.numbers
            is_moved = (after != before.numbers).any(1)
            facts = [torch.linalg.vector_norm(change, dim=1), torch.linalg.vector_norm(after, dim=1), is_moved.float()]
            rows = torch.stack([*facts, before.norms.to(after.dtype)]).tolist()
        found = zip(sampled.tensors, before.graded, *rows, strict=True)
        return [
            (tensor, Movement(norm if is_graded else None, update, length, bool(moved)))
            for tensor, is_graded, update, length, moved, norm in found
        ]

    def _sampled_of(self, optimizer: Optimizer) -> _Sampled | None:
        known = self._sampled.get(optimizer)
        # Of what is sharded, a rank may have nothing.
        tensors = [each for each in parameters_of(optimizer) if each.requires_grad and held_by(each).numel()]
        pointers = [held_by(tensor).data_ptr() for tensor in tensors if not tensor.is_meta]
        if known is not None and known.pointers == pointers and len(known.tensors) == len(tensors):
            return known
        if not tensors or len(pointers) < len(tensors):
            return None
        views, places, start = list[torch.Tensor](), list[list[int]](), 0
        # One device has to be enough: what is on another is looked at there by whoever has it.
        device = held_by(tensors[0]).device
        kept = [tensor for tensor in tensors if held_by(tensor).device == device]
        for tensor in kept:
            views.append(_some_of(held_by(tensor).detach()))
            count = views[-1].numel()
            places.append([start + place % count for place in range(_SAMPLE)])
            start += count
        self._sampled[optimizer] = _Sampled(kept, pointers, views, torch.tensor(places, device=device))
        return self._sampled[optimizer]


def _numbers(sampled: _Sampled) -> torch.Tensor:
    kind = _wide_enough(sampled.views)
    return torch.cat([view.to(kind) for view in sampled.views])[sampled.places]


def parameters_of(optimizer: Optimizer) -> list[torch.Tensor]:
    """Return the tensors of an optimizer, in the order of its groups."""
    return [tensor for group in optimizer.param_groups for tensor in group["params"]]


def checksum(tensors: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """Return a number of the bits of each tensor, which differs, but for the rarest chance, if any bit does."""
    found = {}
    with torch.no_grad():
        for name, tensor in tensors.items():
            values = numbers_in(held_by(tensor)).contiguous()
            bits = values.view(torch.uint8).view(-1)
            words = bits[: bits.numel() // 4 * 4].view(torch.int32)
            turned = words[: words.numel() // 2 * 2].view(-1, 2)[:, 0] if words.numel() else words
            found[name] = hash((int(words.sum()), int(turned.sum()), int(bits.sum())))
    return found


def _wide_enough(tensors: Sequence[torch.Tensor]) -> torch.dtype:
    return torch.float64 if any(tensor.dtype is torch.float64 for tensor in tensors) else torch.float32


def _real(gradient: torch.Tensor) -> torch.Tensor:
    if gradient.layout is torch.strided and gradient.is_floating_point():
        return gradient.detach()
    values = numbers_in(gradient)
    return values if values.dtype is torch.float64 else values.float()


def _some_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view of some numbers of a tensor, at equal distances in its memory."""
    try:
        flat = tensor.view(-1)
    except RuntimeError:
        # Dense in another order, as images are whose channels come last.
        flat = tensor.permute(sorted(range(tensor.dim()), key=tensor.stride, reverse=True)).reshape(-1)
    return flat[:: max(1, math.ceil(tensor.numel() / _SAMPLE))]


_STATUS: Final = Path("/proc/self/statm")


def memory_of(tensors: Sequence[torch.Tensor]) -> int:
    """Return the bytes that the device of the first tensor has allocated, or on a processor that this process has."""
    device = tensors[0].device if tensors else torch.device("cpu")
    if device.type == "cuda":
        return int(torch.cuda.memory_allocated(device))
    with suppress(OSError, ValueError, IndexError):
        return int(_STATUS.read_text().split()[1]) * mmap.PAGESIZE
    return 0


class ByHand(Optimizer):
    """Stands for the optimizer of a program without one: it has the leaves behind the last backward."""

    def __init__(self) -> None:
        # It is none of the program's, and never steps by itself.
        self.param_groups = [{"params": []}]

    def take(self, tensors: object) -> bool:
        """Take the leaves behind a backward; return whether they can be the same parameters as before."""
        fns = (fn for fn in walk(flatten(tensors)).order if type(fn).__name__ == ACCUMULATOR)
        behind: list[torch.Tensor] = [fn.variable for fn in fns if not isinstance(fn, int)]
        # Beside parameters, other leaves are inputs.
        leaves = [leaf for leaf in behind if isinstance(leaf, nn.Parameter)] or behind
        before, self.param_groups[0]["params"] = self.param_groups[0]["params"], leaves
        kept = {leaf is each for leaf, each in zip(before, leaves, strict=False)}
        return len(kept) == 1 and [leaf.shape for leaf in before] == [leaf.shape for leaf in leaves]
