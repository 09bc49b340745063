"""Changes with names relative to their module, which are equal in equal modules."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from gradir.ir import Node, Ref, Saved, TensorMeta
from gradir.ir.fields import fields_of, records_in
from gradir.ir.ids import PATH_SEPARATORS
from gradir.review.wording import field_value_text

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from gradir.diffs.changes import Change, FieldChange
    from gradir.diffs.field_changes import Path
    from gradir.ir.model import Record

_OWN_INDEX: Final = re.compile(r"([^.]*_|)(0|[1-9][0-9]{0,8})(?=\.|\Z)", re.ASCII)
_INDEX: Final = re.compile(rf"([^{PATH_SEPARATORS}]*_|)(0|[1-9][0-9]{{0,8}})(?=[{PATH_SEPARATORS}]|\Z)", re.ASCII)
_ABSOLUTE: Final = -1
# The fields of a module that count its parameters, and with its calls.
COUNTS: Final = frozenset({"own", "total", "trainable"})
COUNTS_AND_CALLS: Final = COUNTS | {"calls"}
# An integer, which in a description is usually a size.
WHOLE_NUMBER: Final = re.compile(r"(?<![\w.+-])\d+(?![\w.+-])")
# The length of the path of a saved slot, without the number of a repeated slot.
_WITH_SLOT: Final = 2


class RelativeName(NamedTuple):
    """A name relative to a module.

    The name starts with the path ``above`` levels up from the module, and ``rest`` follows. ``step`` is the distance of
    the first index after that path from the module's own (-1 for the previous layer). A name that shares no path with
    the module is all ``rest``.
    """

    above: int
    rest: str
    step: int = 0


class _Value(NamedTuple):
    """A value of a field: ``name`` of a node or module, else ``text``, which separates equal values of other types."""

    name: RelativeName | None
    text: str
    value: Any


_FEED: Final = _Value(None, "", None)


class _RelativeChange(NamedTuple):
    """A change; ``rest`` is the change without names and fields."""

    id: RelativeName
    scope: RelativeName
    old_id: RelativeName
    fields: tuple[tuple[Path, _Value, _Value], ...]
    rest: Change


# Two modules have the same changes exactly if these are equal.
RelativeChanges = tuple[_RelativeChange, ...]


def make_relative(changes: Iterable[Change], path: str, was: str | None = None) -> RelativeChanges:
    """Return changes relative to the module at ``path``, which the first graph has at ``was``."""
    before = path if was is None else was
    found = []
    for change in changes:
        base = before if change.kind == "removed" else path
        fields = [
            (field.path, _make_value(field, field.before, before), _make_value(field, field.after, base))
            for field in change.fields
        ]
        old_id = relative_name(before, change.old_id) if change.old_id else RelativeName(_ABSOLUTE, "")
        names = relative_name(base, change.id), relative_name(base, change.scope), old_id
        found.append(_RelativeChange(*names, tuple(fields), replace(change, id="", scope="", old_id="", fields=())))
    return tuple(found)


def make_relative_without_feeds(
    changes: Iterable[Change], path: str, was: str, feeds: tuple[str, str]
) -> RelativeChanges:
    """Return relative changes without the names of the nodes that feed the module, which differ by layer."""
    # These are `feeds`, the only nodes, before and after, that the list entry around the module reads from outside. A
    # node that was read from outside counts too, if the slot reads from inside or nothing now.
    names = [relative_name(module, feed) if feed else None for module, feed in zip((was, path), feeds, strict=True)]
    return tuple(
        change._replace(fields=tuple([_drop_feed(*field, names) for field in change.fields]))
        for change in make_relative(changes, path, was)
    )


def drop_sizes(changes: RelativeChanges) -> Hashable:
    """Return a key that is equal for changes that differ only in sizes of tensors and descriptions."""
    # The numbers of a description count, unless the class of the module changed.
    has_new_class = any(path == ("class",) for change in changes for path, _, _ in change.fields)
    found = []
    for change in changes:
        fields = tuple([(field[0], _drop_sizes_of_field(*field, has_new_class)) for field in change.fields])
        found.append((change.id, change.scope, change.old_id, fields, replace(change.rest, tensor=None)))
    return tuple(found)


def _drop_sizes_of_field(path: Path, before: _Value, after: _Value, has_new_class: bool) -> Hashable:
    is_tensor = isinstance(before.value, TensorMeta) or isinstance(after.value, TensorMeta)
    if is_tensor or path[0] in COUNTS or path[-1] in {"shape", "bytes"}:
        return ()
    if path == ("detail",) and has_new_class:
        return WHOLE_NUMBER.sub("#", before.text), WHOLE_NUMBER.sub("#", after.text)
    return before, after


def relative_name(path: str, name: str) -> RelativeName:
    """Return a name relative to the module at ``path``."""
    common = _common_path(path, name)
    if common == len(path):
        return RelativeName(0, name[common:])
    at = common + 1 if common else 0
    own, other = _OWN_INDEX.match(path, at), _INDEX.match(name, at)
    is_entry = own and other and own[1] == other[1] and own[2] != other[2]
    if own and other and is_entry and (not common or name[common] == "."):
        return RelativeName(path.count(".", at) + 1, name[other.end() :], int(other[2]) - int(own[2]))
    return RelativeName(path.count(".", common), name[common:]) if common else RelativeName(_ABSOLUTE, name)


def names_a_record(field: Path) -> bool:
    """Return whether the values of a field are names of nodes or modules."""
    if field[0] == "saved":
        return len(field) > _WITH_SLOT and field[-1] in _find_reference_keys(Saved)
    return field[0] in _find_reference_keys(Node) or field == ("scope",)


@cache
def _find_reference_keys(record: type[Record]) -> frozenset[str]:
    return frozenset(field.key for field in fields_of(record) if field.about.refers or records_in(field) is Ref)


def _make_value(field: FieldChange, value: Any, path: str) -> _Value:
    if names_a_record(field.path):
        if isinstance(value, Ref):
            return _Value(relative_name(path, value.id), "", value.output_nr)
        if isinstance(value, str):
            return _Value(relative_name(path, value), "", None)
    return _Value(None, field_value_text(field.path, value), value)


def _drop_feed(
    path: Path, before: _Value, after: _Value, feeds: Sequence[RelativeName | None]
) -> tuple[Path, _Value, _Value]:
    is_inside_now = after.name.above == 0 if after.name is not None else after.value in (None, UNSET)
    was_outside = before.name is not None and before.name.above != 0
    old, new = (
        _FEED if feed is not None and value.name == feed else value
        for value, feed in zip((before, after), feeds, strict=True)
    )
    return path, _FEED if was_outside and is_inside_now else old, new


def _common_path(path: str, name: str) -> int:
    """Return the length of the common start of a path and a name."""
    if name.startswith(path):
        same = len(path)
    else:
        same = next(at for at, char in enumerate(path) if at == len(name) or name[at] != char)
    ends_in_path = same == len(path) or path[same] == "."
    if ends_in_path and (same == len(name) or name[same] in PATH_SEPARATORS):
        return same
    return max(path.rfind(".", 0, same), 0)
