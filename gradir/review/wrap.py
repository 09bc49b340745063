"""Text that loses nothing where it is longer than the terminal is wide."""

from __future__ import annotations

import re
import textwrap
from typing import Final

__all__ = ["wrapped"]

_CONTINUED: Final = "  "
_LEAST_WIDTH: Final = 20
"""In less, further lines are not indented."""

_END_OF_PHRASE: Final = re.compile(r"(?<=;) ")


def wrapped(text: str, width: int | None) -> list[str]:
    """A text in lines of at most ``width`` characters, the further ones indented; they end behind ``;`` where they can.

    >>> wrapped("+1 -0 ~0 cuts; +0 -1 ~0 nodes; edges -1", 26)
    ['+1 -0 ~0 cuts;', '  +0 -1 ~0 nodes; edges -1']
    """
    if width is None or len(text) <= width:
        return [text]
    width = max(width, 1)
    continued = _CONTINUED if width >= _LEAST_WIDTH else ""
    lines: list[str] = []
    for phrase in _END_OF_PHRASE.split(text):
        if lines and len(lines[-1]) + 1 + len(phrase) <= width:
            lines[-1] = f"{lines[-1]} {phrase}"
            continue
        first = continued if lines else ""
        lines += textwrap.wrap(phrase, width, initial_indent=first, subsequent_indent=continued, break_on_hyphens=False)
    return lines
