"""Compare the fields and settings of two records part by part."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, Union

from msgspec import UNSET
from msgspec.structs import replace

from gradir.diffs.changes import FieldChange
from gradir.diffs.sequences import find_out_of_place, number_repeats, pair_by_key
from gradir.ir import AttrValue, Node, Ref, Saved, Scope, Source, TensorMeta
from gradir.ir.fields import Field, fields_of, is_list, other_fields, records_in
from gradir.ir.head import Head
from gradir.ir.marks import MILLISECONDS
from gradir.ir.model import Record
from gradir.ir.text import value_text

if TYPE_CHECKING:
    from gradir.ir import Cut
    from gradir.vocabulary import Vocabulary

Path: TypeAlias = tuple["str | int", ...]


class Part(NamedTuple):
    """A part of a field, with its ``values`` if they are compared one by one."""

    value: Any
    values: Mapping[Path, Any] = {}


_NO_PART: Final = Part(UNSET)
# Times differ between any two captures, and so they do not count.
_MEASURED: Final[Path] = ("ext", MILLISECONDS)
_TENSOR: Final = ("dtype", "shape", "device", "layout")
_SIZE: Final = ("dtype", "shape", "bytes")
# The fields that `_describe_slot` describes by itself.
_SLOT: Final = frozenset({"slot", *_SIZE, "origin", "storage", "state"})


def field_changes(old: object, new: object, fields: Fields, shown: object) -> Iterator[FieldChange]:
    """Yield the differences between two records of one kind."""
    # `old` has the names of the second graph, so that equal references are equal. `shown` is the same record with the
    # names of the first graph, and gives the values to report.
    for field, describe in fields.items():
        before, after = getattr(old, field), getattr(new, field)
        # Values of attributes can be equal and yet differ in type.
        if before != after or (before and isinstance(before, dict)):
            parts, original = describe(before), getattr(shown, field)
            yield from _part_changes(parts, describe(after), parts if original is before else describe(original))


def _part_changes(
    old: Mapping[Path, Part], new: Mapping[Path, Part], shown: Mapping[Path, Part]
) -> Iterator[FieldChange]:
    for path, before, after in pair_by_key(old, new):
        if path == _MEASURED:
            continue
        # Only one of a name and its translation may be empty, and then only one is a part.
        original = shown.get(path, _NO_PART)
        if before is None or after is None:
            yield FieldChange(path, original.value, after.value if after else UNSET)
        elif not (before.values and after.values):
            if bool(before.values) != bool(after.values) or not _is_same(before.value, after.value):
                yield FieldChange(path, original.value, after.value)
        else:
            for key, _, _ in pair_by_key(before.values, after.values):
                one, other = before.values.get(key, UNSET), after.values.get(key, UNSET)
                if not _is_same(one, other):
                    yield FieldChange((*path, *key), original.values.get(key, UNSET), other)
    if find_out_of_place(old, new):
        # Only saved slots can have another order: all other parts are numbered, sorted or alone.
        yield FieldChange(("saved",), *(tuple(part.value.slot for part in parts.values()) for parts in (old, new)))


def _is_same(one: object, other: object) -> bool:
    return one == other and repr(one) == repr(other)


# By field of a record, a function that returns its parts.
Fields: TypeAlias = Mapping[str, Callable[[Any], Mapping[Path, Part]]]
# The names by which records match. Their changes have reports of their own, such as "renamed".
_KEYS: Final[Mapping[type[Record], str]] = {Node: "id", Scope: "path"}


def record_fields(kind: type[Record]) -> tuple[Field, ...]:
    """Return the fields of a record that a diff compares."""
    return tuple(field for field in fields_of(kind) if field.name != _KEYS.get(kind))


def head_fields() -> tuple[Field, ...]:
    """Return the fields of the head that a diff compares as wholes, which excludes cuts."""
    return tuple(field for field in fields_of(Head) if field.about.compared != "free" and field.name != "cuts")


@cache
def descriptions(kind: type[Record]) -> Fields:
    """Return by compared field of a record a function that returns its parts."""
    return {field.name: _description(field) for field in record_fields(kind)}


def type_at(kind: type[Record], path: Path) -> Any:
    """Return the type of the values at a path in records of a kind; ``None`` if no field has that path."""
    inside: type[Record] | None = kind
    keys = list(path)
    while inside is not None:
        field = next((field for field in fields_of(inside) if field.key == keys[0]), None)
        if field is None:
            return None
        del keys[0]
        if isinstance(field.default, dict):
            return AttrValue if keys else field.hint
        inside = records_in(field)
        if inside is Saved:
            if not keys:
                return tuple[str, ...]
            # Not a field but the name of a slot.
            del keys[0]
        while keys and isinstance(keys[0], int):
            del keys[0]
        if not keys:
            return field.hint if inside is None else Union[inside, None]
    return None


def _description(field: Field) -> Callable[[Any], Mapping[Path, Part]]:
    path, inner = (field.key,), records_in(field)
    if inner is Saved:
        return lambda slots: {
            (*path, *key): _describe_slot(slot)
            for key, slot in zip(number_repeats(slot.slot for slot in slots), slots, strict=True)
        }
    if inner is not None:
        describe: Callable[[Any], Part] = _RECORDS.get(
            inner, lambda record: Part(record, further_parts(record, frozenset()))
        )
        if not is_list(field):
            return lambda record: {} if record is None else {path: describe(record)}
        # An input slot without a gradient is a value too.
        return lambda records: {
            (*path, number): Part(None) if record is None else describe(record) for number, record in enumerate(records)
        }
    if isinstance(field.default, dict):
        return lambda values: {(*path, key): Part(values[key]) for key in sorted(values)}
    # Empty values are no parts, but every number is one.
    empty = (None, "", ()) if is_list(field) else (None, "")
    return lambda value: {} if value in empty or value is field.default is False else {path: Part(value)}


def further_parts(record: Record, excluded: frozenset[str]) -> dict[Path, Any]:
    """Return the fields of a record part by part, except for the ``excluded`` ones."""
    return {
        path: part.value
        for field in other_fields(type(record), excluded)
        for path, part in _description(field)(getattr(record, field.name)).items()
    }


def _present_fields(record: Record, fields: Iterable[str]) -> dict[Path, Any]:
    return {(field,): value for field in fields if (value := getattr(record, field)) is not None}


def _describe_slot(saved: Saved) -> Part:
    """Return a saved slot as a part, without values if only its state is known, as after a hook."""
    values = _present_fields(saved, _SIZE)
    has_size = bool(values)
    values.update(_present_fields(saved, ("origin",)))
    if saved.storage:
        values["storage",] = saved.storage
    if not values and saved.state != "held":
        return Part(saved)
    values["state",] = saved.state
    # An added or removed slot is reported by its type alone, which is equal in equal modules.
    own = replace(saved, origin=None, storage="") if has_size else saved
    return Part(own, {**values, **further_parts(saved, _SLOT)})


# The records with descriptions of their own; a reference and a source are one value each.
_RECORDS: Final[Mapping[type[Record], Callable[[Any], Part]]] = {
    Ref: Part,
    Source: Part,
    TensorMeta: lambda tensor: Part(
        tensor, {**_present_fields(tensor, _TENSOR), **further_parts(tensor, frozenset(_TENSOR))}
    ),
}


def fits(text: str, pattern: str) -> bool:
    """Return whether a pattern matches the whole text; ``*`` is any text."""
    return re.fullmatch(_expression(pattern), text, re.DOTALL) is not None


def _expression(pattern: str) -> str:
    return ".*".join(map(re.escape, pattern.split("*")))


def names_field(pattern: str, path: str) -> bool:
    """Return whether a pattern matches the path of a field or its beginning, up to a dot or bracket."""
    return re.match(rf"{_expression(pattern)}(?=[.\[]|\Z)", path, re.DOTALL) is not None


_PART: Final = re.compile(r"(?:\([^()]*\)|\[[^\[\]]*\]|[^,])+")
_OBJECT: Final = re.compile(r"<.*>", re.DOTALL)
_DEFAULT: Final = "false"
_ANY: Final = "*"


def setting_changes(
    old: Node | Scope | Cut | None, new: Node | Scope | Cut | None, vocabulary: Vocabulary
) -> list[FieldChange]:
    """Return the settings that differ between two records, of which one may be missing.

    Attributes that are null, false, sizes or at their default are no settings. `Vocabulary.defaults` has the defaults.
    """
    both = [dict(_settings(record, vocabulary)) for record in (old, new)]
    return [
        FieldChange(path, *(settings.get(path, UNSET) for settings in both))
        for path, before, after in pair_by_key(*both)
        if repr(before) != repr(after)
    ]


def _settings(record: Node | Scope | Cut | None, vocabulary: Vocabulary) -> Iterator[tuple[Path, AttrValue]]:
    if isinstance(record, Node):
        sizes = (*vocabulary.incidental, *vocabulary.sizes)
        for name in sorted(record.attrs):
            value = record.attrs[name]
            if (
                _is_short(value)
                and _is_setting(name, value_text(value), vocabulary)
                and not names_any(sizes, f"attrs.{name}")
            ):
                yield ("attrs", name), value
    elif isinstance(record, Scope):
        parts = [(part, *part.partition("=")) for part in parts_of(record.detail)]
        detail = ", ".join(
            part for part, name, mark, value in parts if not mark or _is_setting(name, value, vocabulary)
        )
        if detail:
            yield ("detail",), detail


def parts_of(detail: str) -> list[str]:
    """Return the parts of a description, which commas outside of brackets separate."""
    return [part.strip() for part in _PART.findall(detail)]


def _is_short(value: AttrValue) -> bool:
    """Return whether a value is one number or text, or a list of such."""
    if isinstance(value, tuple):
        return not any(isinstance(each, tuple) for each in value)
    return value is not None and not (isinstance(value, str) and _OBJECT.fullmatch(value))


def _is_setting(name: str, value: str, vocabulary: Vocabulary) -> bool:
    default = vocabulary.defaults.get(name, _DEFAULT)
    # The same number for each dimension counts as one number.
    values = {each.strip() for each in value.lower().strip("()[]").split(",")} - {""}
    return default != _ANY and values not in ({default}, {"null"})


@lru_cache
def names_any(patterns: tuple[str, ...], name: str) -> bool:
    """Return whether one of these patterns `names_field`."""
    # Thousands of nodes have the same few attributes.
    return any(names_field(pattern, name) for pattern in patterns)
