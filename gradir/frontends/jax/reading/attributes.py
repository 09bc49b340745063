"""The parameters of an equation, as plain values."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, Final

import numpy as np

from gradir.frontends.texts import plain_float, plain_int, plain_text
from gradir.ir import AttrValue
from gradir.ir.model import AttrScalar

__all__ = ["literal_number", "plain_params"]

_DEEPEST: Final = 3
_LONGEST: Final = 1_000

_NOTHING: Final = object()

_PLAIN: Final[tuple[tuple[tuple[type[Any], ...], Callable[[Any], AttrScalar]], ...]] = (
    ((bool, NoneType), lambda value: value),
    ((np.bool_,), bool),
    ((enum.Enum,), lambda value: plain_text(value.name)),
    ((int, np.integer), lambda value: plain_int(int(value))),
    ((float, np.floating), lambda value: plain_float(float(value))),
    ((str, np.dtype), lambda value: plain_text(str(value))),
)


def plain_params(params: Mapping[str, Any]) -> dict[str, AttrValue]:
    """What of an equation's parameters has a plain form; functions, jaxprs and shardings have none.

    >>> plain_params({"axes": (0, 1), "jaxpr": object(), "dimension_numbers": (((1,), (0,)), ((), ())), "out": None})
    {'axes': (0, 1), 'dimension_numbers': (((1,), (0,)), ((), ()))}
    """
    found = ((name, _plain(value, _DEEPEST)) for name, value in sorted(params.items()))
    return {name: value for name, value in found if value is not _NOTHING and value is not None and value != ()}


def literal_number(value: Any) -> AttrValue:
    """The number that a literal is; ``None`` where it is more than one, or complex."""
    if np.ndim(value) != 0:
        return None
    found = _plain(np.asarray(value).item(), 0)
    return None if found is _NOTHING else found


def _plain(value: Any, deep: int) -> Any:
    if isinstance(value, (tuple, list)) and len(value) <= _LONGEST:
        fields = getattr(value, "_fields", None)
        return _row(value if fields is None else [*zip(fields, value, strict=True)], deep)
    return next((plain(value) for kinds, plain in _PLAIN if isinstance(value, kinds)), _NOTHING)


def _row(values: Any, deep: int) -> Any:
    if not deep:
        return _NOTHING
    found = tuple(_plain(value, deep - 1) for value in values)
    return _NOTHING if any(value is _NOTHING for value in found) else found
