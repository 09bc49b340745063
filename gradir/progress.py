"""Report the progress of long work to a watcher, if there is one. Reporting costs nothing without one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from operator import length_hint
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")


class Stage(NamedTuple):
    """A part of the work: its name, its number of steps (0 if unknown), and a function for those done."""

    what: str
    total: int = 0
    done: Callable[[], int] = int


_stages: Final[ContextVar[list[Stage] | None]] = ContextVar("stages", default=None)


@contextmanager
def watch_stages() -> Iterator[list[Stage]]:
    """Yield the list of current stages, the innermost last, which another thread may read."""
    stages: list[Stage] = []
    token = _stages.set(stages)
    try:
        yield stages
    finally:
        _stages.reset(token)


@contextmanager
def stage(what: str, total: int = 0, done: Callable[[], int] = int) -> Iterator[None]:
    """Report the work inside. Another thread calls ``done``, which may be the ``__len__`` of a growing list.

    >>> with watch_stages() as stages, stage("reading"):
    ...     [each.what for each in stages]
    ['reading']
    """
    stages = _stages.get()
    if stages is None:
        yield
        return
    own = Stage(what, total, done)
    stages.append(own)
    try:
        yield
    finally:
        # It may not be the last: Python ends an abandoned generator later.
        stages.remove(own)


def steps(what: str, items: Collection[T]) -> Iterable[T]:
    """Return the items as steps of a stage; without a watcher, return the collection itself.

    >>> with watch_stages() as stages:
    ...     [(letter, stages[0].done(), stages[0].total) for letter in steps("spelling", "ab")]
    [('a', 1, 2), ('b', 2, 2)]
    """
    if _stages.get() is None:
        return items
    # The iterator knows its rest; counting here would take longer than some of the work.
    left, total = iter(items), len(items)

    def iterate() -> Iterator[T]:
        with stage(what, total, lambda: total - length_hint(left)):
            yield from left

    return iterate()
