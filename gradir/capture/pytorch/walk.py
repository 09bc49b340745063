"""The walk over next_functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from gradir.capture.pytorch.outputs import Captured
from gradir.ir.order import postorder

__all__ = ["GradFn", "Walk", "walk"]

GradFn: TypeAlias = Any
"""A grad_fn. torch's C++ nodes share no public type."""


class Walk(NamedTuple):
    """Everything below some captured tensors, in canonical order.

    ``order`` holds grad_fns and, as integers, places in the list of captured tensors. It keeps every wrapper alive:
    a torch that forgets a wrapper nobody holds forgets its identity too. ``edges`` is each grad_fn's next_functions,
    and ``roots`` are the grad_fns of the captured tensors.
    """

    roots: list[GradFn]
    order: list[GradFn | int]
    edges: dict[GradFn, tuple[tuple[GradFn | None, int], ...]]

    def has_path_of(self, length: int) -> bool:
        """Whether some path visits at least ``length`` grad_fns."""
        if len(self.edges) < length:
            return False
        longest: dict[GradFn | None, int] = {None: 0}
        for key in self.order:
            if isinstance(key, int):
                continue
            below = 0
            for child, _ in self.edges[key]:
                below = max(below, longest[child])
            if below + 1 >= length:
                return True
            longest[key] = below + 1
        return False


def walk(captured: Sequence[Captured]) -> Walk:
    """Visit everything that the captured tensors reach, each grad_fn once and without recursion."""
    edges: dict[GradFn, tuple[tuple[GradFn | None, int], ...]] = {}

    def children(key: GradFn | int) -> list[GradFn | int]:
        if isinstance(key, int):
            tensor = captured[key]
            below = [] if tensor.producer is None else [tensor.producer[0]]
            return below if tensor.base is None else [*below, tensor.base]
        following = edges[key] = key.next_functions
        return [child for child, _ in following if child is not None]

    order = postorder([index for index, tensor in enumerate(captured) if tensor.role == "output"], children)
    return Walk([tensor.producer[0] for tensor in captured if tensor.producer is not None], order, edges)
