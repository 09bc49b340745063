"""Keys that no known version of the format has: reading ignores them, and they are nearly always misspelt."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import fields

from gradir.codecs.codec import encoding_of
from gradir.codecs.compression import opened
from gradir.codecs.document import BOM, MAGIC, Document
from gradir.codecs.faults import mismatched
from gradir.codecs.versions import NEWEST, Version, needs_steps
from gradir.errors import FormatError
from gradir.ir import Cut, Producer

__all__ = ["check_known"]

_UNIONS: Final = (Union, UnionType)
_CONTAINERS: Final = (*_UNIONS, tuple, Mapping)
"""The only types with records in them."""

_ADVICE: Final = "correct it, or leave it out"


class _Versioned(msgspec.Struct):
    version: str


def check_known(data: bytes) -> None:
    """Refuse a document that can be read, is of a known version and has keys or entries which are ignored.

    Raises:
        FormatError: it has; the place is the path of what holds the first one.
    """
    with opened(data) as document:
        encoding = encoding_of(document)
        library = msgspec.json if encoding == "json" else msgspec.msgpack
        text = document.removeprefix(BOM).removeprefix(MAGIC)
        version = Version.parse(library.decode(text, type=_Versioned).version) or NEWEST
        if version > NEWEST or needs_steps(encoding, version):
            return
        try:
            library.decode(text, type=_document(encoding))
        except msgspec.ValidationError as error:
            problem, place = mismatched(error)
            raise FormatError(problem, place=place or "$", advice=_ADVICE) from error


@cache
def _document(encoding: str) -> Any:
    if encoding == "json":
        return _closed(Document)
    from gradir.codecs.compact.layout import KEYS, LATER_SCOPE_COLUMNS, NODE_COLUMNS, SCOPE_COLUMNS, Kind

    return _record(
        "Compact",
        dict.fromkeys(KEYS, Any)
        | {
            "producer": _closed(Producer),
            "cuts": _closed_type(tuple[Cut, ...]),
            "kinds": _closed_type(tuple[Kind, ...]),
        }
        | {"scopes": _record("Scopes", dict.fromkeys((*SCOPE_COLUMNS, *LATER_SCOPE_COLUMNS), Any))}
        | {"nodes": _record("Nodes", dict.fromkeys(NODE_COLUMNS, Any))},
    )


def _record(name: str, types: Mapping[str, Any]) -> type[msgspec.Struct]:
    """A record that has these keys, needs none and allows no other."""
    # Keys of a file need not be names of Python's, and a record's fields must.
    numbered = {f"field{number}": key for number, key in enumerate(types)}
    members = [(field, types[key], None) for field, key in numbered.items()]
    return msgspec.defstruct(name, members, rename=numbered, forbid_unknown_fields=True)


@cache
def _closed(record: type[msgspec.Struct]) -> Any:
    """A record with the keys of another, in which there may be no others, or a row as long as another."""
    hints = get_type_hints(record, include_extras=True)
    types = {field.encode_name: _closed_type(hints[field.name]) for field in fields(record)}
    if record.__struct_config__.array_like:
        return tuple[tuple(types.values())]  # type: ignore[misc]
    return _record(record.__name__, types)


def _closed_type(kind: Any) -> Any:
    """A type with each record in it closed."""
    origin = get_origin(kind)
    if origin in _CONTAINERS:
        inner = tuple(map(_closed_type, get_args(kind)))
        return Union[inner] if origin in _UNIONS else origin[inner]
    return _closed(kind) if origin is None and isinstance(kind, type) and issubclass(kind, msgspec.Struct) else kind
