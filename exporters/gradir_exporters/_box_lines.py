"""Long text in a box: in lines of a width that does not push the boxes around it apart."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["box_lines", "rows_below"]

_WIDTH: Final = 36
_COLUMNS: Final = 3
_PARTS: Final = re.compile(r"[^./_,:]*[./_,:]*")
"""The parts of a word that is too long for a line: a path, or the name of a parameter."""


def box_lines(text: str) -> list[str]:
    """The lines of a text: words that fit into a line stay whole, longer ones are parted behind a dot and the like.

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
    """The lines that put boxes in rows below one box, or below nothing: each from a box to the one below it.

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
