"""Two mappings in one order."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping

__all__ = ["matched", "out_of_place"]

K = TypeVar("K", bound="Hashable")
T = TypeVar("T")


def matched(before: Mapping[K, T], after: Mapping[K, T]) -> Iterator[tuple[K, T | None, T | None]]:
    """Each key with both its values, in the order of ``after``; what it lacks stands where it stood in ``before``."""
    removed: dict[K | None, list[K]] = {}
    previous: K | None = None
    for key in before:
        if key in after:
            previous = key
        else:
            removed.setdefault(previous, []).append(key)
    for key in removed.get(None, ()):
        yield key, before[key], None
    for key, value in after.items():
        yield key, before.get(key), value
        for gone in removed.get(key, ()):
            yield gone, before[gone], None


def out_of_place(before: Iterable[K], after: Iterable[K]) -> tuple[K, K] | None:
    """The first two keys that differ when only common keys are kept."""
    keys_before, keys_after = dict.fromkeys(before), dict.fromkeys(after)
    kept = zip(filter(keys_after.__contains__, keys_before), filter(keys_before.__contains__, keys_after), strict=True)
    return next(((old, new) for old, new in kept if old != new), None)
