"""Errors of one backward pass that the optimizers' steps after it may excuse."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import torch
from msgspec.structs import replace
from torch.optim import Optimizer

from gradir.explanations.model import Cause, Explanation
from gradir.frontends.pytorch.watching.parameters import parameters_of

_LACKING: Final = frozenset({"cut", "unreached", "unused", "zero"})
# Errors about an optimizer that has none of the parameters with a gradient.
_OF_OPTIMIZER: Final = frozenset({"copied", "moves_nothing", "put"})


class Lacking:
    """The parameters without a gradient, which another backward pass or the program may bring before a step."""

    def __init__(
        self, found: Explanation, tensors: Mapping[str, torch.Tensor], optimizers: Iterable[Optimizer]
    ) -> None:
        self._found = found
        self._open = {name: tensor for name, tensor in tensors.items() if self._is_lacking(name)}
        self._learning = set[str]()
        self._waiting, self._is_moved = {*map(id, optimizers)}, False
        self.has_stepped = False

    def _is_lacking(self, name: str) -> bool:
        return self._found.statuses.get(name) in _LACKING

    def is_open(self, cause: Cause) -> bool:
        """Return whether an error may still be excused."""
        names = set(filter(self._is_lacking, cause.names))
        # A loss without a graph raises an error before any step.
        if cause.level != "error" or "reached" not in self._found.statuses.values():
            return False
        if not names:
            return cause.kind in _OF_OPTIMIZER and (bool(self._waiting) or self._is_moved)
        return names <= self._open.keys() | self._learning

    @property
    def has_open(self) -> bool:
        """Whether any error may still be excused."""
        causes = filter(self.is_open, self._found.causes)
        return any(not self._open.keys().isdisjoint(each.names) or self._may_move(each) for each in causes)

    def _may_move(self, cause: Cause) -> bool:
        return bool(self._waiting) and not self._is_moved and cause.kind in _OF_OPTIMIZER

    def note_step(self, optimizer: Optimizer) -> None:
        """Record which parameters have a gradient now."""
        trained = set(map(id, parameters_of(optimizer)))
        for name in [name for name, tensor in self._open.items() if id(tensor) in trained]:
            gradient = self._open.pop(name).grad
            if gradient is not None and bool(gradient.any()):
                self._learning.add(name)
        if id(optimizer) in self._waiting:
            self._waiting.remove(id(optimizer))
            self._is_moved |= any(each.grad is not None and bool(each.grad.any()) for each in parameters_of(optimizer))
        self.has_stepped = True

    def excuse_errors(self) -> Explanation:
        """Return the explanation without the errors that no step showed."""
        causes = [
            self._excuse(each) if self.has_stepped and self.is_open(each) else each for each in self._found.causes
        ]
        return replace(self._found, causes=tuple(filter(None, causes)))

    def _excuse(self, cause: Cause) -> Cause | None:
        if not any(map(self._is_lacking, cause.names)):
            # The program gives the optimizer gradients of another model.
            return None
        pattern = "other optimizer" if self._learning.isdisjoint(cause.names) else "another path"
        return replace(cause, level="info", pattern=cause.pattern or pattern)
