"""Attributes that are numbers and stand for something, as ``reduction`` does for the mean or the sum."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gradir.review.wording import NamedValue

if TYPE_CHECKING:
    from typing import Any

    from gradir.diffs.changes import Change, FieldChange
    from gradir.vocabulary import Vocabulary

__all__ = ["with_names"]


def with_names(change: Change, words: Vocabulary) -> Change:
    """A change in which such numbers have a name; it is equal to the change as it was.

    >>> from gradir.diffs.changes import Change, FieldChange
    >>> from gradir.vocabulary import Vocabulary
    >>> change = Change("changed", "node", "f:1", what="f", fields=(FieldChange(("attrs", "reduction"), 1, 2),))
    >>> named = with_names(change, Vocabulary(values={"reduction": ("none", "mean", "sum")}))
    >>> named == change, named.fields[0].after.name
    (True, 'sum')
    """
    if change.subject != "node" or not any(field.path[0] == "attrs" for field in change.fields):
        return change
    return replace(change, fields=tuple([_with_names(field, change.what, words) for field in change.fields]))


def _with_names(field: FieldChange, operation: str, words: Vocabulary) -> FieldChange:
    if field.path[0] != "attrs" or len(field.path) == 1:
        return field

    def named(value: Any) -> Any:
        name = words.value_name(operation, str(field.path[1]), value)
        if not name:
            return value
        made = NamedValue(value)
        made.name = name
        return made

    return replace(field, before=named(field.before), after=named(field.after))
