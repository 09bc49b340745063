"""What a picture shows of what was left out around a box: how much, before it and behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MORE", "boxes_left_out", "lines_left_out"]

MORE: Final = "more"
"""The role of a box for what is left out, and the kind of the line between that and the box beside it."""

_ENDS: Final = ("before", "behind")


def boxes_left_out(key: str, counts: tuple[int, int]) -> Iterator[tuple[str, str]]:
    """The boxes beside the one of a key, each with its text, given how many nodes are left out before and behind that.

    >>> [*boxes_left_out("n3", (0, 1200))]
    [('n3behind', '… 1,200 more')]
    """
    for end, count in zip(_ENDS, counts, strict=True):
        if count:
            yield f"{key}{end}", f"… {count:,} more"


def lines_left_out(key: str, counts: tuple[int, int]) -> Iterator[tuple[str, str]]:
    """The lines between that box and those beside it, as the keys of their ends.

    >>> [*lines_left_out("n3", (2, 1))]
    [('n3before', 'n3'), ('n3', 'n3behind')]
    """
    before, behind = counts
    if before:
        yield f"{key}{_ENDS[0]}", key
    if behind:
        yield key, f"{key}{_ENDS[1]}"
