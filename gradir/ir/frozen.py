"""Read-only mappings of records and graphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class FrozenDict(dict[K, V]):
    """A read-only dict that compares, encodes and prints like a plain one.

    Its values are immutable too, so a copy is the same object.
    """

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("records and graphs are read-only: make another, as with msgspec.structs.replace")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __copy__(self, _memo: object = None) -> FrozenDict[K, V]:
        return self

    __deepcopy__ = __copy__

    # By default, pickle would fill a new dict with __setitem__, which refuses.
    def __reduce__(self) -> tuple[Any, ...]:
        return freeze, (dict(self),)


# msgspec omits a field only if its value is the same object as the default.
NOTHING: Final[FrozenDict[Any, Any]] = FrozenDict()


def freeze(mapping: Mapping[K, V]) -> FrozenDict[K, V]:
    """Return a mapping as a `FrozenDict`, and any other value unchanged."""
    value: Any = mapping
    # The first two tests are faster than the third.
    if type(value) is FrozenDict:
        return value or NOTHING
    if type(value) is dict or isinstance(value, Mapping):
        return FrozenDict(value) if value else NOTHING
    return value  # type: ignore[no-any-return]
