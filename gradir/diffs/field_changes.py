"""The values of the fields of records part by part, what differs between two records, and their settings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, Union

from msgspec import UNSET
from msgspec.structs import replace

from gradir.diffs.changes import FieldChange
from gradir.diffs.sequences import find_out_of_place, matched
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
    """One part of a field, with what is compared one by one where it has several values."""

    value: Any
    values: Mapping[Path, Any] = {}


# What no two captures have in common, so that it is no difference.
_MEASURED: Final[Path] = ("ext", MILLISECONDS)
_TENSOR: Final = ("dtype", "shape", "device", "layout")
_SIZE: Final = ("dtype", "shape", "bytes")
# The fields that are compared in ways of their own.
_SLOT: Final = frozenset({"slot", *_SIZE, "origin", "storage", "state"})


def field_changes(old: object, new: object, fields: Fields, shown: object) -> Iterator[FieldChange]:
    """Yield what differs between two records of one kind."""
    # `old` names nodes as the second graph does, so that equal references are equal. `shown` is the same record in
    # the words of the first graph, and gives the values before.
    for field, describe in fields.items():
        was, becomes = getattr(old, field), getattr(new, field)
        # Values of attributes can be equal and yet differ in type.
        if was != becomes or (was and isinstance(was, dict)):
            parts, own = describe(was), getattr(shown, field)
            yield from _part_changes(parts, describe(becomes), parts if own is was else describe(own))


def _part_changes(
    old: Mapping[Path, Part], new: Mapping[Path, Part], shown: Mapping[Path, Part]
) -> Iterator[FieldChange]:
    for path, before, after in matched(old, new):
        if path == _MEASURED:
            continue
        if before is None or after is None:
            yield FieldChange(path, shown[path].value if before else UNSET, after.value if after else UNSET)
        elif not (before.values and after.values):
            if bool(before.values) != bool(after.values) or not _is_same(before.value, after.value):
                yield FieldChange(path, shown[path].value, after.value)
        else:
            for key, _, _ in matched(before.values, after.values):
                was, becomes = before.values.get(key, UNSET), after.values.get(key, UNSET)
                if not _is_same(was, becomes):
                    yield FieldChange((*path, *key), was if was is UNSET else shown[path].values[key], becomes)
    if find_out_of_place(old, new):
        # Only saved slots can: everything else is numbered, sorted or alone.
        yield FieldChange(("saved",), *(tuple(part.value.slot for part in parts.values()) for parts in (old, new)))


def _is_same(one: object, other: object) -> bool:
    return one == other and repr(one) == repr(other)


def numbered(words: Iterable[str]) -> Iterator[tuple[str | int, ...]]:
    """Yield each word by itself, followed by 2, 3 … if it repeats."""
    seen: Counter[str] = Counter()
    for text in words:
        seen[text] += 1
        yield (text,) if seen[text] == 1 else (text, seen[text])


# How each field of a record is described.
Fields: TypeAlias = Mapping[str, Callable[[Any], Mapping[Path, Part]]]
# What records of two graphs are matched by: names, of which a diff says more than that they differ.
_KEYS: Final[Mapping[type[Record], str]] = {Node: "id", Scope: "path"}


def record_fields(kind: type[Record]) -> tuple[Field, ...]:
    """Return the fields of a record that a diff compares."""
    return tuple(field for field in fields_of(kind) if field.name != _KEYS.get(kind))


def head_fields() -> tuple[Field, ...]:
    """Return the fields of the head that a diff compares; cuts are compared one by one, as nodes are."""
    return tuple(field for field in fields_of(Head) if field.about.compared != "free" and field.name != "cuts")


@cache
def descriptions(kind: type[Record]) -> Fields:
    """Return how each compared field of a record is described, by the type of the field."""
    return {field.name: _description(field) for field in record_fields(kind)}


def type_at(kind: type[Record], path: Path) -> Any:
    """Return the type of the values at a path in records of a kind; ``None`` if no field has that path.

    >>> type_at(Node, ("saved", "mat1", 2, "bytes")) == type_at(Saved, ("bytes",))
    True
    """
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
        if inside is Saved and not keys:
            return tuple[str, ...]
        if inside is Saved:
            # The name of a slot, which no field has.
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
            for key, slot in zip(numbered(slot.slot for slot in slots), slots, strict=True)
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
    # What says nothing is left out, and no number does.
    nothing = (None, "", ()) if is_list(field) else (None, "")
    return lambda value: {} if value in nothing or value is field.default is False else {path: Part(value)}


def further_parts(record: Record, but: frozenset[str]) -> dict[Path, Any]:
    """Return all fields but these, part by part."""
    return {
        path: part.value
        for field in other_fields(type(record), but)
        for path, part in _description(field)(getattr(record, field.name)).items()
    }


def _present_fields(record: Record, fields: Iterable[str]) -> dict[Path, Any]:
    return {(field,): value for field in fields if (value := getattr(record, field)) is not None}


def _describe_slot(saved: Saved) -> Part:
    """Return a saved slot; one of which only the state is known, as a hook leaves it, has no further values."""
    values = _present_fields(saved, _SIZE)
    has_size = bool(values)
    values.update(_present_fields(saved, ("origin",)))
    if saved.storage:
        values["storage",] = saved.storage
    if not values and saved.state != "held":
        return Part(saved)
    values["state",] = saved.state
    # Of a slot that came or went the type tells what it was, wherever it is from; in equal modules that is equal.
    own = replace(saved, origin=None, storage="") if has_size else saved
    return Part(own, {**values, **further_parts(saved, _SLOT)})


# The records that are compared in ways of their own; a reference and a source as one value.
_RECORDS: Final[Mapping[type[Record], Callable[[Any], Part]]] = {
    Ref: Part,
    Source: Part,
    TensorMeta: lambda tensor: Part(
        tensor, {**_present_fields(tensor, _TENSOR), **further_parts(tensor, frozenset(_TENSOR))}
    ),
}


def fits(text: str, pattern: str) -> bool:
    """Return whether a pattern is the text; ``*`` stands for any text."""
    return re.fullmatch(_expression(pattern), text, re.DOTALL) is not None


def _expression(pattern: str) -> str:
    return ".*".join(map(re.escape, pattern.split("*")))


def names_field(pattern: str, path: str) -> bool:
    """Return whether a pattern is a path of a field or a beginning of it, up to a dot or a bracket.

    >>> names_field("attrs.*_sizes", "attrs.self_sizes"), names_field("saved.mat", "saved.mat1.bytes")
    (True, False)
    """
    return re.match(rf"{_expression(pattern)}(?=[.\[]|\Z)", path, re.DOTALL) is not None


_PART: Final = re.compile(r"(?:\([^()]*\)|\[[^\[\]]*\]|[^,])+")

_OBJECT: Final = re.compile(r"<.*>", re.DOTALL)
_DEFAULT: Final = "false"
_ANY: Final = "*"


def setting_changes(
    old: Node | Scope | Cut | None, new: Node | Scope | Cut | None, words: Vocabulary
) -> list[FieldChange]:
    """Return the settings that differ between two records, of which one may be missing.

    Attributes that are null, false, sizes or at their default are no settings; `Vocabulary.defaults` knows the others.

    >>> from gradir.vocabulary import Vocabulary
    >>> setting_changes(None, Node("mul:1", attrs={"other": 0.5, "alpha": 1}), Vocabulary(defaults={"alpha": "1"}))
    [FieldChange(path=('attrs', 'other'), before=UNSET, after=0.5)]
    """
    found = [{} if record is None else dict(_settings(record, words)) for record in (old, new)]
    return [
        FieldChange(path, UNSET if before is None else before[0], UNSET if after is None else after[0])
        for path, before, after in matched(*found)
        if repr(before) != repr(after)
    ]


def _settings(record: Node | Scope | Cut, words: Vocabulary) -> Iterator[tuple[Path, tuple[AttrValue]]]:
    """Yield the settings of a record, each in a tuple, since a value may be anything."""
    if isinstance(record, Node):
        sizes = (*words.incidental, *words.sizes)
        for name in sorted(record.attrs):
            value = record.attrs[name]
            if (
                _is_short(value)
                and _is_setting(name, value_text(value), words)
                and not _names_a_size(sizes, f"attrs.{name}")
            ):
                yield ("attrs", name), (value,)
    elif isinstance(record, Scope):
        named = [(part, *part.partition("=")) for part in parts_of(record.detail)]
        said = ", ".join(part for part, name, mark, value in named if not mark or _is_setting(name, value, words))
        if said:
            yield ("detail",), (said,)


def parts_of(detail: str) -> list[str]:
    """Return the parts of a description; a comma within brackets ends none."""
    return [part.strip() for part in _PART.findall(detail)]


def _is_short(value: AttrValue) -> bool:
    """Return whether a value is one number or text, or a list of such."""
    if isinstance(value, tuple):
        return not any(isinstance(each, tuple) for each in value)
    return value is not None and not (isinstance(value, str) and _OBJECT.fullmatch(value))


def _is_setting(name: str, value: str, words: Vocabulary) -> bool:
    default = words.defaults.get(name, _DEFAULT)
    # A number for each dimension, all of which are the same, is that number.
    values = {each.strip() for each in value.lower().strip("()[]").split(",")} - {""}
    return default != _ANY and values not in ({default}, {"null"})


@lru_cache
def _names_a_size(patterns: tuple[str, ...], name: str) -> bool:
    # The same few attributes of thousands of nodes are asked for.
    return any(names_field(pattern, name) for pattern in patterns)
