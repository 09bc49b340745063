"""A column: integers of one width, little-endian, after one byte that tells the width."""

from __future__ import annotations

import struct
import sys
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, chain, compress, repeat
from typing import Final, TypeVar

__all__ = ["any_beyond", "counts_of", "pack", "placed", "shares_of", "spread", "unpack"]

T = TypeVar("T")

_CODES: Final = {1: "B", 2: "H", 4: "I", 8: "Q"}
_SIGN: Final = 0x80
"""Beside the width, where the integers have a sign."""

_BYTES: Final = bytes(range(256))


def pack(values: Sequence[int]) -> bytes:
    r"""The bytes of a column, in the smallest width that holds every value, with a sign where one needs it.

    >>> pack([1, 2]), pack([1, 256]), pack([1, -2]), pack([])
    (b'\x01\x01\x02', b'\x02\x01\x00\x00\x01', b'\x81\x01\xfe', b'')
    """
    if not values:
        return b""
    largest, sign = max(values), 0
    if min(values) < 0:
        largest, sign = 2 * max(largest, ~min(values)), _SIGN
    width = next(width for width in _CODES if not largest >> 8 * width)
    return struct.pack(f"<B{len(values)}{_code(width | sign)}", width | sign, *values)


def _code(width: int) -> str:
    code = _CODES[width & ~_SIGN]
    return code.lower() if width & _SIGN else code


def unpack(data: bytes) -> Sequence[int]:
    """The integers of a column.

    Raises:
        ValueError: the bytes are not a column.

    >>> list(unpack(pack([7, 70_000]))), list(unpack(pack([7, -1])))
    ([7, 70000], [7, -1])
    """
    if not data:
        return b""
    size = data[0] & ~_SIGN
    if size not in _CODES:
        raise ValueError(f"its width is {size}; a column's is 1, 2, 4 or 8")
    if (len(data) - 1) % size:
        raise ValueError(f"its {len(data) - 1} bytes are no whole number of {size}-byte integers")
    if data[0] == 1:
        return data[1:]
    values = array(_code(data[0]), data[1:])
    if sys.byteorder == "big":
        values.byteswap()
    return values


def any_beyond(limit: int, values: Sequence[int]) -> bool:
    r"""Whether a value is negative or reaches the limit.

    >>> any_beyond(3, b"\1\2"), any_beyond(3, b"\1\3"), any_beyond(300, [299, 300]), any_beyond(300, [-1])
    (False, True, True, True)
    """
    if isinstance(values, bytes):
        return limit < len(_BYTES) and bool(values.translate(None, _BYTES[:limit]))
    return bool(values) and (max(values) >= limit or min(values) < 0)


def counts_of(values: Sequence[int]) -> Mapping[int, int]:
    r"""How often each value occurs.

    >>> sorted(counts_of(b"\1\0\1").items()), sorted(counts_of([1, 300, 1]).items())
    ([(0, 1), (1, 2)], [(1, 2), (300, 1)])
    """
    if not isinstance(values, bytes):
        return Counter(values)
    counts, left = {}, len(values)
    for value in _BYTES:
        if not left:
            break
        counts[value] = values.count(value)
        left -= counts[value]
    return counts


def shares_of(kind_of: Sequence[int], counts: Sequence[int]) -> Sequence[int]:
    """By record, the number that ``counts`` has for its kind.

    >>> list(shares_of([0, 2, 1], [5, 6, 700])), list(shares_of(bytes([0, 1, 0]), [5, 6]))
    ([5, 700, 6], [5, 6, 5])
    """
    if isinstance(kind_of, bytes) and max(counts, default=0) < len(_BYTES):
        return kind_of.translate(bytes(counts[: len(_BYTES)]).ljust(len(_BYTES), b"\0"))
    return list(map(counts.__getitem__, kind_of))


def placed(shares: Sequence[int]) -> list[int]:
    """The place of the record that each entry of a column belongs to.

    >>> placed([2, 0, 1])
    [0, 0, 2]
    """
    holders = list(compress(range(len(shares)), shares))
    if not any_beyond(2, shares):
        return holders
    return list(chain.from_iterable(map(repeat, holders, filter(None, shares))))


def spread(values: Sequence[T], counts: Sequence[int], kind_of: Sequence[int]) -> Iterator[T]:
    """For each entry of a column what its kind has for it, given for kind after kind.

    >>> list(spread(["a", "b", "c"], [2, 1], [1, 0, 1]))
    ['c', 'a', 'b', 'c']
    """
    ends = list(accumulate(counts))
    by_kind = [values[end - count : end] for end, count in zip(ends, counts, strict=True)]
    return chain.from_iterable(map(by_kind.__getitem__, kind_of))
