"""Read and write JSON documents of one record with a head, such as diffs and overlays.

Records accept only known keys. Documents with unknown keys are read with tolerant twins of the records.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import UnionType
from typing import Annotated, Any, Final, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import fields

from gradir.errors import FormatError, warn
from gradir.ir.jsontext import TOO_DEEP, is_too_deep, printable_json
from gradir.ir.text import excerpt, summarize_error

T = TypeVar("T")
# gradir reads every minor version of these documents.
READABLE: Final = re.compile(r"1\.(0|[1-9][0-9]{0,5})")


class DocumentKind(NamedTuple):
    """A kind of document: its name, its key in the head, and the command that writes one."""

    noun: str
    format: str
    version: str
    command: str

    def encode(self, record: msgspec.Struct) -> bytes:
        """Return the bytes of a record, without control characters."""
        try:
            body = msgspec.json.encode({"format": self.format, "version": self.version, **msgspec.to_builtins(record)})
        except (UnicodeEncodeError, OverflowError) as error:
            raise FormatError(f"the {self.noun} has a value that JSON cannot represent: {error}") from error
        return printable_json(msgspec.json.format(body, indent=2)).encode() + b"\n"

    def decode(self, data: bytes, kind: type[T], complete: Callable[[T], T]) -> T:
        """Return the record in a document, as ``complete`` returns it."""
        if is_too_deep(data):
            raise FormatError(TOO_DEEP)
        try:
            document = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            advice = f"{self.command} writes one"
            raise FormatError(f"broken JSON: {summarize_error(error)}", advice=advice) from error
        if not isinstance(document, dict) or document.get("format") != self.format:
            article = "an" if self.noun[0] in "aeiou" else "a"
            raise FormatError(
                f'not {article} {self.noun}: its head has no "format": "{self.format}"; {self.command} writes one'
            )
        version = document.get("version")
        if not isinstance(version, str) or not READABLE.fullmatch(version):
            raise FormatError(f"the {self.noun} has version {excerpt(version)}; this gradir reads {self.version}")
        # The records have no fields for the head.
        del document["format"], document["version"]
        try:
            record, surplus = convert_tolerantly(document, kind)
            record = complete(record)
        except (msgspec.ValidationError, RecursionError) as error:
            raise FormatError(f"broken {self.noun}: {summarize_error(error)}") from error
        if version != self.version:
            newer = f"the {self.noun} has version {version}, newer than {self.version}"
            warn(f"{newer}; gradir ignores fields that it does not know")
        elif surplus is not None:
            warn(f"the {self.noun} has a field that this gradir does not know and ignores: {summarize_error(surplus)}")
        return record


_UNIONS: Final = (Union, UnionType)
# Only these types have records in them.
_CONTAINERS: Final = (*_UNIONS, tuple, Mapping)


def convert_tolerantly(plain: object, kind: type[T]) -> tuple[T, Exception | None]:
    """Return the record in plain data, and the error about unknown keys or entries, if any."""
    try:
        return msgspec.convert(plain, kind), None
    except msgspec.ValidationError as error:
        # mypy takes no type variable for hashable.
        twin: Any = kind
        known = msgspec.to_builtins(msgspec.convert(plain, make_twin(twin, is_tolerant=True)))
        return msgspec.convert(known, kind), error


@cache
def make_twin(kind: Any, *, is_tolerant: bool) -> Any:
    """Return a twin of a record type that ignores unknown keys and entries, or one that refuses them.

    A twin that is not tolerant has optional keys and rows of exact length.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        twin = make_twin(arguments[0], is_tolerant=is_tolerant)
        # Readers ignore the annotations of types that contain records.
        return kind if twin is arguments[0] else twin
    if origin in _CONTAINERS:
        inner = tuple(make_twin(entry, is_tolerant=is_tolerant) for entry in arguments)
        return Union[inner] if origin in _UNIONS else origin[inner]
    record = origin or kind
    if isinstance(record, type) and issubclass(record, msgspec.Struct):
        return _twin_record(record, arguments, is_tolerant=is_tolerant)
    return kind


def _twin_record(record: type[msgspec.Struct], arguments: Sequence[Any], *, is_tolerant: bool) -> Any:
    hints = get_type_hints(record, include_extras=True)
    known = dict(zip(getattr(record, "__parameters__", ()), arguments, strict=False))
    types = []
    for field in fields(record):
        hint = hints[field.name]
        # Fill in the arguments of a generic record.
        if parameters := getattr(hint, "__parameters__", ()):
            hint = hint[tuple(known.get(parameter, Any) for parameter in parameters)]
        types.append(make_twin(hint, is_tolerant=is_tolerant))
    is_row = record.__struct_config__.array_like
    if is_row and not is_tolerant:
        return tuple[tuple(types)]  # type: ignore[misc]
    # A key such as "in" may be no valid name in Python.
    numbered = {f"field{number}": field for number, field in enumerate(fields(record))}
    return msgspec.defstruct(
        record.__name__,
        [
            (name, inner) if field.required and is_tolerant else (name, Union[inner, msgspec.UnsetType], msgspec.UNSET)
            for (name, field), inner in zip(numbered.items(), types, strict=True)
        ],
        rename={name: field.encode_name for name, field in numbered.items()},
        forbid_unknown_fields=not is_tolerant,
        array_like=is_row,
        # A keyword-only record may have a required field after an optional one. In a row, the order counts.
        kw_only=not is_row,
        gc=False,
    )
