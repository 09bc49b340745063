"""Parameters that lie inside one flat tensor of many, in whose place it is in the graph."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import nn

from gradir.frontends.pytorch.private import FLAT_PARAMETER
from gradir.frontends.pytorch.reading.tensors import held_by, storage_of

__all__ = ["FlatParameters"]


class _Extent(NamedTuple):
    """The bytes of a storage between which a tensor lies."""

    start: int
    end: int


class FlatParameters:
    """The flat parameters among some leaves.

    A leaf counts as flat when FSDP says so, or when it is a parameter of one dimension. Only the former replaces a part
    that is as long as itself: anything else is another tensor on the same memory, such as a detached copy.
    """

    def __init__(self, leaves: Iterable[torch.Tensor]) -> None:
        found: defaultdict[int, list[_Extent]] = defaultdict(list)
        self._whole: set[tuple[int, _Extent]] = set()
        for leaf in leaves:
            storage = storage_of(leaf)
            if storage is None or leaf.dim() != 1 or not isinstance(leaf, nn.Parameter):
                continue
            extent = _extent(held_by(leaf))
            found[storage].append(extent)
            if getattr(leaf, FLAT_PARAMETER, False):
                self._whole.add((storage, extent))
        self._starts = {storage: sorted(extent.start for extent in extents) for storage, extents in found.items()}
        # The furthest end of the first so many.
        self._ends = {
            storage: list(accumulate((extent.end for extent in sorted(extents)), max))
            for storage, extents in found.items()
        }

    def contain(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is a part of a flat parameter."""
        storage = storage_of(tensor)
        if storage is None or storage not in self._starts:
            return False
        extent = _extent(held_by(tensor))
        starts, ends = self._starts[storage], self._ends[storage]
        before, until = bisect_left(starts, extent.start), bisect_right(starts, extent.start)
        if before and ends[before - 1] >= extent.end:
            return True
        return bool(until and ends[until - 1] > extent.end) or (storage, extent) in self._whole


def _extent(tensor: torch.Tensor) -> _Extent:
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    length = 1 + sum((size - 1) * stride for size, stride in steps) if tensor.numel() else 0
    start, size = int(tensor.storage_offset()), tensor.element_size()
    return _Extent(start * size, (start + int(length)) * size)
