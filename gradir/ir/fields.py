"""Describe the fields of the records in `gradir.ir.model`."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, NamedTuple, cast, get_type_hints

import msgspec

from gradir.ir.model import About, Record

_DEFAULT_ABOUT: Final = About()


class Field(NamedTuple):
    """One field of a record.

    ``name`` is the attribute, ``key`` the name in files and diffs, and ``default`` may be `msgspec.NODEFAULT`.
    """

    name: str
    key: str
    hint: Any
    type: Any
    default: Any
    about: About


@cache
def fields_of(record: type[Record]) -> tuple[Field, ...]:
    """Return the fields of a record, in order."""
    # msgspec.inspect takes a millisecond to load, and a plain export does not need it.
    from msgspec.inspect import type_info

    info: Any = type_info(record)
    hints = get_type_hints(record, include_extras=True)
    found = []
    for field in info.fields:
        hint, make = hints[field.name], field.default_factory
        about = next((extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, About)), _DEFAULT_ABOUT)
        default = field.default if make is msgspec.NODEFAULT else make()
        found.append(Field(field.name, field.encode_name, hint, field.type, default, about))
    return tuple(found)


@cache
def other_fields(record: type[Record], known: frozenset[str]) -> tuple[Field, ...]:
    """Return the fields of a record that are not among the known ones."""
    return tuple(field for field in fields_of(record) if field.name not in known)


def records_in(field: Field) -> type[Record] | None:
    """Return the record type of a field with one or several records, or ``None``."""
    from msgspec import inspect

    kinds = [field.type]
    for kind in kinds:
        if isinstance(kind, inspect.StructType):
            found: Any = kind.cls
            return cast("type[Record]", found)
        if isinstance(kind, inspect.Metadata):
            kinds.append(kind.type)
        elif isinstance(kind, inspect.UnionType):
            kinds.extend(kind.types)
        elif isinstance(kind, inspect.VarTupleType):
            kinds.append(kind.item_type)
    return None


def noun(field: Field) -> str:
    """Return the name of an entry of a list, for messages."""
    kind = records_in(field)
    return field.key if kind is None else kind.__name__.lower()


def is_list(field: Field) -> bool:
    """Return whether a field is a list."""
    from msgspec.inspect import VarTupleType

    return isinstance(field.type, VarTupleType)
