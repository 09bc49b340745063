"""Walk over the next_functions of grad_fns."""

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


def find_only_input(fn: GradFn) -> GradFn | None:
    """Return the grad_fn of the only input with a gradient, if any."""
    inputs = [child for child, _ in fn.next_functions if child is not None]
    return inputs[0] if len(inputs) == 1 else None


class Walk(NamedTuple):
    """The graph of some captured tensors, in canonical order.

    ``roots`` are the grad_fns of the captured tensors. ``order`` has grad_fns and indices into the list of captured
    tensors, and keeps the Python wrappers of grad_fns alive, since torch may make new ones otherwise. ``edges`` maps
    each grad_fn to its next_functions.
    """

    roots: list[GradFn]
    order: list[GradFn | int]
    edges: dict[GradFn, Edges]

    def has_path_of(self, length: int) -> bool:
        """Return whether some path visits at least ``length`` grad_fns."""
        # Only the last node of a path has no edges.
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
    """Visit each grad_fn that the captured tensors reach once, and make the graph safe to free."""
    walked = Walk([tensor.producer[0] for tensor in captured if tensor.producer is not None], [], {})
    try:
        with stage("walking the graph", 0, walked.edges.__len__):
            met: set[int] = set()
            for index, tensor in enumerate(captured):
                place = index if tensor.role == "output" else None
                above: list[int] = []
                # A base precedes its view, and all their producers precede both.
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
        # Python has seen nodes even if the user interrupts a long walk.
        hold(walked)
        raise
    return walked


def _descend(root: GradFn, edges: dict[GradFn, Edges], order: list[GradFn | int]) -> None:
    """Add the new grad_fns below one, and their edges: `gradir.ir.edges.postorder`, inlined for speed."""
    stack = [root]
    while stack:
        fn = stack.pop()
        if fn is None:
            # All children of the node are done.
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
