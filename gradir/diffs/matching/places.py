"""Where nodes stand: in which module or tensor, and which of these are on both sides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final

from gradir.diffs.matching.renames import pattern
from gradir.diffs.matching.sides import TENSOR
from gradir.ir.module_tree import split_path

if TYPE_CHECKING:
    from gradir.diffs.matching.sides import Side

__all__ = ["Places", "anchors"]

_ASTRAY: Final = 3
"""What leaving a name that stays costs a tensor, or a function of a module with tensors: more than to remove it, add it
and rewire a consumer."""

_MOVED: Final = 1
"""The same for other functions, and where the one module contains the other, as when a module is wrapped."""


class Places:
    """What two graphs call the same.

    The place of a node is its module, and a tensor's own name, as a pattern (``layers.*.attn``). What stands in
    a place or module that is on both sides is not taken for what stands elsewhere.
    """

    def __init__(self, before: Side, after: Side) -> None:
        self._before, self._after = before, after
        self._modules = frozenset((*before.classes, *before.modules)).intersection((*after.classes, *after.modules))
        self._places = frozenset(before.places).intersection(after.places)
        self._owners = [_owners(side) for side in (before, after)]
        self._known: dict[tuple[int, int, int, int], int] = {}
        self._chains: dict[tuple[int, int], tuple[tuple[str, str], ...]] = {}

    def astray(self, place: int, other: int) -> int:
        """What it costs that a node stands in one place before and in another after although one of them is kept."""
        before, after = self._before, self._after
        spot, other_spot = before.spots[place], after.spots[other]
        if spot == other_spot:
            return 0
        key = before.homes[place], spot, after.homes[other], other_spot
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._leaving(
                (before.modules[place], before.places[place]), (after.modules[other], after.places[other])
            )
        return known

    def torn(self, matching: Sequence[int]) -> int:
        """How many partners modules have beyond one each, seen from both sides."""
        homes, other_homes = self._before.homes, self._after.homes
        pairs = {(homes[place], other_homes[other]): place for place, other in enumerate(matching) if other >= 0}
        for pair in pairs.keys() - self._chains.keys():
            place = pairs[pair]
            found = self._before.modules[place], self._after.modules[matching[place]]
            self._chains[pair] = tuple(_upwards(*found)) if self._stays(*found) else ()
        seen = set(chain.from_iterable(map(self._chains.__getitem__, pairs)))
        return 2 * len(seen) - len({old for old, _ in seen}) - len({new for _, new in seen})

    def _stays(self, old: str, new: str) -> bool:
        """Whether one module may be the other: an index shifted, or neither name is on both sides."""
        return pattern(old) == pattern(new) or self._modules.isdisjoint((old, new))

    def _leaving(self, old: tuple[str, str], new: tuple[str, str]) -> int:
        (module, place), (other_module, other_place) = old, new
        tensor, other_tensor = (path.partition(TENSOR)[2] for path in (place, other_place))
        if pattern(module) == pattern(other_module):
            return 0 if self._places.isdisjoint((place, other_place)) else _ASTRAY
        if self._stays(module, other_module):
            return 0
        if module not in self._owners[0] and other_module not in self._owners[1]:
            return _MOVED
        nested = _contains(module, other_module) or _contains(other_module, module)
        return _MOVED if nested and tensor == other_tensor else _ASTRAY


def anchors(before: Side, after: Side, modules: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """By position the place in the words of the second graph where both have it, otherwise nothing.

    ``modules`` are paths of modules in the first graph to those in the second.
    """
    renamed = {path: pattern(found) for path, found in modules.items() if pattern(path) != pattern(found)}
    places = before.places
    if renamed:
        places = [
            renamed[module] + place[len(pattern(module)) :] if module in renamed else place
            for place, module in zip(places, before.modules, strict=True)
        ]
    both = frozenset(places).intersection(after.places)
    here, there = ([place if place in both else "" for place in side] for side in (places, after.places))
    return here, there


def _owners(side: Side) -> frozenset[str]:
    """The modules with tensors of their own."""
    return frozenset(module for module, (_, tensor) in zip(side.modules, side.standing, strict=True) if tensor)


def _contains(outer: str, inner: str) -> bool:
    return not outer or inner.startswith(f"{outer}.")


def _upwards(old: str, new: str) -> Iterator[tuple[str, str]]:
    """Two modules, and those around them as long as they are called the same."""
    while old and new:
        yield old, new
        old, name = split_path(old)
        new, other_name = split_path(new)
        if pattern(name) != pattern(other_name):
            return
