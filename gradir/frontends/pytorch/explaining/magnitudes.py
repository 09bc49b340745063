"""How large a gradient is, found in as few looks at its numbers as possible."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import torch

from gradir.frontends.pytorch.reading.tensors import numbers_in

__all__ = ["Size", "size_of"]

_HALF: Final = 2
"""The bytes of numbers whose squares are beyond their type soon."""


class Size(NamedTuple):
    """How large a gradient is: the largest number in it that is finite, whether all are, and the norm if they are."""

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
