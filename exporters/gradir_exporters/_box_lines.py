"""Break long text into lines, and place rows of boxes beside the nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

_WIDTH: Final = 36
_COLUMNS: Final = 3
# Splits a word that is too long for a line, such as a path or the name of a parameter.
_PARTS: Final = re.compile(r"[^./_,:]*[./_,:]*")
# The role of a box that stands for omitted nodes, and the kind of the line between it and the box beside it.
MORE: Final = "more"
_ENDS: Final = ("before", "behind")


def box_lines(text: str) -> list[str]:
    """Return the lines of a text; long words break behind a dot and the like.

    >>> box_lines("no_grad (linear) at net.py:41: encoder.layers.0.attention.weight and 2 more")
    ['no_grad (linear) at net.py:41:', 'encoder.layers.0.attention.weight', 'and 2 more']
    >>> box_lines("a_model_with_a_long_name.encoder_layers.first")
    ['a_model_with_a_long_name.encoder_', 'layers.first']
    """
    lines = [""]
    for word in text.split(" "):
        for place, part in enumerate(_parts(word)):
            line = lines[-1]
            with_part = f"{line} {part}" if line and not place else f"{line}{part}"
            if not line or len(with_part) <= _WIDTH:
                lines[-1] = with_part
            else:
                lines.append(part)
    return lines


def rows_below(above: Sequence[str], boxes: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Return the lines that put boxes in rows below one box, or below nothing.

    >>> list(rows_below(["output"], ["a", "b", "c", "d"]))
    [('output', 'a'), ('output', 'b'), ('output', 'c'), ('a', 'd')]
    """
    for number, box in enumerate(boxes):
        if number >= _COLUMNS:
            yield boxes[number - _COLUMNS], box
        elif above:
            yield above[0], box


def _parts(word: str) -> Iterator[str]:
    if len(word) <= _WIDTH:
        yield word
        return
    line = ""
    for part in _PARTS.findall(word):
        if line and len(line) + len(part) > _WIDTH:
            yield line
            line = ""
        line += part
        while len(line) > _WIDTH:
            yield line[:_WIDTH]
            line = line[_WIDTH:]
    yield line


def boxes_left_out(key: str, counts: tuple[int, int]) -> Iterator[tuple[str, str]]:
    """Return the boxes that say how many nodes are left out before and behind one."""
    for end, count in zip(_ENDS, counts, strict=True):
        if count:
            yield f"{key}{end}", f"… {count:,} more"


def lines_left_out(key: str, counts: tuple[int, int]) -> Iterator[tuple[str, str]]:
    """Return the lines between that box and those beside it, as the keys of their ends."""
    before, behind = counts
    if before:
        yield f"{key}{_ENDS[0]}", key
    if behind:
        yield key, f"{key}{_ENDS[1]}"
