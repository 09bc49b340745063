"""Put back the gradients that `retain_grad` keeps on tensors inside a graph.

No node knows its tensors, and a look at all objects of a program takes longer than a small backward. But the engine
makes each retained gradient by an operation, between two nodes, which a dispatch mode sees.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from gradir.frontends.pytorch import private

__all__ = ["retained_gradients_kept"]


class _Replaced(private.TorchDispatchMode):  # type: ignore[misc]
    """Record the copies and sums that are made while no node runs, with what a sum is added to."""

    def __init__(self) -> None:
        super().__init__()
        self._before: dict[int, tuple[torch.Tensor, torch.Tensor | None]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.clone.default:
            self._before[id(result)] = result, None
        elif func is torch.ops.aten.add.Tensor:
            self._before[id(result)] = result, args[0]
        return result

    def leave(self, *_: object) -> None:
        """See no more operations until the engine takes up the next node, for which it puts all modes back."""
        if private.dispatch_modes()[-1:] == [self]:
            private.pop_dispatch_mode()

    def put_back(self) -> None:
        """Give each tensor that has a recorded result for its gradient the one that it had."""
        if not self._before:
            return
        with private.without_overrides():
            kinds = _kinds_of_tensors()
            tensors = [thing for thing in gc.get_objects() if type(thing) in kinds]
            for tensor in tensors:
                if tensor.retains_grad and id(tensor.grad) in self._before:
                    tensor.grad = self._first(tensor.grad)

    def _first(self, gradient: torch.Tensor | None) -> torch.Tensor | None:
        while id(gradient) in self._before:
            _, gradient = self._before[id(gradient)]
        return gradient


@contextmanager
def retained_gradients_kept() -> Iterator[Callable[..., None]]:
    """Let a backward leave the gradients of tensors that retain them as they were.

    What it gives has to be called before each node runs, by a prehook.
    """
    replaced = _Replaced()
    # To enter it would set a flag by which torch.compile compiles nothing meanwhile.
    private.push_dispatch_mode(replaced)
    try:
        yield replaced.leave
    finally:
        replaced.leave()
        replaced.put_back()


def _kinds_of_tensors() -> set[type]:
    """The class of tensors and all that are made from it, found without a look at every object's type."""
    kinds: set[type] = {torch.Tensor}
    unseen = [torch.Tensor]
    while unseen:
        found = set(type.__subclasses__(unseen.pop())) - kinds
        kinds |= found
        unseen += found
    return kinds
