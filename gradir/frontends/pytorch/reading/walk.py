"""The walk over next_functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from gradir.frontends.pytorch.reading.keepalive import hold, protect
from gradir.frontends.pytorch.reading.outputs import Captured
from gradir.progress import stage

# A grad_fn. torch's C++ nodes share no public type.
GradFn: TypeAlias = Any
# The next_functions of a grad_fn.
Edges: TypeAlias = tuple[tuple[GradFn | None, int], ...]


class Walk(NamedTuple):
    """Everything below some captured tensors, in canonical order.

    ``order`` holds grad_fns and, as integers, places in the list of captured tensors. It keeps every wrapper alive:
    a torch that forgets a wrapper nobody holds forgets its identity too. ``edges`` is each grad_fn's next_functions,
    and ``roots`` are the grad_fns of the captured tensors.
    """

    roots: list[GradFn]
    order: list[GradFn | int]
    edges: dict[GradFn, Edges]

    def has_path_of(self, length: int) -> bool:
        """Return whether some path visits at least ``length`` grad_fns."""
        # Where nothing goes on, a path ends.
        if sum(map(bool, self.edges.values())) + 1 < length:
            return False
        longest: dict[GradFn | None, int] = {None: 0}
        for key in self.order:
            if isinstance(key, int):
                continue
            below = 0
            for child, _ in self.edges[key]:
                depth = longest[child]
                if depth > below:  # noqa: PLR1730 (max() would be a call for each edge)
                    below = depth
            if below + 1 >= length:
                return True
            longest[key] = below + 1
        return False


def walk(captured: Sequence[Captured]) -> Walk:
    """Visit everything that the captured tensors reach, each grad_fn once, and let the graph be freed safely."""
    walked = Walk([tensor.producer[0] for tensor in captured if tensor.producer is not None], [], {})
    try:
        with stage("walking the graph", 0, walked.edges.__len__):
            met: set[int] = set()
            for index, tensor in enumerate(captured):
                place = index if tensor.role == "output" else None
                above: list[int] = []
                # An output stands behind its base, and both behind all that the two were computed from.
                while place is not None and place not in met:
                    met.add(place)
                    above.append(place)
                    _, _, _, producer, base = captured[place]
                    if producer is not None:
                        _descend(producer[0], walked.edges, walked.order)
                    place = base
                walked.order.extend(reversed(above))
        protect(walked)
    except BaseException:
        # Python has seen nodes all the same, as where the user interrupts a long walk.
        hold(walked)
        raise
    return walked


def _descend(root: GradFn, edges: dict[GradFn, Edges], order: list[GradFn | int]) -> None:
    """List what is new below a grad_fn, and its edges: `gradir.ir.edges.postorder`, inlined for speed."""
    stack = [root]
    while stack:
        fn = stack.pop()
        if fn is None:
            # Every child of the node below is done.
            order.append(stack.pop())
            continue
        if fn in edges:
            continue
        following = edges[fn] = fn.next_functions
        if not following:
            order.append(fn)
            continue
        stack += (fn, None)
        for child, _ in following[::-1]:
            if child is not None and child not in edges:
                stack.append(child)
