"""Cache values computed from the few distinct names, shapes and attributes of many nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Generic, TypeVar

import msgspec

from gradir.ir.model import AttrValue

K = TypeVar("K")
V = TypeVar("V")

_encode: Final = msgspec.msgpack.Encoder().encode


class Memo(dict[K, V]):
    """A dict that computes missing values."""

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[K], V]) -> None:
        self._make = make

    # dict calls this only for a missing key, so a hit needs no Python call.
    def __missing__(self, key: K) -> V:
        value = self[key] = self._make(key)
        return value


class AttributeCache(Generic[V]):
    """Cache values computed from attributes, by exact equality."""

    def __init__(self, make: Callable[[Mapping[str, AttrValue]], V]) -> None:
        self._make = make
        self._cache: dict[bytes, V] = {}

    def __call__(self, values: Mapping[str, AttrValue]) -> V:
        """Return the value for a mapping."""
        key = exact_key(values)
        if key is None:
            return self._make(values)
        if key not in self._cache:
            self._cache[key] = self._make(values)
        return self._cache[key]


class Table(dict[K, int]):
    """Number values in the order of their first lookup."""

    __slots__ = ()

    def __init__(self, first: Iterable[K] = ()) -> None:
        """Number the values of ``first`` from 0."""
        super().__init__()
        for value in first:
            self[value]

    def __missing__(self, key: K) -> int:
        place = self[key] = len(self)
        return place


def group_by_key(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values of each key, in the order of the pairs."""
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def exact_key(value: object) -> bytes | None:
    """Return a key that differs if values or their types differ, or ``None`` if the value cannot be encoded.

    In Python, 1 equals 1.0 and True, and 0.0 equals -0.0, although their texts differ.
    """
    try:
        return _encode(value)
    except (OverflowError, TypeError, UnicodeEncodeError):
        return None
