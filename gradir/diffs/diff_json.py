"""A diff as a file: JSON with a head, as schemas/gir-diff-1.0.schema.json describes it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gradir.diffs.changes import UNSET, Change, Diff, FieldChange
from gradir.diffs.field_changes import type_at
from gradir.errors import FormatError, warn
from gradir.ir import AttrValue, Cut, Node, Scope
from gradir.ir.excerpt import excerpt, said
from gradir.ir.jsontext import printable_json
from gradir.ir.nesting import TOO_DEEP, is_too_deep
from gradir.ir.unknown import converted

if TYPE_CHECKING:
    from gradir.ir.model import Record

__all__ = ["FORMAT", "VERSION", "decode", "encode"]

FORMAT: Final = "gir-diff"
VERSION: Final = "1.0"
_KINDS: Final[dict[str, type[Record]]] = {"node": Node, "scope": Scope, "cut": Cut}
_READABLE: Final = re.compile(r"1\.(0|[1-9][0-9]{0,5})")


def encode(diff: Diff) -> bytes:
    """The bytes of a diff, of which a terminal can show every character.

    Raises:
        FormatError: a record holds what JSON cannot spell.
    """
    try:
        body = msgspec.json.encode({"format": FORMAT, "version": VERSION, **msgspec.to_builtins(diff)})
    except (UnicodeEncodeError, OverflowError) as error:
        raise FormatError(f"the diff holds what JSON cannot spell: {error}") from error
    return printable_json(msgspec.json.format(body, indent=2)).encode() + b"\n"


def decode(data: bytes) -> Diff:
    """The diff in a file.

    Raises:
        FormatError: it is no diff, broken, or of a version that cannot be read.
    """
    if is_too_deep(data):
        raise FormatError(TOO_DEEP)
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"broken JSON: {said(error)}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise FormatError(f'not a diff: its head has no "format": "{FORMAT}"; gradir diff --format json writes one')
    version = document.get("version")
    if not isinstance(version, str) or not _READABLE.fullmatch(version):
        raise FormatError(f"the diff has version {excerpt(version)}; this gradir reads {VERSION}")
    del document["format"], document["version"]
    try:
        diff, surplus = converted(document, Diff)
        diff = msgspec.structs.replace(diff, changes=tuple(map(_with_values, diff.changes)))
    except (msgspec.ValidationError, RecursionError) as error:
        raise FormatError(f"broken diff: {said(error)}") from error
    if version != VERSION:
        warn(f"the diff has version {version}, newer than {VERSION}; what this gradir does not know in it is ignored")
    elif surplus is not None:
        warn(f"the diff has what this gradir does not know, which is ignored: {said(surplus)}")
    return diff


def _with_values(change: Change) -> Change:
    """The change with the values of its fields as the records have them, which JSON does not tell."""
    if not change.fields:
        return change
    kind = _KINDS.get(change.subject)
    fields = tuple(
        FieldChange(field.path, *(_value(kind, field, value) for value in (field.before, field.after)))
        for field in change.fields
    )
    return msgspec.structs.replace(change, fields=fields)


def _value(kind: type[Record] | None, field: FieldChange, value: Any) -> Any:
    if value is UNSET or value is None:
        return value
    found = None if kind is None else type_at(kind, field.path)
    if found is not None:
        return msgspec.convert(value, found)
    try:
        return msgspec.convert(value, AttrValue)
    except msgspec.ValidationError:
        # A field of a newer version.
        return msgspec.json.encode(value).decode()
