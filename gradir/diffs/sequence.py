"""Entries of a list of modules that changed places, as told apart from indices that only shifted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

__all__ = ["crossed"]

_MOST_DIGITS: Final = 18
"""What no list's index exceeds; Python refuses to read numbers of thousands of digits."""


def crossed(paths: Iterable[tuple[str, str]]) -> tuple[str, str] | None:
    """The first entry of a list that passed another, given the path of each module before and after.

    What is put in or taken out shifts the indices behind it, and leaves the entries in the sequence they had.

    >>> crossed([("h.0", "h.0"), ("h.1", "h.2"), ("h.2", "h.3")])
    >>> crossed([("h.0", "h.0"), ("h.1", "h.2"), ("h.2", "h.1")])
    ('h.2', 'h.1')
    >>> crossed([("h.0", "h.2"), ("h.1", "h.1"), ("h.2", "h.0")])
    ('h.2', 'h.0')
    """
    lists: defaultdict[tuple[str, str], list[tuple[int, int, str, str]]] = defaultdict(list)
    for old, new in paths:
        parent, _, index = old.rpartition(".")
        parent_now, _, index_now = new.rpartition(".")
        if _is_index(index) and _is_index(index_now):
            lists[parent, parent_now].append((int(index), int(index_now), old, new))
    return next(chain.from_iterable(map(_passed, lists.values())), None)


def _is_index(name: str) -> bool:
    return name.isdecimal() and len(name) <= _MOST_DIGITS


def _passed(entries: list[tuple[int, int, str, str]]) -> Iterator[tuple[str, str]]:
    furthest = -1
    for _, now, old, new in sorted(entries):
        # One that others passed on both sides may have kept its index.
        if now < furthest and old != new:
            yield old, new
        furthest = max(furthest, now)
