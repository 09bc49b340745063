"""Errors of one backward pass that the optimizers' steps after it may excuse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import torch
from msgspec.structs import replace
from torch.optim import Optimizer

from gradir.explanations.model import Cause, Explanation
from gradir.frontends.pytorch.watching.parameters import parameters_of

_LACKING: Final = frozenset({"cut", "unreached", "unused", "zero"})


class Lacking:
    """The parameters without a gradient, which another backward pass may bring before a step."""

    def __init__(self, found: Explanation, tensors: Mapping[str, torch.Tensor]) -> None:
        self._found = found
        self._open = {name: tensor for name, tensor in tensors.items() if self._is_lacking(name)}
        self._learning = set[str]()
        self.has_stepped = False

    def _is_lacking(self, name: str) -> bool:
        return self._found.statuses.get(name) in _LACKING

    def is_open(self, cause: Cause) -> bool:
        """Return whether an error may still be excused."""
        names = set(filter(self._is_lacking, cause.names))
        # A loss without a graph raises an error before any step.
        has_graph = "reached" in self._found.statuses.values()
        return cause.level == "error" and has_graph and bool(names) and names <= self._open.keys() | self._learning

    @property
    def has_open(self) -> bool:
        """Whether any error may still be excused."""
        return any(self.is_open(each) and not self._open.keys().isdisjoint(each.names) for each in self._found.causes)

    def note_step(self, optimizer: Optimizer) -> None:
        """Record which parameters have a gradient now."""
        trained = set(map(id, parameters_of(optimizer)))
        for name in [name for name, tensor in self._open.items() if id(tensor) in trained]:
            gradient = self._open.pop(name).grad
            if gradient is not None and bool(gradient.any()):
                self._learning.add(name)
        self.has_stepped = True

    def excuse_errors(self) -> Explanation:
        """Return the explanation without the errors that no step showed."""
        causes = (
            self._excuse(each) if self.has_stepped and self.is_open(each) else each for each in self._found.causes
        )
        return replace(self._found, causes=tuple(causes))

    def _excuse(self, cause: Cause) -> Cause:
        pattern = "other optimizer" if self._learning.isdisjoint(cause.names) else "another path"
        return replace(cause, level="info", pattern=cause.pattern or pattern)
