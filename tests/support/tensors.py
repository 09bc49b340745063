"""Tensors that need no thought. For test modules that know that torch is there."""

from __future__ import annotations

import torch

__all__ = ["leaf"]


def leaf(*shape: int) -> torch.Tensor:
    """A tensor of ones that requires a gradient."""
    return torch.ones(shape, requires_grad=True)
