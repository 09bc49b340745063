"""Report the progress of long work to a watcher, if there is one. Reporting costs nothing without one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from operator import length_hint
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")


def _nothing() -> int:
    return 0


class Stage(NamedTuple):
    """A part of the work: its name, its number of steps (0 if unknown), and a function for those done."""

    what: str
    total: int = 0
    done: Callable[[], int] = _nothing


_stages: Final[ContextVar[list[Stage] | None]] = ContextVar("stages", default=None)


@contextmanager
def watched() -> Iterator[list[Stage]]:
    """Watch the work inside: the stages that it is in, the innermost last, to be looked at from another thread."""
    stages: list[Stage] = []
    token = _stages.set(stages)
    try:
        yield stages
    finally:
        _stages.reset(token)


@contextmanager
def stage(what: str, total: int = 0, done: Callable[[], int] = _nothing) -> Iterator[None]:
    """Say what is done inside. ``done`` is called from another thread, as the ``__len__`` of a list that grows may be.

    >>> with watched() as stages, stage("reading"):
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
        # Not always the last: a loop that was left early ends when its frame goes.
        stages.remove(own)


def steps(what: str, items: Collection[T]) -> Iterable[T]:
    """Return the items as steps of a stage; without a watcher, return the collection itself.

    >>> with watched() as stages:
    ...     [(letter, stages[0].done(), stages[0].total) for letter in steps("spelling", "ab")]
    [('a', 1, 2), ('b', 2, 2)]
    """
    if _stages.get() is None:
        return items
    # The iterator knows what is left: to count here would take longer than some of the work.
    left, total = iter(items), len(items)

    def counted() -> Iterator[T]:
        with stage(what, total, lambda: total - length_hint(left)):
            yield from left

    return counted()
