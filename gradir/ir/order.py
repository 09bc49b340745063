"""The canonical order of nodes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar, cast

K = TypeVar("K", bound=Hashable)


def postorder(roots: Iterable[K], children: Callable[[K], Sequence[K]]) -> list[K]:
    """Depth-first post-order from ``roots``, children in the order given, without recursion.

    On an acyclic graph every child stands before its parents. ``children`` is called once per node, so the time is
    linear in nodes and edges. No node is ``None``. Source of the algorithm: the depth-first search of Tarjan, SIAM J.
    Comput. 1 (1972), with the call stack made explicit.

    >>> postorder("c", {"a": "", "b": "a", "c": "ba"}.__getitem__)
    ['a', 'b', 'c']
    """
    order: list[K] = []
    seen: set[K] = set()
    stack: list[K | None] = [*roots]
    stack.reverse()
    while stack:
        top = stack.pop()
        if top is None:
            # Every child of the node below is done.
            order.append(cast("K", stack.pop()))
            continue
        if top in seen:
            continue
        seen.add(top)
        stack += (top, None)
        stack += children(top)[::-1]
    return order
