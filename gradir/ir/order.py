"""The canonical order of nodes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar, cast

K = TypeVar("K", bound=Hashable)


def postorder(roots: Iterable[K], children: Callable[[K], Sequence[K]]) -> list[K]:
    """Return nodes in depth-first post-order from ``roots``, children in the order given, without recursion.

    Every child precedes its parents. ``children`` is called once per node, so the time is linear (Tarjan, 1972).

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
