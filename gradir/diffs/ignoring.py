"""Leave out of a diff what its reader does not care for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from msgspec.structs import replace

from gradir.diffs.changes import UNSET, Change, Diff, FieldChange
from gradir.diffs.field_changes import compared_fields, head_fields
from gradir.errors import GradirError
from gradir.hints import did_you_mean
from gradir.ir import Cut, Node, Saved, Scope
from gradir.ir.ids import storage_key
from gradir.vocabulary import Vocabulary, vocabulary_of

WHOLE: Final = ("scopes", "cuts", "order", "indices", "sequence")
"""What a pattern can name beside fields: all changes of scopes or cuts, another order, shifted indices."""

_CHURN: Final = ("native", "source", "ext", "order", "indices")
"""What differs between releases of a framework although the program is the same."""

_BESIDE: Final = ("source", "ext", "order", "indices")
"""What two frameworks tell in ways of their own."""

_UNREAD: Final = "unread"
"""The state of a saved slot of which nothing is known, so that it may be any."""


def ignoring(diff: Diff, patterns: Sequence[str]) -> Diff:
    """The diff without the fields that the patterns name, and without the changes that say nothing then.

    A pattern is the path of a field or a beginning of it (``source``, ``attrs``, ``attrs.eps``, ``saved.mat1.bytes``),
    with ``*`` for any text, or one of ``scopes``, ``cuts``, ``order``, ``indices`` and ``sequence``. The `Diff.script`
    stays whole.

    Raises:
        GradirError: a pattern names no field.

    >>> from gradir.diffs.changes import Totals
    >>> change = Change("changed", "node", "x", fields=(FieldChange(("attrs", "eps"), 1, 2),))
    >>> ignoring(Diff(Totals(), Totals(), (change,)), ["attrs.e*"]).changes
    ()
    """
    check_names(patterns)
    whole = {name for name in WHOLE if any(_fits(name, pattern) for pattern in patterns)}
    changes = tuple(
        change
        for change in diff.changes
        if f"{change.subject}s" not in whole and (change.subject != "graph" or change.id not in whole)
    )

    def told(change: Change) -> tuple[FieldChange, ...]:
        return tuple(field for field in change.fields if not any(names_field(each, field.name) for each in patterns))

    return _with_fields(replace(diff, changes=changes), told) if patterns else diff


def normalized(diff: Diff, words: Vocabulary | None = None) -> Diff:
    """The diff without what another release of the framework changes by itself.

    Left out are the framework's own names, source lines, ``ext``, sizes kept as attributes, the order, what another
    release writes into the description of a module, and an operation that became one which does the same
    (``unsafe_view`` and ``view``). What one release does not let be read, as a saved slot or an attribute, matches
    any. What a program sets counts, as the ``eps`` of a norm, of which nothing but the description of its module
    tells. ``words`` is what is known of the framework of both graphs. `without_identities` is to be done before.
    """
    words = vocabulary_of() if words is None else words
    diff = ignoring(diff, (*_CHURN, *words.incidental))
    unread = {storage_key(name, slot) for change in diff.changes for name, slot in _unread_slots(change)}
    return _with_fields(diff, lambda change: tuple(_said(change, words, unread)))


def across(diff: Diff, before: Mapping[str, Node], after: Mapping[str, Node]) -> Diff:
    """The diff without lines of sources and the order, and without what only one of the two frameworks tells.

    Of an operation that became another it also tells what each framework has for it (``native``), in its own words.

    >>> from gradir.diffs.changes import Totals
    >>> native = FieldChange(("native",), "addmm", "dot_general")
    >>> across(Diff(Totals(), Totals(), (Change("changed", "node", "matmul:1", fields=(native,)),)), {}, {}).changes
    ()
    """

    def told(change: Change) -> tuple[FieldChange, ...]:
        if change.kind in {"added", "removed"}:
            return change.fields
        fields = tuple(field for field in change.fields if not _is_of_one_framework(field))
        if any(field.path == ("op",) for field in fields):
            fields += _natives(before.get(change.was or change.id), after.get(change.id))
        return fields

    return _with_fields(ignoring(diff, _BESIDE), told)


def _natives(old: Node | None, new: Node | None) -> tuple[FieldChange, ...]:
    """What both frameworks have for an operation, where that is not just the word for it."""
    if old is None or new is None or (old.native, new.native) == (old.op, new.op):
        return ()
    return (FieldChange(("native",), old.native, new.native),)


def _is_of_one_framework(field: FieldChange) -> bool:
    is_half_known = any(value is UNSET or value is None for value in (field.before, field.after))
    return field.path[0] == "native" or (field.path[0] in ("out", "attrs") and is_half_known)


def _fits(text: str, pattern: str) -> bool:
    """Whether a pattern is the text; ``*`` stands for any text, and no other character for another."""
    return re.fullmatch(_expression(pattern), text, re.DOTALL) is not None


def _expression(pattern: str) -> str:
    return ".*".join(map(re.escape, pattern.split("*")))


def check_names(patterns: Sequence[str]) -> None:
    """Refuse a pattern that names no field.

    Raises:
        GradirError: the first that does not, with what it may have meant.
    """
    fields = [*(field for kind in (Node, Scope, Cut) for field in compared_fields(kind)), *head_fields()]
    known = (*dict.fromkeys(field.key for field in fields), *WHOLE)
    for given in patterns:
        name = re.split(r"[.\[]", given, maxsplit=1)[0]
        if not any(_fits(field, name) for field in known):
            raise GradirError(f"cannot ignore {given!r}{did_you_mean(name, known)}: choose from {', '.join(known)}")


def _with_fields(diff: Diff, told: Callable[[Change], tuple[FieldChange, ...]]) -> Diff:
    """The diff with these fields of its changes, and without the changes that say nothing then."""
    changes = []
    for change in diff.changes:
        fields = told(change)
        if fields or not change.fields or change.kind != "changed":
            changes.append(change if fields == change.fields else replace(change, fields=fields))
    return replace(diff, changes=tuple(changes))


def names_field(pattern: str, path: str) -> bool:
    """Whether a pattern is a path of a field or a beginning of it, up to a dot or a bracket.

    >>> names_field("attrs.*_sizes", "attrs.self_sizes"), names_field("saved.mat", "saved.mat1.bytes")
    (True, False)
    """
    return re.match(rf"{_expression(pattern)}(?=[.\[]|\Z)", path, re.DOTALL) is not None


def _said(change: Change, words: Vocabulary, unread: AbstractSet[str]) -> Iterator[FieldChange]:
    """The fields that say more than a release does by itself; ``unread`` are slots that may share a storage."""
    fields = change.fields
    slots = {field.path[:-1] for field in fields if field.path[-1] == "state" and _is_unread(field)}
    is_other_word = any(field.path == ("op",) and _says_the_same(field, words) for field in fields)
    unsettled, unexposed = words.unsettled.get(change.what, ()), words.unexposed.get(change.what, ())
    for field in fields:
        known = field.before is not UNSET and field.after is not UNSET and field.path[-1] != "state"
        if (field.path[:-1] in slots and not known) or _is_unread(field) or _says_the_same(field, words):
            continue
        if (is_other_word and field.path[0] == "kinds") or any(names_field(each, field.name) for each in unsettled):
            continue
        if UNSET in (field.before, field.after) and any(names_field(each, field.name) for each in unexposed):
            continue
        if field.path[-1] != "storage" or unread.isdisjoint((field.before, field.after)):
            yield field


def _unread_slots(change: Change) -> Iterator[tuple[str, str]]:
    """The saved slots of a node that one side does not let be read, by what either side calls it."""
    for field in change.fields:
        if field.path[0] == "saved" and len(field.path) > 1 and _is_unread(field):
            yield from ((name, str(field.path[1])) for name in (change.was or change.id, change.id))


def _is_unread(field: FieldChange) -> bool:
    """Whether a field of a saved slot, or all of the slot, differs in that one side does not let it be read."""
    values = (field.before, field.after)
    return field.path[0] == "saved" and any(
        value == _UNREAD if field.path[-1] == "state" else isinstance(value, Saved) and value.state == _UNREAD
        for value in values
    )


def _says_the_same(field: FieldChange, words: Vocabulary) -> bool:
    if not (isinstance(field.before, str) and isinstance(field.after, str)):
        return False
    if field.path == ("detail",):
        return words.describe_the_same(field.before, field.after)
    return field.path == ("op",) and words.are_same(field.before, field.after)
