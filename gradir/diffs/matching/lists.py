"""Align two lists of modules by how much one entry differs from another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

__all__ = ["aligned"]

_BAND: Final = 16
"""How far an entry may shift beyond what the lengths of the lists differ by."""

_CELLS: Final = 60_000
"""A table with more entries than this is not made."""


def aligned(
    weights: Sequence[int], other_weights: Sequence[int], change: Callable[[int, int], int]
) -> list[tuple[int, int]] | None:
    """Pairs of indices, increasing, for which removing and adding the rest and changing these costs least.

    Where that leaves a choice, early entries are matched. Nothing if the lists are too long. The algorithm is that of
    S. Needleman and C. Wunsch, "A general method applicable to the search for similarities in the amino acid sequence
    of two proteins" (1970), in a band around the diagonal.

    >>> aligned([3, 3, 3], [3, 3], lambda x, y: abs(x - y - 1))
    [(1, 0), (2, 1)]
    """
    size, other_size = len(weights), len(other_weights)
    low, high = min(0, other_size - size) - _BAND, max(0, other_size - size) + _BAND
    if (size + 1) * (high - low + 1) > _CELLS:
        return None
    far = sum(weights) + sum(other_weights) + 1
    rows: list[dict[int, int]] = [{} for _ in range(size + 1)]
    for x in range(size, -1, -1):
        row, next_row = rows[x], rows[x + 1] if x < size else {}
        for y in range(min(other_size, x + high), max(0, x + low) - 1, -1):
            if x == size and y == other_size:
                row[y] = 0
                continue
            row[y] = min(
                next_row.get(y, far) + weights[x] if x < size else far,
                row.get(y + 1, far) + other_weights[y] if y < other_size else far,
                next_row.get(y + 1, far) + change(x, y) if x < size and y < other_size else far,
            )
    return _walked(rows, weights, change, other_size)


def _walked(
    rows: Sequence[dict[int, int]], weights: Sequence[int], change: Callable[[int, int], int], other_size: int
) -> list[tuple[int, int]]:
    pairs = []
    x = y = 0
    while x < len(weights) and y < other_size:
        cost, next_row = rows[x][y], rows[x + 1]
        if y + 1 in next_row and cost == next_row[y + 1] + change(x, y):
            pairs.append((x, y))
            x += 1
            y += 1
        elif y in next_row and cost == next_row[y] + weights[x]:
            x += 1
        else:
            y += 1
    return pairs
