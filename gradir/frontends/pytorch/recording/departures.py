"""Recognise values that left torch, for instance into a file, and came back."""

from __future__ import annotations

from contextlib import suppress
from typing import Final, TypeAlias

import torch
from torch import nn

from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.reading.tensors import PLAIN
from gradir.frontends.pytorch.recording.steps import Exit

_Print: TypeAlias = "tuple[int, tuple[float, ...]]"

# Functions through which the values of a whole tensor leave torch, with the word for each in a report. Mostly pickle
# and safetensors call the last two, to save a tensor.
LEAVING: Final = {
    **{name: name for name in ("__array__", "numpy", "tolist")},
    **dict.fromkeys(("data_ptr", "untyped_storage"), "saving"),
}
# The number of values that are compared, besides the size, and the number of tensors that are remembered.
_FIRST: Final = 32
_MOST: Final = 1000


class Departures:
    """Tensors whose values left."""

    def __init__(self) -> None:
        self._left: dict[_Print, Exit] = {}

    def note(self, tensor: torch.Tensor, departure: Exit) -> None:
        """Record a departure."""
        found = _print_of(tensor)
        if found is not None:
            self._left.setdefault(found, departure)
            if len(self._left) > _MOST:
                del self._left[next(iter(self._left))]

    def find(self, tensor: torch.Tensor) -> Exit | None:
        """Return the departure of equal values, if any."""
        found = _print_of(tensor) if self._left and not isinstance(tensor, nn.Parameter) else None
        return None if found is None else self._left.get(found)


def _print_of(tensor: torch.Tensor) -> _Print | None:
    # A constant tensor, or one that is not plain, cannot be recognised.
    if type(tensor) not in PLAIN or not tensor.is_floating_point() or tensor.is_meta:
        return None
    first: tuple[float, ...] = ()
    # Some tensors cannot be read, for instance in another layout or inside torch.func.vmap.
    with suppress(RuntimeError), private.without_dispatch_modes(), private.without_overrides(), torch.no_grad():
        first = tuple(tensor.view(-1)[:_FIRST].tolist()) if tensor.is_contiguous() else ()
    return (tensor.numel(), first) if len(set(first)) > 1 else None
