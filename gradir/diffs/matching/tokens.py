"""Tokens that describe a node by what stands around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gradir.diffs.matching.sides import Labels, Side

__all__ = ["LOOSE_FIRST", "TIGHT_FIRST", "Level", "Tokens"]

_HUB: Final = 8
"""More consumers than this say little of a node, and all of them would change when one is added."""

Level = tuple[str, int]
"""A label and a radius."""

TIGHT_FIRST: Final[tuple[Level, ...]] = (
    ("tight", 2), ("loose", 2), ("tight", 1), ("loose", 1), ("tight", 0), ("loose", 0),
)  # fmt: skip
"""From the token that says most to the one that says least."""

LOOSE_FIRST: Final[tuple[Level, ...]] = (("loose", 2), ("tight", 1), ("loose", 1), ("tight", 0), ("loose", 0))
"""The same for a layer whose sizes changed, which tight tokens would rather remove and add."""


class Tokens:
    """The tokens of both graphs, made when first asked for.

    A token of radius 0 is a label, and the place where both graphs have it; one more round joins it with the tokens of
    the producers by slot and of the consumers. That is the colour refinement of B. Weisfeiler and A. Lehman, "A
    reduction of a graph to a canonical form" (1968); as labels for comparing graphs see N. Shervashidze et al.,
    "Weisfeiler-Lehman graph kernels" (2011).
    """

    def __init__(self, sides: tuple[Side, Side], labels: Labels, anchors: tuple[list[str], list[str]]) -> None:
        self._labels = labels
        self._sides = sides
        self._anchors = anchors
        self._near: tuple[list[list[int]], ...] = tuple(
            [consumers if len(consumers) <= _HUB else [] for consumers in side.above] for side in sides
        )
        self._known: dict[Level, tuple[list[int], list[int]]] = {}

    def at(self, label: str, radius: int) -> tuple[list[int], list[int]]:
        """The tokens of both sides for a label, ``tight`` or ``loose``, and a radius, by position."""
        for rounds in range(radius + 1):
            if (label, rounds) not in self._known:
                self._known[label, rounds] = self._made(label, rounds)
        return self._known[label, radius]

    def _made(self, label: str, radius: int) -> tuple[list[int], list[int]]:
        if not radius:
            labels = self._labels
            before, after = (
                [
                    labels[own, anchor] if anchor else own
                    for own, anchor in zip(getattr(side, label), anchors, strict=True)
                ]
                for side, anchors in zip(self._sides, self._anchors, strict=True)
            )
            return before, after
        colours = self._known[label, radius - 1]
        before, after = (
            self._refined(of, side.below, near) for of, side, near in zip(colours, self._sides, self._near, strict=True)
        )
        return before, after

    def _refined(
        self, colours: Sequence[int], below: Sequence[Sequence[int]], above: Sequence[Sequence[int]]
    ) -> list[int]:
        labels = self._labels
        known = [*colours, -1]
        return [
            labels[
                colour,
                tuple([known[place] for place in producers]),
                (known[consumers[0]],) if len(consumers) == 1 else tuple(sorted([known[place] for place in consumers])),
            ]
            for colour, producers, consumers in zip(colours, below, above, strict=True)
        ]
