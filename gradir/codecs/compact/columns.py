"""A column: unsigned integers of one width, little-endian, after one byte that tells the width."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["any_from", "counts_of", "length", "pack", "pick", "unpack"]

_CODES: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}
_BYTES: Final = bytes(range(256))
_FEW: Final = 16
_MANY: Final = 1000
"""A few values among many bytes are counted faster by taking one after the other out than byte by byte."""


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
    width, count = _measured(data)
    return data[1:] if width == 1 else struct.unpack_from(f"<{count}{_CODES[width]}", data, 1)


def length(data: bytes) -> int:
    """The number of integers of a column, which is not unpacked for it.

    Raises:
        ValueError: the bytes are not a column.

    >>> length(pack([7, 70_000])), length(pack([]))
    (2, 0)
    """
    return _measured(data)[1] if data else 0


def pick(data: bytes, places: Sequence[int]) -> list[int]:
    """Some of the integers of a column, which is not unpacked for them.

    Raises:
        ValueError: the bytes are not a column.

    >>> pick(pack([7, 70_000, 8]), [1, 2])
    [70000, 8]
    """
    if not places:
        return []
    width, _ = _measured(data)
    entry = struct.Struct(f"<{_CODES[width]}")
    return [entry.unpack_from(data, 1 + width * place)[0] for place in places]


def _measured(data: bytes) -> tuple[int, int]:
    """The width and the number of the integers."""
    width = data[0]
    if width not in _CODES:
        raise ValueError(f"its width is {width}; a column's is 1, 2, 4 or 8")
    count, rest = divmod(len(data) - 1, width)
    if rest:
        raise ValueError(f"its {len(data) - 1} bytes are no whole number of {width}-byte integers")
    return width, count


def any_from(limit: int, values: Sequence[int]) -> bool:
    r"""Whether a value reaches the limit.

    >>> any_from(3, b"\1\2"), any_from(3, b"\1\3"), any_from(300, [299, 300])
    (False, True, True)
    """
    if isinstance(values, bytes):
        return limit < len(_BYTES) and bool(values.translate(None, _BYTES[:limit]))
    return max(values, default=-1) >= limit


def counts_of(values: Sequence[int]) -> Mapping[int, int]:
    r"""How often each value occurs.

    >>> sorted(counts_of(b"\1\0\1").items()), sorted(counts_of([1, 300, 1]).items())
    ([(0, 1), (1, 2)], [(1, 2), (300, 1)])
    """
    counts: Counter[int] = Counter()
    while len(counts) < _FEW and len(values) > _MANY and isinstance(values, bytes):
        rest = values.translate(None, values[:1])
        counts[values[0]] = len(values) - len(rest)
        values = rest
    counts.update(values)
    return counts
