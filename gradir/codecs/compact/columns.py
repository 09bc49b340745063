"""A column: unsigned integers of one width, little-endian, after one byte that tells the width."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

__all__ = ["pack", "unpack"]

_CODES: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}


def pack(values: Sequence[int]) -> bytes:
    r"""The bytes of a column, in the smallest width that holds every value.

    >>> pack([1, 2]), pack([1, 256]), pack([])
    (b'\x01\x01\x02', b'\x02\x01\x00\x00\x01', b'')
    """
    if not values:
        return b""
    largest = max(values)
    width = next(width for width in _CODES if not largest >> 8 * width)
    return struct.pack(f"<B{len(values)}{_CODES[width]}", width, *values)


def unpack(data: bytes) -> Sequence[int]:
    """The integers of a column.

    Raises:
        ValueError: the bytes are not a column.

    >>> list(unpack(pack([7, 70_000])))
    [7, 70000]
    """
    if not data:
        return b""
    width = data[0]
    if width not in _CODES:
        raise ValueError(f"its width is {width}; a column's is 1, 2, 4 or 8")
    count, rest = divmod(len(data) - 1, width)
    if rest:
        raise ValueError(f"its {len(data) - 1} bytes are no whole number of {width}-byte integers")
    return data[1:] if width == 1 else struct.unpack_from(f"<{count}{_CODES[width]}", data, 1)
