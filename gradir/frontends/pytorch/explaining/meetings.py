"""Through which functions of a graph all must go that comes to others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce

from gradir.frontends.pytorch.reading.walk import GradFn

__all__ = ["Meetings"]


class Meetings:
    """Knows of each function the nearest other one through which all goes that comes to it."""

    def __init__(
        self,
        ran: Iterable[GradFn],
        senders: Mapping[GradFn, Sequence[tuple[GradFn, int]]],
        starts: Collection[object],
    ) -> None:
        """``ran`` are functions in the order of a backward, which begins in ``starts``; ``senders`` send to them."""
        self._nearest: dict[GradFn, tuple[int, GradFn | None]] = {}
        for fn in ran:
            nearest = None if fn in starts else self.of([sender for sender, _ in senders.get(fn, ())])
            # With how many there are behind each other; nothing is nearest to those in which the backward begins.
            self._nearest[fn] = 0 if nearest is None else self._nearest[nearest][0] + 1, nearest

    def of(self, fns: Sequence[GradFn]) -> GradFn | None:
        """The nearest function through which all goes that comes to some, which may be one of them."""
        return reduce(self._met, fns, fns[0] if fns else None)

    def above(self, fn: GradFn) -> Iterator[GradFn]:
        """The functions through which all goes that comes to one, the nearest first."""
        found = self._nearest[fn][1]
        while found is not None:
            yield found
            found = self._nearest[found][1]

    def _met(self, one: GradFn | None, other: GradFn | None) -> GradFn | None:
        while one is not other and one is not None and other is not None:
            if self._nearest[one][0] < self._nearest[other][0]:
                one, other = other, one
            one = self._nearest[one][1]
        return None if other is None else one
