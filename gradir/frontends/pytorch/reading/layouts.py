"""The numbers in tensors of any layout, of which torch does not do with all what it does with the usual one."""

from __future__ import annotations

import torch

__all__ = ["number_of", "numbers_in", "ones_for"]


def numbers_in(tensor: torch.Tensor) -> torch.Tensor:
    """The numbers that a tensor stores, as a tensor of the usual layout."""
    values = tensor.detach()
    if values.layout is torch.sparse_coo:
        return values.coalesce().values()
    if values.is_mkldnn:
        return values.to_dense()
    # A copy: torch takes the parts of what it calls a view of a compressed layout for views of that.
    return values.values().clone() if values.is_nested or values.layout is not torch.strided else values


def ones_for(tensor: torch.Tensor) -> torch.Tensor:
    """A gradient for a tensor, in its layout, with a 1 wherever that stores a number."""
    if tensor.layout is torch.strided:
        return torch.ones_like(tensor)
    if tensor.is_mkldnn:
        return torch.ones(tensor.shape, dtype=tensor.dtype).to_mkldnn()
    with torch.no_grad():
        ones = tensor.detach().clone()
        ones = ones.coalesce() if ones.layout is torch.sparse_coo else ones
        ones.values().fill_(1)
        return ones


def number_of(tensors: object) -> float | None:
    """The number that a backward starts from, if it is one."""
    tensor = tensors[0] if isinstance(tensors, tuple) and len(tensors) == 1 else tensors
    if not isinstance(tensor, torch.Tensor) or tensor.numel() != 1 or tensor.is_meta or tensor.is_complex():
        return None
    return float(tensor.detach())
