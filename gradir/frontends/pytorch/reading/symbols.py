"""Names of symbolic sizes that depend on nothing but the graph."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["Symbols"]

_RAGGED: Final = re.compile(r"\bj\d+\b")
"""A size of a jagged tensor, which torch numbers through the whole process; it may have a factor, as in ``2*j1``."""


class Symbols:
    """Numbers the ragged sizes of one graph from 1, in the order in which they are met."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def __call__(self, size: object) -> str:
        """The text of a symbolic size.

        >>> symbols = Symbols()
        >>> symbols("j7"), symbols("2*j3"), symbols("j7"), symbols("s0")
        ('j1', '2*j2', 'j1', 's0')
        """
        return _RAGGED.sub(self._name, str(size))

    def _name(self, match: re.Match[str]) -> str:
        return self._known.setdefault(match[0], f"j{len(self._known) + 1}")
