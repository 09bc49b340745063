"""The fields of records as text, part by part, and what differs between two records."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from typing import Any, Final, NamedTuple, TypeAlias

from gradir.diff.model import FieldChange
from gradir.diff.order import matched, out_of_place
from gradir.ir import AttrValue, Node, Ref, Saved, Scope, Source, TensorMeta
from gradir.ir.fields import Field, fields_of, is_list, other_fields, records_in
from gradir.ir.model import Record
from gradir.ir.text import quoted, ref_text, size_text, value_text, word

__all__ = ["Fields", "Part", "compared_fields", "descriptions", "field_changes", "numbered", "tensor_part"]

_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


class Part(NamedTuple):
    """One part of a field as text, with what is compared one by one where it has several values."""

    text: str
    values: Mapping[str, str] = {}


_SLOT: Final = frozenset({"slot", "dtype", "shape", "bytes", "origin", "storage", "state"})
_SOURCE: Final = frozenset({"file", "line", "function"})
_TENSOR: Final = frozenset({"dtype", "shape", "device", "layout"})
"""The fields that are told in words of their own."""

_NO_RECORD: Final = Part("-")
"""An input slot without a gradient."""


def field_changes(old: object, new: object, fields: Fields, shown: object) -> Iterator[FieldChange]:
    """What differs between two records of one kind.

    ``old`` names nodes as the second graph does, so that equal references are equal; ``shown`` is the same record in
    the words of the first graph, from which the texts before are taken.
    """
    for field, describe in fields.items():
        was, becomes = getattr(old, field), getattr(new, field)
        # Values of attributes can be equal and yet differ in type.
        if was != becomes or (was and isinstance(was, dict)):
            parts, words = describe(was), getattr(shown, field)
            yield from _part_changes(parts, describe(becomes), parts if words is was else describe(words))


def _part_changes(old: Mapping[str, Part], new: Mapping[str, Part], shown: Mapping[str, Part]) -> Iterator[FieldChange]:
    for path, before, after in matched(old, new):
        if before is None or after is None:
            yield FieldChange(path, shown[path].text if before else None, after.text if after else None)
        elif not (before.values and after.values):
            if before.text != after.text:
                yield FieldChange(path, shown[path].text, after.text)
        else:
            for name, was, becomes in matched(before.values, after.values):
                if was != becomes:
                    yield FieldChange(f"{path}.{name}", None if was is None else shown[path].values[name], becomes)
    if out_of_place(old, new):
        # Only saved slots can: everything else is numbered, sorted or alone.
        yield FieldChange("saved", *(_listed(path.removeprefix("saved.") for path in parts) for parts in (old, new)))


def numbered(words: Iterable[str]) -> Iterator[str]:
    """Each word, followed by ``#2``, ``#3`` … where it repeats; no word holds ``#`` unless it is quoted."""
    seen: Counter[str] = Counter()
    for text in words:
        seen[text] += 1
        yield text if seen[text] == 1 else f"{text}#{seen[text]}"


Fields: TypeAlias = Mapping[str, Callable[[Any], Mapping[str, Part]]]
"""How each field of a record is described."""

_KEYS: Final[Mapping[type[Record], str]] = {Node: "id", Scope: "path"}
"""What records of two graphs are matched by: names, of which a diff says more than that they differ."""


def compared_fields(kind: type[Record]) -> tuple[Field, ...]:
    """The fields of a record that a diff looks at.

    >>> from gradir.ir import Cut
    >>> [field.key for field in compared_fields(Cut)]
    ['kind', 'names', 'scope', 'tensor']
    """
    return tuple(field for field in fields_of(kind) if field.name != _KEYS.get(kind))


@cache
def descriptions(kind: type[Record]) -> Fields:
    """How each field of a record that a diff looks at is described, by the type of the field."""
    return {field.name: partial(_describer(field), field.key) for field in compared_fields(kind)}


def _describer(field: Field) -> Callable[[str, Any], Mapping[str, Part]]:
    inner = records_in(field)
    if inner is Saved:
        return _saved_parts
    if inner is not None:
        describe = partial(_RECORDS.get(inner, _record_part))
        return partial(_numbered_parts if is_list(field) else _single_part, describe)
    if is_list(field):
        return _names_parts
    return _value_parts if isinstance(field.default, dict) else partial(_plain_part, field.default)


