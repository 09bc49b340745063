"""Keys under which the text of a value can be kept."""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["exact_key"]

_encode: Final = msgspec.msgpack.Encoder().encode


def exact_key(value: object) -> bytes | None:
    """A key that differs where values differ or their types do; ``None`` for a value that has none.

    ``==`` takes 1 for 1.0 and for true, and 0.0 for -0.0, whose texts differ. Lone surrogates and integers of more than
    64 bits have no key.

    >>> len({exact_key(value) for value in (1, 1.0, True, "1", (1,), (1.0,), 0.0, -0.0)})
    8
    >>> exact_key(2**70) is None
    True
    """
    try:
        return _encode(value)
    except (OverflowError, TypeError, UnicodeEncodeError):
        return None
