"""What is made of a value, made once: a graph has many nodes, and few distinct words, shapes and attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Generic, TypeVar

import msgspec

from gradir.ir.model import AttrValue

K = TypeVar("K")
V = TypeVar("V")

_encode: Final = msgspec.msgpack.Encoder().encode


class Memo(dict[K, V]):
    """A dict that makes what it lacks.

    >>> lengths = Memo(len)
    >>> lengths["relu"], lengths["relu"], lengths
    (4, 4, {'relu': 4})
    """

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[K], V]) -> None:
        """``make`` gives the value of a key."""
        self._make = make

    def __missing__(self, key: K) -> V:
        value = self[key] = self._make(key)
        return value


class MappingMemo(Generic[V]):
    """What is made of attributes, made once for those that are the same to the bit.

    >>> MappingMemo(sorted)({"dim": 1, "alpha": 1})
    ['alpha', 'dim']
    """

    def __init__(self, make: Callable[[Mapping[str, AttrValue]], V]) -> None:
        """``make`` gives the value of a mapping."""
        self._make = make
        self._made: dict[bytes, V] = {}

    def __call__(self, values: Mapping[str, AttrValue]) -> V:
        """What there is for a mapping."""
        key = exact_key(values)
        if key is None:
            return self._make(values)
        try:
            return self._made[key]
        except KeyError:
            made = self._made[key] = self._make(values)
            return made


class Table(dict[K, int]):
    """The place of each value, in the order in which they are first asked for.

    >>> table = Table([""])
    >>> [table["a"], table["b"], table["a"], table[""]], list(table)
    ([1, 2, 1, 0], ['', 'a', 'b'])
    """

    __slots__ = ()

    def __init__(self, first: Iterable[K] = ()) -> None:
        """``first`` are the values whose places are to be known."""
        super().__init__()
        for value in first:
            self[value]

    def __missing__(self, key: K) -> int:
        place = self[key] = len(self)
        return place


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
