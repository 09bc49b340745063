"""What modules keep besides their parameters, parameters that were one, and those that an optimizer lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Final

import torch
from torch import nn

__all__ = ["broken_ties", "kept_aside", "replaced"]

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


def replaced(trained: Sequence[torch.Tensor], parameters: Mapping[str, torch.Tensor], used: Set[int]) -> list[str]:
    """The names of the parameters in whose places an optimizer has others, which a model no longer has.

    That is known where it has all of a model's in their order but for these, which are not among the ``used`` by id();
    where it has none of them, if all are of the same shapes.
    """
    given, own = ({id(tensor): tensor for tensor in tensors} for tensors in (trained, parameters.values()))
    for learning in (list(own.values()), [tensor for tensor in own.values() if tensor.requires_grad]):
        pairs = list(zip(given.values(), learning, strict=False))
        exchanged = [(old, new) for old, new in pairs if old is not new]
        if len(given) != len(learning) or any(
            id(old) in own or id(old) in used or id(new) in given for old, new in exchanged
        ):
            continue
        if len(exchanged) < len(pairs) or all(old.shape == new.shape for old, new in exchanged):
            new_ones = {id(new) for _, new in exchanged}
            return [name for name, tensor in parameters.items() if id(tensor) in new_ones]
    return []


def _are_copies(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one is other or one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
        return False
    if one.data_ptr() == other.data_ptr() or not (one.requires_grad and other.requires_grad):
        # What is written to one is in the other, and what does not learn stays equal.
        return False
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
