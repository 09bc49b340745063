"""What is to be explained, as a recorder gives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.recording.flow import Flow

__all__ = ["Subject"]


class Subject(NamedTuple):
    """What is to be explained.

    ``tensors`` are the parameters and tensors by name, ``owned`` the names that a module gives, ``captured`` what
    backward would start from, ``live`` their graph if they have one, ``trained`` the tensors of the optimizer if there
    is one. ``parametrized`` are names that a module computes of its parameters, ``aside`` the tensors that
    modules keep otherwise than as parameters and buffers, ``untied`` pairs of parameters that were one tensor, and
    ``hooks`` those on the backward of modules, by path.
    """

    flow: Flow
    tensors: Mapping[str, torch.Tensor]
    owned: frozenset[str]
    captured: Sequence[torch.Tensor]
    live: LiveGraph | None
    trained: Sequence[torch.Tensor] | None
    parametrized: frozenset[str]
    aside: Mapping[str, torch.Tensor]
    untied: Sequence[tuple[str, str]]
    hooks: Mapping[str, Sequence[object]]

    def tied(self) -> tuple[tuple[str, ...], ...]:
        """The names that are of one tensor."""
        names: dict[int, list[str]] = {}
        for name, tensor in self.tensors.items():
            names.setdefault(id(tensor), []).append(name)
        return tuple(tuple(group) for group in names.values() if len(group) > 1)
