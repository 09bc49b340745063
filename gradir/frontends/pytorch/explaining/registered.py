"""What modules keep besides their parameters, and parameters that were one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import torch
from torch import nn

from gradir.frontends.pytorch.reading.tensors import held_by

__all__ = ["broken_ties", "kept_aside"]

_OF_TORCH: Final = frozenset(vars(nn.Module()))


def kept_aside(paths: Mapping[nn.Module, str]) -> dict[str, torch.Tensor]:
    """The leaves that modules keep in lists, dicts and plain attributes, by where they are."""
    found: dict[str, torch.Tensor] = {}
    for module, path in paths.items():
        for name, value in vars(module).items():
            if name not in _OF_TORCH:
                _collect(f"{path}.{name}" if path else name, value, found)
    return found


def broken_ties(paths: Mapping[nn.Module, str]) -> list[tuple[str, str]]:
    """The weights of embeddings and linear modules that are two tensors of equal numbers, as loading may leave them."""
    embeddings, linears = dict[str, torch.Tensor](), dict[str, torch.Tensor]()
    for module, path in paths.items():
        where = f"{path}.weight" if path else "weight"
        if isinstance(module, nn.Embedding):
            embeddings[where] = module.weight
        elif isinstance(module, nn.Linear):
            linears[where] = module.weight
    return [
        (one, other)
        for one, embedding in embeddings.items()
        for other, linear in linears.items()
        if _are_copies(embedding, linear)
    ]


def _are_copies(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one is other or one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
        return False
    # To compare distributed tensors takes all processes; the parts that this one has tell enough.
    one, other = held_by(one.detach()), held_by(other.detach())
    # Equal numbers throughout are an initialisation, and no copy.
    return bool(one.numel() > 1 and torch.equal(one, other) and one.min() != one.max())


def _collect(name: str, value: object, found: dict[str, torch.Tensor]) -> None:
    if isinstance(value, torch.Tensor):
        if value.is_leaf and value.requires_grad:
            found[name] = value
    elif isinstance(value, (list, tuple, dict)):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for key, entry in entries:
            if isinstance(entry, torch.Tensor):
                _collect(f"{name}[{key!r}]", entry, found)
            elif isinstance(entry, nn.Module):
                for own, parameter in entry.named_parameters():
                    _collect(f"{name}[{key!r}].{own}", parameter, found)
