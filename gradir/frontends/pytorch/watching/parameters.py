"""Follow the parameters of optimizers: their names, their gradients, and their changes in a step."""

from __future__ import annotations

import math
import mmap
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from gradir.frontends.pytorch.private import ACCUMULATOR, norms_of
from gradir.frontends.pytorch.reading.outputs import flatten
from gradir.frontends.pytorch.reading.tensors import Owned, read_stored_values, unwrap_tensor
from gradir.frontends.pytorch.reading.walk import walk
from gradir.ir.memo import group_by_key

# Number of sampled entries of each parameter.
_SAMPLE: Final = 64


class Movement(NamedTuple):
    """The gradient norm of a parameter, the norms of its update and itself in a sample, and whether it changed."""

    norm: float | None
    update: float
    length: float
    moved: bool


Moved: TypeAlias = "Mapping[str, tuple[torch.Tensor, Movement]]"
"""The movement of each parameter, by name."""


class Sample(NamedTuple):
    """Sampled entries of each parameter, one row each, with gradient norms and whether each has a gradient."""

    numbers: torch.Tensor
    norms: torch.Tensor
    graded: Sequence[bool]


class _Sampled(NamedTuple):
    tensors: Sequence[torch.Tensor]
    pointers: Sequence[int]
    views: Sequence[torch.Tensor]
    places: torch.Tensor


class Parameters:
    """Follows the parameters of optimizers from step to step without changing them."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.scopes: dict[int, str] = {}
        self._sampled: WeakKeyDictionary[Optimizer, _Sampled] = WeakKeyDictionary()
        # Each parameter with its name, and whether it was frozen at first.
        self._owned: list[tuple[str, weakref.ref[torch.Tensor], bool]] = []

    def find_unused(self, optimizers: Iterable[Optimizer], *, thawed: bool = False) -> list[str]:
        """Return the names of parameters, perhaps only ``thawed`` ones, with a gradient and in no optimizer."""
        known = ((name, ref()) for name, ref, was_frozen in self._owned if was_frozen or not thawed)
        graded = [(name, each) for name, each in known if each is not None and each.grad is not None]
        used = {id(tensor) for optimizer in (optimizers if graded else ()) for tensor in parameters_of(optimizer)}
        return [name for name, each in graded if id(each) not in used]

    def add_names(self, owned: Iterable[Owned]) -> None:
        """Record the names and modules of parameters."""
        for entry in owned:
            if id(entry.tensor) not in self.names:
                self.names[id(entry.tensor)] = entry.names[0]
                self.scopes[id(entry.tensor)] = entry.scope
                if entry.is_parameter:
                    self._owned.append((entry.names[0], weakref.ref(entry.tensor), not entry.tensor.requires_grad))

    def name_of(self, optimizer: Optimizer, tensor: torch.Tensor) -> str:
        """Return the name of a parameter in its module, or else its index in the optimizer."""
        known = self.names.get(id(tensor))
        if known is not None:
            return known
        place = next(place for place, each in enumerate(parameters_of(optimizer)) if each is tensor)
        return f"{type(optimizer).__name__}.params[{place}]"

    def name_among(self, optimizers: Iterable[Optimizer], tensor: torch.Tensor) -> str:
        """Return `name_of` a tensor in one of these optimizers, or else its name in its module."""
        for optimizer in optimizers:
            if any(each is tensor for each in parameters_of(optimizer)):
                return self.name_of(optimizer, tensor)
        return self.names.get(id(tensor), "")

    def sample(self, optimizer: Optimizer) -> Sample | None:
        """Return a sample of each parameter and its gradient, ``None`` if the optimizer has no parameters."""
        sampled = self._find_sampled(optimizer)
        if sampled is None:
            return None
        with torch.no_grad():
            numbers = _read_entries(sampled)
            found = [None if tensor.grad is None else unwrap_tensor(tensor.grad) for tensor in sampled.tensors]
            values = [_real(gradient) for gradient in found if gradient is not None]
            norms, zero = iter(norms_of(values, 2, dtype=_wide_enough(values)) if values else ()), numbers.new_zeros(())
            rows = [zero if gradient is None else next(norms).to(zero.device) for gradient in found]
            return Sample(numbers, torch.stack(rows), [gradient is not None for gradient in found])

    def numbers(self, optimizer: Optimizer) -> torch.Tensor | None:
        """Return the sampled entries of all parameters."""
        sampled = self._find_sampled(optimizer)
        with torch.no_grad():
            return None if sampled is None else _read_entries(sampled)

    def measure(self, optimizer: Optimizer, before: Sample | None) -> Sequence[tuple[torch.Tensor, Movement]]:
        """Return the change of each parameter of an optimizer since a sample."""
        after = None if before is None else self.numbers(optimizer)
        if before is None or after is None:
            return []
        with torch.no_grad():
            if before.numbers.shape != after.shape:
                return []
            change = after - before.numbers
            is_moved = (after != before.numbers).any(1)
            facts = [torch.linalg.vector_norm(change, dim=1), torch.linalg.vector_norm(after, dim=1), is_moved.float()]
            rows = torch.stack([*facts, before.norms.to(after.dtype)]).tolist()
        found = zip(self._sampled[optimizer].tensors, before.graded, *rows, strict=True)
        return [
            (tensor, Movement(norm if is_graded else None, update, length, bool(moved)))
            for tensor, is_graded, update, length, moved, norm in found
        ]

    def sum_by_module(self, moved: Moved) -> Mapping[str, tuple[float | None, float | None]]:
        """Return by module the norm of its gradients and its update ratio."""
        owned = ((self.scopes.get(id(tensor), name), movement) for name, (tensor, movement) in moved.items())
        found = {}
        for path, parts in group_by_key(owned).items():
            norms = [each.norm for each in parts if each.norm is not None]
            update, length = math.hypot(*(each.update for each in parts)), math.hypot(*(each.length for each in parts))
            found[path] = math.hypot(*norms) if norms else None, update / length if length else None
        return found

    def _find_sampled(self, optimizer: Optimizer) -> _Sampled | None:
        known = self._sampled.get(optimizer)
        # A rank may have no part of a sharded parameter.
        trained = (each for each in parameters_of(optimizer) if each.requires_grad and not is_lazy(each))
        tensors = [each for each in trained if unwrap_tensor(each).numel()]
        pointers = [unwrap_tensor(tensor).data_ptr() for tensor in tensors if not tensor.is_meta]
        if known is not None and known.pointers == pointers and len(known.tensors) == len(tensors):
            return known
        if not tensors or len(pointers) < len(tensors):
            return None
        views, places, start = list[torch.Tensor](), list[list[int]](), 0
        # Sample only one device. Ranks with other devices sample those.
        device = unwrap_tensor(tensors[0]).device
        local = [tensor for tensor in tensors if unwrap_tensor(tensor).device == device]
        for tensor in local:
            views.append(_sample_view(unwrap_tensor(tensor).detach()))
            count = views[-1].numel()
            places.append([start + place % count for place in range(_SAMPLE)])
            start += count
        self._sampled[optimizer] = _Sampled(local, pointers, views, torch.tensor(places, device=device))
        return self._sampled[optimizer]


def _read_entries(sampled: _Sampled) -> torch.Tensor:
    kind = _wide_enough(sampled.views)
    return torch.cat([view.to(kind) for view in sampled.views])[sampled.places]


def parameters_of(optimizer: Optimizer) -> list[torch.Tensor]:
    """Return the tensors of an optimizer, in the order of its groups."""
    return [tensor for group in optimizer.param_groups for tensor in group["params"]]


def _wide_enough(tensors: Sequence[torch.Tensor]) -> torch.dtype:
    return torch.float64 if any(tensor.dtype is torch.float64 for tensor in tensors) else torch.float32


def _real(gradient: torch.Tensor) -> torch.Tensor:
    if gradient.layout is torch.strided and gradient.is_floating_point():
        return gradient.detach()
    values = read_stored_values(gradient)
    return values if values.dtype is torch.float64 else values.float()


def _sample_view(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view of some entries of a tensor, at equal distances in its storage."""
    try:
        flat = tensor.view(-1)
    except RuntimeError:
        # The tensor is dense in another order, such as channels last.
        flat = tensor.permute(sorted(range(tensor.dim()), key=tensor.stride, reverse=True)).reshape(-1)
    return flat[:: max(1, math.ceil(tensor.numel() / _SAMPLE))]


