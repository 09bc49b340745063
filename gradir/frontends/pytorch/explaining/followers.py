"""Networks that are not trained by gradients: targets, references and teachers."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from typing import Final, TypeAlias

import torch
from torch import nn

from gradir.frontends.pytorch.explaining.cuts import Flowing
from gradir.frontends.pytorch.private import fields_of
from gradir.frontends.pytorch.reading.layouts import numbers_in
from gradir.frontends.pytorch.reading.tensors import held_by
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Value

__all__ = ["Followers"]

_Print: TypeAlias = "tuple[object, ...]"

_WORDS: Final = {
    **dict.fromkeys(("ema", "momentum", "shadow", "slow"), "target network"),
    **dict.fromkeys(("behavior", "old", "ref", "reference"), "reference model"),
    "teacher": "teacher",
}
"""By a word in the path of a module what it is, if its results are compared with others."""

_TARGETS: Final = frozenset({"targ", "target"})
_RATIOS: Final = frozenset({"log ratio", "ratio"})
_OF_TARGET_ROLES: Final = frozenset({"labels", "return", "target"})
_OF_TARGETS: Final = frozenset(
    {"actor", "critic", "encoder", "model", "net", "network", "policy", "q", "qf", "qnet", "value"}
)
"""With which words "target" means such a network, and no target of a translation."""

_FIRST: Final = 8
"""How many numbers of a tensor tell whether another may be equal."""


class Followers:
    """Recognises the parameters of networks that follow others or stay as they are, where they get no gradient.

    That is so of a copy of what is trained, and of what is called so or runs in evaluation mode, if its results are
    what others are compared with.
    """

    def __init__(
        self, flow: Flow, flowing: Flowing, reached: Collection[int], names_of: Callable[[Value], Iterable[str]]
    ) -> None:
        self._flow = flow
        self._flowing = flowing
        self._reached = reached
        self._names_of = names_of

    def pattern(self, lacking: Sequence[Value], roles: Collection[str]) -> str:
        """What leaves that get no gradient are part of, with what their results are for; nothing if of none."""
        is_compared = not _OF_TARGET_ROLES.isdisjoint(roles)
        if not roles:
            # Members of an ensemble are copies, too.
            return ""
        words = {self._word(leaf, is_compared=is_compared, is_bootstrapped="return" in roles) for leaf in lacking}
        word = words.pop() if len(words) == 1 else ""
        if word:
            return word
        if self._are_copies(lacking):
            return "target network" if _RATIOS.isdisjoint(roles) else "reference model"
        return "teacher" if self._only_evaluate(lacking) else ""

    def _word(self, leaf: Value, *, is_compared: bool, is_bootstrapped: bool) -> str:
        """What the path of the module says that has a leaf, whose own name says nothing."""
        name = next(iter(self._names_of(leaf)), "")
        parts = re.split(r"[^a-z]+", name.rpartition(".")[0].lower())
        is_target = is_bootstrapped or (is_compared and not _OF_TARGETS.isdisjoint(parts))
        if is_target and not _TARGETS.isdisjoint(parts):
            return "target network"
        return next((_WORDS[part] for part in parts if part in _WORDS), "")

    def _are_copies(self, lacking: Sequence[Value]) -> bool:
        """Whether each of some leaves has the numbers of one that gets a gradient, and not all those of one kind."""
        tensors = [self._flow.tensor_of(leaf) for leaf in lacking]
        found = [None if tensor is None else self._original(tensor) for tensor in tensors]
        return all(one is not None for one in found) and any(one is not None and _varies(one) for one in found)

    def _original(self, tensor: torch.Tensor) -> torch.Tensor | None:
        same = self._prints.get(_print_of(tensor), ())
        return next((other for other in same if torch.equal(numbers_in(held_by(other.detach())), _held(tensor))), None)

    @cached_property
    def _prints(self) -> dict[_Print, list[torch.Tensor]]:
        found: dict[_Print, list[torch.Tensor]] = {}
        for number, outside in enumerate(self._flow.outside):
            tensor = outside.tensor()
            # What a target is a copy of follows none: it lost its gradient to the target.
            is_follower = self._word(Value(FROM_OUTSIDE, number), is_compared=True, is_bootstrapped=True) != ""
            if outside.role == "parameter" and tensor is not None and id(tensor) in self._reached and not is_follower:
                found.setdefault(_print_of(tensor), []).append(tensor)
        # Of many that begin alike only the first are compared.
        return {key: tensors[:_FIRST] for key, tensors in found.items()}

    def _only_evaluate(self, lacking: Sequence[Value]) -> bool:
        modules = [self._modules.get(leaf) for leaf in lacking]
        trains = any(
            module is not None and _is_training(module)
            for leaf, module in self._modules.items()
            if id(self._flow.tensor_of(leaf)) in self._reached
        )
        return trains and all(module is not None and not _is_training(module) for module in modules)

    @cached_property
    def _modules(self) -> dict[Value, nn.Module | None]:
        """By leaf the module that ran when it was taken first."""
        found: dict[Value, nn.Module | None] = {}
        for step in self._flow.steps:
            for read in step.inputs:
                if read.is_leaf:
                    found.setdefault(self._flowing.root(read.value), None if step.call is None else step.call.module)
        return found


def _is_training(module: nn.Module) -> bool:
    return fields_of(module).get("training") is True


def _held(tensor: torch.Tensor) -> torch.Tensor:
    return numbers_in(held_by(tensor.detach()))


def _print_of(tensor: torch.Tensor) -> _Print:
    held = held_by(tensor.detach())
    if held.is_meta or held.layout is not torch.strided or not held.untyped_storage().nbytes():
        return (id(tensor),)
    return (held.shape, held.dtype, held.device, *held.reshape(-1)[:_FIRST].tolist())


def _varies(tensor: torch.Tensor) -> bool:
    """Whether a tensor is no initialisation with a constant."""
    values = _held(tensor)
    return values.numel() > 1 and bool(values.min() != values.max())
