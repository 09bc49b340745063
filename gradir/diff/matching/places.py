"""Where nodes stand: in which module or tensor, and which of these are on both sides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from gradir.diff.matching.renames import pattern
from gradir.diff.matching.sides import NOTHING

if TYPE_CHECKING:
    from gradir.diff.matching.sides import Side

__all__ = ["ASTRAY", "Places"]

ASTRAY: Final = 3
"""What a node costs that leaves a name which stays: more than to remove it, add it and rewire a consumer."""

_MOVED: Final = 1
"""The same where the one module contains the other, as when functions are put in a module of their own."""


class Places:
    """What two graphs call the same.

    The place of a node is its module, and a tensor's own name, as a pattern (``layers.*.attn``). A place is ``kept``
    if it is on both sides with one class: what stands there is not taken for what stands elsewhere.
    """

    def __init__(self, before: Side, after: Side) -> None:
        self._before, self._after = before, after
        self._kept = _classed(before) & _classed(after)
        self.kept = frozenset(place for place, _ in self._kept)
        self._known: dict[tuple[str, str], int] = {}

    def anchors(self) -> tuple[list[str], list[str]]:
        """By position the kept place, or nothing."""
        kept = self.kept
        before, after = ([place if place in kept else "" for place in side.places] for side in (self._before, self._after))
        return before, after

    def astray(self, place: int, other: int) -> int:
        """What it costs that a node stands in one place before and in another after although one of them is kept."""
        pair = self._before.places[place], self._after.places[other]
        if pair[0] == pair[1]:
            return 0
        known = self._known.get(pair)
        if known is None:
            known = self._known[pair] = self._leaving(*pair)
        return known

    def torn(self, matching: Sequence[int]) -> int:
        """How many partners modules have beyond one each, seen from both sides."""
        modules, other_modules = self._before.modules, self._after.modules
        pairs = {
            (modules[place], other_modules[other]): (place, other)
            for place, other in enumerate(matching)
            if other >= 0
        }
        seen: set[tuple[str, str]] = set()
        for found, (place, other) in pairs.items():
            if self.astray(place, other):
                continue
            for pair in _upwards(*found):
                if pair in seen:
                    break
                seen.add(pair)
        return 2 * len(seen) - len({old for old, _ in seen}) - len({new for _, new in seen})

    def _leaving(self, old: str, new: str) -> int:
        if old not in self.kept and new not in self.kept:
            return 0
        module, slash, tensor = old.partition("\0")
        other_module, other_slash, other_tensor = new.partition("\0")
        same = (slash, tensor) == (other_slash, other_tensor)
        return _MOVED if same and (_contains(module, other_module) or _contains(other_module, module)) else ASTRAY


def _classed(side: Side) -> set[tuple[str, str]]:
    return {
        (place, side.classes.get(module, "")) for place, module in dict.fromkeys(zip(side.places, side.modules))
    }


def _contains(outer: str, inner: str) -> bool:
    return not outer or inner.startswith(f"{outer}.")


def _upwards(old: str, new: str) -> Iterator[tuple[str, str]]:
    """Two modules, and those around them as long as they are called the same."""
    while old and new:
        yield old, new
        old, _, name = old.rpartition(".")
        new, _, other_name = new.rpartition(".")
        if pattern(name) != pattern(other_name):
            return
