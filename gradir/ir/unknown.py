"""What a document has and no record: ignored as it is read, remembered with its graph, and found when that is asked.

The records take no key that they do not have, so a document as gradir writes it pays nothing for the question. One
that does not fit is read by twins of the records, which are the same but for what they do with other keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import fields

__all__ = ["closed", "converted", "keys", "known", "tolerant"]

T = TypeVar("T")

_UNIONS: Final = (Union, UnionType)
_CONTAINERS: Final = (*_UNIONS, tuple, Mapping)
"""The only types with records in them."""


def tolerant(kind: Any) -> Any:
    """A type with records in which keys and entries are ignored that they do not have."""
    return _twin(kind, is_tolerant=True)


def closed(kind: Any) -> Any:
    """A type with records in which there need not be any key, but no other; a row is as long as it should be."""
    return _twin(kind, is_tolerant=False)


def known(read: object, kind: type[T]) -> T:
    """The record that was read as its tolerant twin.

    >>> from gradir.ir.model import Source
    >>> known(msgspec.json.decode(b'{"file":"a.py","line":3,"later":1}', type=tolerant(Source)), Source)
    Source(file='a.py', line=3, function='')
    """
    return msgspec.convert(msgspec.to_builtins(read), kind)


def converted(plain: object, kind: type[T]) -> tuple[T, Exception | None]:
    """The record in plain data, and what is wrong with that if it has what is ignored.

    Raises:
        ValidationError: it is no such record.
    """
    try:
        return msgspec.convert(plain, kind), None
    except msgspec.ValidationError as error:
        return known(msgspec.convert(plain, tolerant(kind)), kind), error


def keys(name: str, types: Mapping[str, Any]) -> type[msgspec.Struct]:
    """A record that has these keys, needs none and allows no other."""
    return _record(name, {key: (kind, None) for key, kind in types.items()}, is_tolerant=False)


def _record(
    name: str, members: Mapping[str, tuple[Any, ...]], *, is_tolerant: bool, **more: Any
) -> type[msgspec.Struct]:
    # Keys of a file need not be names of Python's, and a record's fields must.
    numbered = {f"field{number}": key for number, key in enumerate(members)}
    rows = [(field, *members[key]) for field, key in numbered.items()]
    return msgspec.defstruct(name, rows, rename=numbered, forbid_unknown_fields=not is_tolerant, **more)


@cache
def _twin(kind: Any, *, is_tolerant: bool) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        twin = _twin(arguments[0], is_tolerant=is_tolerant)
        # What is said of a type with records in it is nothing that a reader minds.
        return kind if twin is arguments[0] else twin
    if origin in _CONTAINERS:
        inner = tuple(_twin(entry, is_tolerant=is_tolerant) for entry in arguments)
        return Union[inner] if origin in _UNIONS else origin[inner]
    record = origin or kind
    if isinstance(record, type) and issubclass(record, msgspec.Struct):
        return _twin_record(record, arguments, is_tolerant=is_tolerant)
    return kind


def _twin_record(record: type[msgspec.Struct], arguments: Sequence[Any], *, is_tolerant: bool) -> Any:
    hints = get_type_hints(record, include_extras=True)
    given = dict(zip(getattr(record, "__parameters__", ()), arguments, strict=False))
    types = {
        field.encode_name: _twin(_filled(hints[field.name], given), is_tolerant=is_tolerant) for field in fields(record)
    }
    if not is_tolerant:
        if record.__struct_config__.array_like:
            return tuple[tuple(types.values())]  # type: ignore[misc]
        return keys(record.__name__, types)
    members = {
        field.encode_name: (types[field.encode_name],)
        if field.required
        else (Union[types[field.encode_name], msgspec.UnsetType], msgspec.UNSET)
        for field in fields(record)
    }
    return _record(record.__name__, members, is_tolerant=True, array_like=record.__struct_config__.array_like)


def _filled(hint: Any, given: Mapping[Any, Any]) -> Any:
    """A type with types in place of its variables."""
    parameters = getattr(hint, "__parameters__", ())
    return hint[tuple(given.get(parameter, Any) for parameter in parameters)] if parameters else hint