def _plain_part(default: object, path: str, value: str | float | bool | None) -> Mapping[str, Part]:
    """A text, number or flag; what says nothing is left out, and no number does."""
    if value is None or value == "" or (value is False and default is False):
        return {}
    return {path: Part(word(value) if isinstance(value, str) else value_text(value))}


def _names_parts(path: str, names: tuple[str | float, ...]) -> Mapping[str, Part]:
    texts = (word(name) if isinstance(name, str) else value_text(name) for name in names)
    return {path: Part(_listed(texts))} if names else {}


def _value_parts(path: str, values: Mapping[str, AttrValue]) -> Mapping[str, Part]:
    return {f"{path}.{_key(key)}": Part(value_text(values[key])) for key in sorted(values)}


def _single_part(describe: Callable[[Any], Part], path: str, record: Record | None) -> Mapping[str, Part]:
    return {} if record is None else {path: describe(record)}


def _numbered_parts(
    describe: Callable[[Any], Part], path: str, records: tuple[Record | None, ...]
) -> Mapping[str, Part]:
    return {
        f"{path}[{number}]": _NO_RECORD if record is None else describe(record) for number, record in enumerate(records)
    }


def _saved_parts(path: str, slots: tuple[Saved, ...]) -> Mapping[str, Part]:
    paths = numbered(f"{path}.{_key(saved.slot)}" for saved in slots)
    return dict(zip(paths, map(_saved, slots), strict=True))


def _record_part(record: Record) -> Part:
    """A record of a kind that has no words of its own."""
    values = _further(record, frozenset())
    return Part(_listed(f"{path}: {text}" for path, text in values.items()), values)


def _further(record: Record, told: frozenset[str]) -> dict[str, str]:
    """The fields that are not told in other words, part by part."""
    return {
        path: part.text
        for field in other_fields(type(record), told)
        for path, part in _describer(field)(field.key, getattr(record, field.name)).items()
    }


def _source(source: Source) -> Part:
    function = f" {word(source.function)}" if source.function else ""
    further = "".join(f" {path}: {text}" for path, text in _further(source, _SOURCE).items())
    return Part(f"{word(source.file)}:{source.line}{function}{further}")


def _ref(ref: Ref) -> Part:
    return Part(ref_text(ref))


def tensor_part(tensor: TensorMeta) -> Part:
    """A tensor in short, and its values by name."""
    values = {}
    if tensor.dtype is not None:
        values["dtype"] = word(tensor.dtype)
    if tensor.shape is not None:
        values["shape"] = _listed(map(size_text, tensor.shape))
    text = f"{values.get('dtype', '?')}{values.get('shape', '[?]')}"
    places = {"device": word(tensor.device), "layout": word(tensor.layout)}
    return Part(text, {**values, **places, **_further(tensor, _TENSOR)})


def _saved(saved: Saved) -> Part:
    """A saved slot; one of which the state is all that is known, as a hook leaves it, has no further values."""
    tensor = tensor_part(saved.tensor)
    values = {name: tensor.values[name] for name in ("dtype", "shape") if name in tensor.values}
    if saved.bytes is not None:
        values["bytes"] = str(saved.bytes)
    if saved.origin is not None:
        values["origin"] = ref_text(saved.origin)
    if saved.storage:
        values["storage"] = word(saved.storage)
    if not values and saved.state != "held":
        return Part(word(saved.state))
    values["state"] = word(saved.state)
    values |= _further(saved, _SLOT)
    size = "" if saved.bytes is None else f" {saved.bytes} bytes"
    return Part(f"{tensor.text}{size}", values)


_RECORDS: Final[Mapping[type[Record], Callable[[Any], Part]]] = {Ref: _ref, Source: _source, TensorMeta: tensor_part}
"""The records that have words of their own."""


def _listed(texts: Iterable[str]) -> str:
    return f"[{', '.join(texts)}]"


def _key(text: str) -> str:
    return text if _KEY.fullmatch(text) else quoted(text)
