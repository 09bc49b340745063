"""The module tree as a table of scopes, and the parameters that gradient does not reach."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from itertools import accumulate
from typing import TypeAlias

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from gradir.frontends.pytorch.private import FLAT_PARAMETER
from gradir.frontends.pytorch.reading.attributes import MetadataReader
from gradir.frontends.pytorch.reading.members import details_of, is_training
from gradir.frontends.pytorch.reading.tensors import Extent, Owned, extent_of, held_by, storage_of
from gradir.frontends.texts import plain_text
from gradir.frontends.walks import paths_above
from gradir.ir import Cut, Scope
from gradir.ir.memo import Memo


class FlatParameters:
    """The flat parameters among some leaves.

    A leaf counts as flat when FSDP says so, or when it is a parameter of one dimension. Only the former replaces a part
    that is as long as itself: anything else is another tensor on the same memory, such as a detached copy.
    """

    def __init__(self, leaves: Iterable[torch.Tensor]) -> None:
        found: defaultdict[int, list[Extent]] = defaultdict(list)
        self._whole: set[tuple[int, Extent]] = set()
        for leaf in leaves:
            storage = storage_of(leaf)
            if storage is None or leaf.dim() != 1 or not isinstance(leaf, nn.Parameter):
                continue
            extent = extent_of(held_by(leaf))
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
        """Return whether a tensor is a part of a flat parameter."""
        storage = storage_of(tensor)
        if storage is None or storage not in self._starts:
            return False
        extent = extent_of(held_by(tensor))
        starts, ends = self._starts[storage], self._ends[storage]
        before, until = bisect_left(starts, extent.start), bisect_right(starts, extent.start)
        if before and ends[before - 1] >= extent.end:
            return True
        return bool(until and ends[until - 1] > extent.end) or (storage, extent) in self._whole


_MAX_DETAIL = 1_000

_Counts: TypeAlias = defaultdict[str, int]


def scope_table(paths: Mapping[nn.Module, str], owned: Iterable[Owned], calls: Mapping[int, int]) -> tuple[Scope, ...]:
    """One `Scope` per module, in registration order; ``calls`` are by id() of the modules."""
    own, total, trainable = _parameter_counts(owned)
    class_names = Memo[type, str](lambda kind: plain_text(kind.__name__))
    details = Memo[str, str](lambda text: plain_text(" ".join(text.split()))[:_MAX_DETAIL])
    return tuple(
        [
            Scope(
                path,
                class_names[type(module)],
                details[detail] if (detail := details_of(module)) else "",
                calls.get(id(module), 0),
                own[path],
                total[path],
                trainable[path],
                is_training(module),
            )
            for module, path in paths.items()
        ]
    )


def _parameter_counts(owned: Iterable[Owned]) -> tuple[_Counts, _Counts, _Counts]:
    """By path: the elements of the module's own parameters, of those of its whole subtree, the trainable of these."""
    counts: defaultdict[tuple[str, ...], int] = defaultdict(int)
    asking: defaultdict[tuple[str, ...], int] = defaultdict(int)
    for entry in owned:
        tensor, names, scope, _ = entry
        if type(tensor) is nn.Parameter or (entry.is_parameter and not is_lazy(tensor)):
            count = tensor.numel()
            if type(count) is not int:
                # It depends on a symbolic size.
                continue
            owners = (scope,) if len(names) == 1 else tuple(dict.fromkeys(name.rpartition(".")[0] for name in names))
            counts[owners] += count
            asking[owners] += count if tensor.requires_grad else 0
    own, total, trainable = (_Counts(int), _Counts(int), _Counts(int))
    for owners, count in counts.items():
        for path in owners:
            own[path] += count
        # What is tied counts once in a module above all its owners.
        for above in dict.fromkeys(ancestor for owner in owners for ancestor in paths_above(owner)):
            total[above] += count
            trainable[above] += asking[owners]
    return own, total, trainable


def cuts(
    unreached: Iterable[Owned], hidden: Collection[int], placements: Mapping[int, tuple[str, ...]]
) -> tuple[Cut, ...]:
    """Return a cut for each trainable parameter outside the graph; a function may still reach the ``hidden`` ones."""
    metadata = MetadataReader(placements=placements)
    return tuple(
        Cut("hidden" if id(tensor) in hidden else "unreached", names, scope, metadata.of_owned(tensor))
        for tensor, names, scope, _ in unreached
    )
