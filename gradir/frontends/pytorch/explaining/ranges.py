"""Gradients that leave the range of their type: too small for float16, or growing from step to step of a loop."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import torch

from gradir.frontends.pytorch.explaining.gradients import Gradients, is_zero
from gradir.frontends.pytorch.reading.layouts import numbers_in
from gradir.frontends.pytorch.reading.saved import saved_tensor
from gradir.frontends.pytorch.reading.walk import GradFn
from gradir.ir import Node

__all__ = ["grows", "overflows", "underflows"]

_FACTORS: Final = ("self", "other", "mat1", "mat2", "vec", "input", "weight", "batch1", "batch2")
"""What functions save that multiply a gradient."""

_MULTIPLYING: Final = frozenset({"addmm", "bmm", "convolution", "div", "mean", "mm", "mse_loss", "mul", "mv", "pow"})
_SMALL: Final = 2.0**-9
"""Of a smaller gradient the product with what is usual in a network may be too small for float16."""

_LARGE: Final = 1e15


def underflows(fn: GradFn, node: Node, gradients: Gradients) -> bool:
    """Whether a function makes a gradient zero only because its type has no smaller numbers."""
    came = max((size.largest for size in gradients.passed(fn).came if size is not None), default=0.0)
    if not came:
        return False
    if node.op == "to_copy":
        # A conversion multiplies by 1.
        return True
    is_half = bool(node.outputs) and node.outputs[0].dtype == "float16"
    return is_half and node.op in _MULTIPLYING and came < _SMALL and not any(map(is_zero, _factors(fn)))


def overflows(fn: GradFn, node: Node) -> bool:
    """Whether a function makes a gradient infinite in float16, although all that it multiplies is finite."""
    is_half = bool(node.outputs) and node.outputs[0].dtype == "float16"
    return is_half and node.op in _MULTIPLYING and all(math.isfinite(_largest(factor)) for factor in _factors(fn))


def grows(fns: Iterable[GradFn], gradients: Gradients) -> bool:
    """Whether numbers or gradients of a loop, whose functions these are, grow to the end of their range."""
    for fn in fns:
        passed = gradients.passed(fn)
        sizes = [size.largest for size in (*passed.came, *passed.went) if size is not None]
        if any(_LARGE < size < math.inf for size in (*sizes, *map(_largest, _factors(fn)))):
            return True
    return False


def _factors(fn: GradFn) -> list[torch.Tensor]:
    found = (saved_tensor(fn, name) for name in _FACTORS)
    return [tensor for tensor in found if tensor is not None and tensor.is_floating_point() and tensor.numel()]


def _largest(tensor: torch.Tensor) -> float:
    return float(numbers_in(tensor.detach()).abs().max())
