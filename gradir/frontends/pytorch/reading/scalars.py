"""Numbers of the program's text that torch saved as tensors."""

from __future__ import annotations

import cmath
from typing import Final

import torch

from gradir.frontends.pytorch.private import without_dispatch_modes, without_overrides
from gradir.frontends.pytorch.reading.attributes import plain_value
from gradir.ir import AttrValue

__all__ = ["PROBES", "number_of"]

PROBES: Final = {
    torch.int64: torch.zeros((), dtype=torch.int8),
    torch.float64: torch.zeros((), dtype=torch.float32),
    torch.complex128: torch.zeros((), dtype=torch.complex64),
}
"""By the dtype that a Python number has as a tensor, a scalar of the same kind and a smaller dtype."""

_SYMBOLIC: Final = 7777777
"""What torch makes a tensor of where the number is a symbolic size; of a symbolic float it makes nan."""


def number_of(tensor: torch.Tensor, probe: torch.Tensor) -> AttrValue:
    """The number that ``tensor`` was made of, ``None`` where it is a tensor of the user's or the number is not known.

    torch lets a number give way to any tensor of its kind, and the larger of two scalar tensors win: so the dtype that
    ``tensor`` and its ``probe`` have together tells which of the two it is. Source: "Type promotion" in the notes on
    tensor attributes of torch's documentation.

    >>> fn = (torch.ones(2, requires_grad=True) * 0.5).grad_fn
    >>> number_of(fn._raw_saved_other.data, PROBES[torch.float64])
    0.5
    >>> number_of(torch.tensor(0.5, dtype=torch.float64), PROBES[torch.float64])
    """
    if type(tensor) is not torch.Tensor or not tensor.is_cpu:
        return None
    # No mode of the user's need be told of this.
    with without_dispatch_modes(), without_overrides():
        if torch.result_type(tensor, probe) is not probe.dtype:
            return None
        number = tensor.item()
    return None if cmath.isnan(number) or number == _SYMBOLIC else plain_value(number)
