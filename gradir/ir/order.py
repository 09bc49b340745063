"""The canonical order of nodes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import Enum
from typing import TypeVar, cast

__all__ = ["postorder"]

K = TypeVar("K", bound=Hashable)


class _Leave(Enum):
    LEAVE = "every child of the node below is done"


_LEAVE = _Leave.LEAVE


def postorder(roots: Iterable[K], children: Callable[[K], Sequence[K]]) -> list[K]:
    """Depth-first post-order from ``roots``, children in the order given, without recursion.

    On an acyclic graph every child stands before its parents. ``children`` is called once per node, so the time is
    linear in nodes and edges. Source of the algorithm: the depth-first search of Tarjan, SIAM J. Comput. 1 (1972),
    with the call stack made explicit.

    >>> postorder("c", {"a": "", "b": "a", "c": "ba"}.__getitem__)
    ['a', 'b', 'c']
    """
    order: list[K] = []
    seen: set[K] = set()
    stack: list[K | _Leave] = []
    stack += [*roots][::-1]
    while stack:
        top = stack.pop()
        if top is _LEAVE:
            order.append(cast("K", stack.pop()))
            continue
        if top in seen:
            continue
        seen.add(top)
        stack += (top, _LEAVE)
        stack += children(top)[::-1]
    return order
