"""Recognise numbers that left torch, as into a file, and come back."""

from __future__ import annotations

from contextlib import suppress
from typing import Final, TypeAlias

import torch
from torch import nn

from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.reading.tensors import PLAIN
from gradir.frontends.pytorch.recording.steps import Exit

_Print: TypeAlias = "tuple[int, tuple[float, ...]]"

# Functions by which the numbers of a whole tensor leave torch, and what they are called for where a program does not
# call them itself: by pickle and safetensors.
LEAVING: Final = {
    **{name: name for name in ("__array__", "numpy", "tolist")},
    **dict.fromkeys(("data_ptr", "untyped_storage"), "saving"),
}
# How many numbers are compared, beside the count of all, and how many tensors are known.
_FIRST: Final = 32
_MOST: Final = 1000


class Departures:
    """Tensors whose numbers left."""

    def __init__(self) -> None:
        self._left: dict[_Print, Exit] = {}

    def note(self, tensor: torch.Tensor, departure: Exit) -> None:
        """Note a departure."""
        found = _print_of(tensor)
        if found is not None:
            self._left.setdefault(found, departure)
            if len(self._left) > _MOST:
                del self._left[next(iter(self._left))]

    def find(self, tensor: torch.Tensor) -> Exit | None:
        """Return by what equal numbers left, if any."""
        found = _print_of(tensor) if self._left and not isinstance(tensor, nn.Parameter) else None
        return None if found is None else self._left.get(found)


def _print_of(tensor: torch.Tensor) -> _Print | None:
    # Equal floats, and those of no plain tensor, tell nothing.
    if type(tensor) not in PLAIN or not tensor.is_floating_point() or tensor.is_meta:
        return None
    first: tuple[float, ...] = ()
    # Some cannot be read, such as those of another layout, or inside of torch.func.vmap.
    with suppress(RuntimeError), private.without_dispatch_modes(), private.without_overrides(), torch.no_grad():
        first = tuple(tensor.view(-1)[:_FIRST].tolist()) if tensor.is_contiguous() else ()
    return (tensor.numel(), first) if len(set(first)) > 1 else None
