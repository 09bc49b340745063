"""Read-only mappings of records and graphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class FrozenDict(dict[K, V]):
    """A read-only dict, equal to a plain one and written and shown as one.

    Its values are immutable too, so a copy is the same object.
    """

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("records and graphs are read-only: make another, as with msgspec.structs.replace")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __copy__(self) -> FrozenDict[K, V]:
        return self

    def __deepcopy__(self, memo: object) -> FrozenDict[K, V]:
        return self

    # By default, pickle would fill a new dict with __setitem__, which refuses.
    def __reduce__(self) -> tuple[Any, ...]:
        return frozen, (dict(self),)


# The one empty mapping: msgspec omits a field only if it holds the very object that is its default.
NOTHING: Final[FrozenDict[Any, Any]] = FrozenDict()


def frozen(mapping: Mapping[K, V]) -> FrozenDict[K, V]:
    """Return a mapping as a read-only one, and any other value unchanged."""
    kind: type[Any] = type(mapping)
    if kind is dict or (kind is not FrozenDict and issubclass(kind, Mapping)):
        return FrozenDict(mapping) if mapping else NOTHING
    held: Any = mapping
    return NOTHING if kind is FrozenDict and not mapping else held
