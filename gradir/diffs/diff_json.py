"""A diff as a file: JSON with a head, as schemas/gir-diff-1.0.schema.json describes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET

from gradir.diffs.changes import Change, Diff, FieldChange
from gradir.diffs.field_changes import type_at
from gradir.ir import AttrValue, Cut, Node, Scope
from gradir.ir.head import Head
from gradir.ir.json_documents import DocumentKind

if TYPE_CHECKING:
    from gradir.ir.model import Record

FORMAT: Final = "gir-diff"
VERSION: Final = "1.0"
_KINDS: Final[dict[str, type[Record]]] = {"node": Node, "scope": Scope, "cut": Cut}
_DOCUMENT: Final = DocumentKind("diff", FORMAT, VERSION, "gradir diff --format json")


def encode(diff: Diff) -> bytes:
    """Return the bytes of a diff as printable ASCII.

    Raises:
        FormatError: a record contains text that JSON cannot represent.
    """
    return _DOCUMENT.encode(diff)


def decode(data: bytes) -> Diff:
    """Return the diff in a file.

    Raises:
        FormatError: the file is no diff, is broken, or has a version that this gradir cannot read.
    """
    return _DOCUMENT.decode(
        data, Diff, lambda diff: msgspec.structs.replace(diff, changes=tuple(map(_with_values, diff.changes)))
    )


def _with_values(change: Change) -> Change:
    """Return the change with values of the records' types, which JSON does not have."""
    if not change.fields:
        return change
    kind = Head if change.id == change.fields[0].path[0] else _KINDS.get(change.subject)
    fields = tuple(
        FieldChange(field.path, *(_value(kind, field, value) for value in (field.before, field.after)))
        for field in change.fields
    )
    return msgspec.structs.replace(change, fields=fields)


def _value(kind: type[Record] | None, field: FieldChange, value: Any) -> Any:
    if value is UNSET or value is None:
        return value
    expected = None if kind is None else type_at(kind, field.path)
    if expected is not None:
        return msgspec.convert(value, expected)
    try:
        return msgspec.convert(value, AttrValue)
    except msgspec.ValidationError:
        # A newer gradir may have other types.
        return msgspec.json.encode(value).decode()
