"""The string table: every text once, numbered by first use."""

from __future__ import annotations

__all__ = ["StringTable"]


class StringTable:
    """Numbers texts by first use; number 0 is the empty text.

    >>> table = StringTable()
    >>> table.number("a"), table.number(""), table.number("a")
    (1, 0, 1)
    """

    def __init__(self) -> None:
        self._numbers = {"": 0}

    def number(self, text: str) -> int:
        """The index of a text, which is added when new."""
        return self._numbers.setdefault(text, len(self._numbers))

    def texts(self) -> list[str]:
        """The table."""
        return list(self._numbers)
