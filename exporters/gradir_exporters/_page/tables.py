"""Columns of numbers, which the blocks of a page are made of."""

from __future__ import annotations

from operator import sub
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["column", "steps"]


def column(numbers: Sequence[int]) -> Any:
    """What a column is in a block: of numbers that are all the same, that number alone.

    >>> column([3, 3, 3]), column([1, 2]), column([])
    (3, [1, 2], 0)
    """
    if not numbers:
        return 0
    return numbers[0] if numbers.count(numbers[0]) == len(numbers) else numbers


def steps(numbers: Sequence[int]) -> list[int]:
    """The first number, and of each further one how much it is more than the one before it.

    >>> steps([5, 5, 7])
    [5, 0, 2]
    """
    return [*numbers[:1], *map(sub, numbers[1:], numbers)]
