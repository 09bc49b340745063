"""What the blocks of a page are made of: tables in which each value stands once, and columns of places in them."""

from __future__ import annotations

from operator import sub
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Table", "column", "steps"]

K = TypeVar("K")


class Table(dict[K, int]):
    """The place of each value, in the order in which they are first asked for.

    >>> table = Table([""])
    >>> [table["a"], table["b"], table["a"], table[""]], list(table)
    ([1, 2, 1, 0], ['', 'a', 'b'])
    """

    __slots__ = ()

    def __init__(self, first: Iterable[K] = ()) -> None:
        """``first`` are the values whose places are to be known."""
        super().__init__()
        for value in first:
            self[value]

    def __missing__(self, key: K) -> int:
        place = self[key] = len(self)
        return place


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
