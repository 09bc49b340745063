"""Write columns of numbers for the blocks of a page."""

from __future__ import annotations

from operator import sub
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


def column(numbers: Sequence[int]) -> Any:
    """Return a column as the block has it: equal numbers are one number.

    >>> column([3, 3, 3]), column([1, 2]), column([])
    (3, [1, 2], 0)
    """
    if not numbers:
        return 0
    return numbers[0] if numbers.count(numbers[0]) == len(numbers) else numbers


def steps(numbers: Sequence[int]) -> list[int]:
    """Return the first number, then the differences.

    >>> steps([5, 5, 7])
    [5, 0, 2]
    """
    return [*numbers[:1], *map(sub, numbers[1:], numbers)]
