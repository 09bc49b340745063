"""What a diff of two graphs in shared words says of the computation, and not of the frameworks that they come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from gradir.diffs.changes import UNSET, Change, Diff, FieldChange
from gradir.diffs.ignoring import ignoring
from gradir.ir import Node

__all__ = ["across"]

_BESIDE: Final = ("source", "ext", "order", "indices")


def across(diff: Diff, before: Mapping[str, Node], after: Mapping[str, Node]) -> Diff:
    """The diff without lines of sources and the order, and without what only one of the two frameworks tells.

    Of an operation that became another it also tells what each framework has for it (``native``), in its own words.

    >>> from gradir.diffs.changes import Totals
    >>> native = FieldChange(("native",), "addmm", "dot_general")
    >>> across(Diff(Totals(), Totals(), (Change("changed", "node", "matmul:1", fields=(native,)),)), {}, {}).changes
    ()
    """
    found = ignoring(diff, _BESIDE)
    return replace(found, changes=tuple(_told(found.changes, before, after)))


def _told(changes: Sequence[Change], before: Mapping[str, Node], after: Mapping[str, Node]) -> Iterator[Change]:
    for change in changes:
        fields = tuple(_fields(change.fields))
        if any(field.path == ("op",) for field in fields):
            fields += _natives(before.get(change.was or change.id), after.get(change.id))
        if fields or not change.fields or change.kind != "changed":
            yield change if fields == change.fields else replace(change, fields=fields)


def _natives(old: Node | None, new: Node | None) -> tuple[FieldChange, ...]:
    """What both frameworks have for an operation, where that is not just the word for it."""
    if old is None or new is None or (old.native, new.native) == (old.op, new.op):
        return ()
    return (FieldChange(("native",), old.native, new.native),)


def _fields(fields: Sequence[FieldChange]) -> Iterator[FieldChange]:
    for field in fields:
        is_half_known = field.path[0] in ("out", "attrs") and any(
            value is UNSET or value is None for value in (field.before, field.after)
        )
        if not is_half_known and field.path[0] != "native":
            yield field
