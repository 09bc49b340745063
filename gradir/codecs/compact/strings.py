"""The string table: every text once, numbered by first use."""

from __future__ import annotations

__all__ = ["StringTable", "split_id"]

_LONGEST_ORDINAL = 9


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


def split_id(node_id: str) -> tuple[str, int]:
    """An id as the text before its ordinal, and the ordinal; the whole id and 0 when it ends in none.

    >>> split_id("fc/addmm:12"), split_id("fc.0"), split_id("a:01"), split_id(":٣")
    (('fc/addmm:', 12), ('fc.0', 0), ('a:01', 0), (':٣', 0))
    """
    head, colon, tail = node_id.rpartition(":")
    if not colon or not tail.isascii() or not tail.isdigit() or tail[0] == "0" or len(tail) > _LONGEST_ORDINAL:
        return node_id, 0
    return head + colon, int(tail)
