"""What a backward brings to leaves, and how large a gradient is, found in as few looks at its numbers as possible."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import torch
from torch.utils.hooks import RemovableHandle

from gradir.errors import CaptureError
from gradir.frontends.pytorch.private import CHECKPOINT, current_backward
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.reading.tensors import held_by, numbers_in, ones_for
from gradir.frontends.pytorch.verifying.verify import left_alone, removing

# The squares of numbers of this many bytes soon exceed their dtype.
_HALF: Final = 2


class Size(NamedTuple):
    """The size of a gradient: its largest finite number, whether all are finite, and the norm if they are."""

    largest: float
    is_finite: bool
    norm: float = 0.0

    @property
    def value(self) -> float | str:
        """The norm, or a word where that tells nothing."""
        return "nonfinite" if not self.is_finite else self.norm if self.largest else "zero"


def size_of(gradient: torch.Tensor | None, *, is_exact: bool = True) -> Size | None:
    """The size of a gradient; if not exact, the norm may stand for the largest number, which takes longer to find."""
    if gradient is None:
        return None
    values = numbers_in(gradient)
    if not values.numel():
        return Size(0.0, is_finite=True)
    norm = float(torch.linalg.vector_norm(values if values.dtype.itemsize > _HALF else values.float()))
    # The squares of small numbers may be nothing, and those of large ones too much.
    if not is_exact and 0 < norm < math.inf:
        return Size(norm, is_finite=True, norm=norm)
    largest = _largest(values)
    if math.isfinite(largest):
        return Size(largest, is_finite=True, norm=max(norm, largest) if math.isfinite(norm) else largest)
    finite = values[torch.isfinite(values)]
    return Size(_largest(finite) if finite.numel() else 0.0, is_finite=False)


def _largest(values: torch.Tensor) -> float:
    # In another order than that of the memory, torch takes up to fifty times as long.
    values = values.permute(sorted(range(values.dim()), key=values.stride, reverse=True))
    if values.is_complex():
        return float(values.abs().max())
    return max(abs(float(bound)) for bound in torch.aminmax(values))


def held_gradients(tensors: Mapping[str, torch.Tensor]) -> dict[str, float | str]:
    """Return the norms of what leaves have in `.grad`, or ``zero`` or ``nonfinite``; nothing of those without."""
    sizes = {
        name: None if leaf.grad is None or leaf.grad.is_meta else size_of(leaf.grad) for name, leaf in tensors.items()
    }
    return {name: size.value for name, size in sizes.items() if size is not None}


def run_backward(
    live: LiveGraph, register: Callable[[], Iterable[RemovableHandle]]
) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
    """Run a backward and return what it brings to the leaves; ``register`` makes the hooks for it."""
    tensors = [found.tensor for found in live.captured if found.role == "output"]
    leaves = list({id(tensor): tensor for tensor in live.leaves.values()}.values())
    # A reentrant checkpoint runs in no other backward than one that adds up.
    adds = any(type(fn).__name__ == CHECKPOINT for fn in live.grad_fns)
    if any(tensor.is_meta for tensor in (*tensors, *leaves)):
        raise CaptureError("tensors on the meta device have no numbers")
    if current_backward() != -1:
        # torch would wait for itself.
        raise CaptureError("a backward is running")
    with left_alone(live) as leave:
        hooks = [*register(), *(fn.register_prehook(leave) for fn in live.grad_fns)]
        found: Sequence[torch.Tensor | None] = ()
        with removing(hooks), torch.autograd.set_multithreading_enabled(False):
            seeds = [ones_for(tensor) for tensor in tensors]
            if adds:
                torch.autograd.backward(tensors, seeds, retain_graph=True)
                found = [leaf.grad for leaf in leaves]
            elif leaves:
                found = torch.autograd.grad(tensors, leaves, seeds, retain_graph=True, allow_unused=True)
        return list(zip(leaves, found, strict=True))


def is_zero(leaf: torch.Tensor) -> bool:
    """Return whether what this process has of a leaf is zero throughout."""
    held = held_by(leaf.detach())
    # The memory of what `fully_shard` gathers is freed between the passes.
    has_memory = held.layout is not torch.strided or held.untyped_storage().nbytes() > 0
    if not has_memory:
        return False
    values = numbers_in(held)
    # One number that is not zero tells, and torch looks at all.
    return not (values.numel() and values[(0,) * values.dim()]) and not bool(values.any())
