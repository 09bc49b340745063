"""How many entries of a flat column each node has, and where they are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, compress, repeat

__all__ = ["marked", "placed", "shares_of"]

_BYTES = 256


def shares_of(kind_of: Sequence[int], counts: Sequence[int]) -> Sequence[int]:
    """By node, the number that ``counts`` has for its kind.

    >>> list(shares_of([0, 2, 1], [5, 6, 700])), list(shares_of(bytes([0, 1, 0]), [5, 6]))
    ([5, 700, 6], [5, 6, 5])
    """
    if isinstance(kind_of, bytes) and max(counts, default=0) < _BYTES:
        return kind_of.translate(bytes(counts[:_BYTES]).ljust(_BYTES, b"\0"))
    return list(map(counts.__getitem__, kind_of))


def marked(kind_of: Sequence[int], marks: Sequence[bool]) -> list[int]:
    """The places of the nodes whose kind is marked, of which there are few.

    >>> marked([0, 2, 1], [False, True, True]), marked(bytes([0, 1, 0, 1]), [False, True])
    ([1, 2], [1, 3])
    """
    shares = shares_of(kind_of, list(map(int, marks)))
    if not isinstance(shares, bytes):
        return list(compress(range(len(shares)), shares))
    places, at = [], shares.find(1)
    while at >= 0:
        places.append(at)
        at = shares.find(1, at + 1)
    return places


def placed(shares: Sequence[int]) -> list[int]:
    """The place of the node that each entry of a flat column belongs to.

    >>> placed([2, 0, 1])
    [0, 0, 2]
    """
    holders = list(compress(range(len(shares)), shares))
    return list(chain.from_iterable(map(repeat, holders, filter(None, shares))))