_STATUS: Final = Path("/proc/self/statm")


def memory_of(tensors: Sequence[torch.Tensor]) -> int:
    """Return the allocated bytes of the first tensor's GPU, or the resident bytes of this process."""
    device = tensors[0].device if tensors else torch.device("cpu")
    if device.type == "cuda":
        return int(torch.cuda.memory_allocated(device))
    with suppress(OSError, ValueError, IndexError):
        return int(_STATUS.read_text().split()[1]) * mmap.PAGESIZE
    return 0


class ByHand(Optimizer):
    """Represents the optimizer of a program without one, with the leaves of the last backward pass."""

    def __init__(self) -> None:
        # Without the base class's __init__, which gradir patches, it is no optimizer of the program.
        self.param_groups = [{"params": []}]

    def take_leaves(self, tensors: object) -> bool:
        """Take the leaves of a backward pass; return whether they can be the same parameters as before."""
        fns = (fn for fn in walk(flatten(tensors)).order if type(fn).__name__ == ACCUMULATOR)
        found: list[torch.Tensor] = [fn.variable for fn in fns if not isinstance(fn, int)]
        # If there are parameters, other leaves are inputs.
        leaves = [leaf for leaf in found if isinstance(leaf, nn.Parameter)] or found
        before, self.param_groups[0]["params"] = self.param_groups[0]["params"], leaves
        is_same = {leaf is each for leaf, each in zip(before, leaves, strict=False)}
        return len(is_same) == 1 and [leaf.shape for leaf in before] == [leaf.shape for leaf in leaves]
