"""The fields of records as text, part by part, and what differs between two records."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gradir.diff.model import FieldChange
from gradir.diff.order import matched, out_of_place
from gradir.ir.text import quoted, ref_text, size_text, value_text, word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from gradir.ir import AttrValue, Ref, Saved, Source, TensorMeta

__all__ = ["CUT_FIELDS", "NODE_FIELDS", "SCOPE_FIELDS", "Fields", "Part", "field_changes", "numbered", "tensor_part"]

_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_TYPED_FIELDS: Final = frozenset({"attrs", "ext"})
"""The fields with values that can be equal and yet differ in type."""


class Part(NamedTuple):
    """One part of a field as text, with what is compared one by one where it has several values."""

    text: str
    values: Mapping[str, str] = {}


def field_changes(old: object, new: object, fields: Fields, shown: object) -> Iterator[FieldChange]:
    """What differs between two records of one kind.

    ``old`` names nodes as the second graph does, so that equal references are equal; ``shown`` is the same record in
    the words of the first graph, from which the texts before are taken.
    """
    for field, describe in fields.items():
        was, becomes = getattr(old, field), getattr(new, field)
        if was != becomes or (field in _TYPED_FIELDS and was):
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


def _name_parts(path: str, text: str | None) -> Mapping[str, Part]:
    return {path: Part(word(text))} if text else {}


def _names_parts(names: tuple[str, ...]) -> Mapping[str, Part]:
    return {"names": Part(_listed(map(word, names)))} if names else {}


def _count_parts(path: str, count: int) -> Mapping[str, Part]:
    return {path: Part(str(count))}


def _flag_parts(path: str, flag: bool) -> Mapping[str, Part]:
    return {path: Part("true")} if flag else {}


def _optional_flag_parts(path: str, flag: bool | None) -> Mapping[str, Part]:
    return {} if flag is None else {path: Part(str(flag).lower())}


def _input_parts(inputs: tuple[Ref | None, ...]) -> Mapping[str, Part]:
    return {f"in[{slot}]": Part("-" if ref is None else ref_text(ref)) for slot, ref in enumerate(inputs)}


def _output_parts(outputs: tuple[TensorMeta, ...]) -> Mapping[str, Part]:
    return {f"out[{nr}]": tensor_part(tensor) for nr, tensor in enumerate(outputs)}


def _value_parts(path: str, values: Mapping[str, AttrValue]) -> Mapping[str, Part]:
    return {f"{path}.{_key(key)}": Part(value_text(values[key])) for key in sorted(values)}


def _saved_parts(slots: tuple[Saved, ...]) -> Mapping[str, Part]:
    paths = numbered(f"saved.{_key(saved.slot)}" for saved in slots)
    return dict(zip(paths, map(_saved, slots), strict=True))


def _tensor_parts(tensor: TensorMeta | None) -> Mapping[str, Part]:
    return {} if tensor is None else {"tensor": tensor_part(tensor)}


def _source_parts(source: Source | None) -> Mapping[str, Part]:
    if source is None:
        return {}
    function = f" {word(source.function)}" if source.function else ""
    return {"source": Part(f"{word(source.file)}:{source.line}{function}")}


Fields = dict[str, "Callable[[Any], Mapping[str, Part]]"]
"""How each field of a record is described."""

SCOPE_FIELDS: Final[Fields] = {
    "class_name": partial(_name_parts, "class"),
    "detail": partial(_name_parts, "detail"),
    **{field: partial(_count_parts, field) for field in ("calls", "own", "total", "trainable")},
    "training": partial(_optional_flag_parts, "training"),
}
CUT_FIELDS: Final[Fields] = {
    "kind": partial(_name_parts, "kind"),
    "names": _names_parts,
    "scope": partial(_name_parts, "scope"),
    "tensor": _tensor_parts,
}
NODE_FIELDS: Final[Fields] = {
    **{field: partial(_name_parts, field) for field in ("role", "op", "native", "scope")},
    "names": _names_parts,
    "inputs": _input_parts,
    "outputs": _output_parts,
    "attrs": partial(_value_parts, "attrs"),
    "saved": _saved_parts,
    "base": partial(_name_parts, "base"),
    "opaque": partial(_flag_parts, "opaque"),
    "source": _source_parts,
    "ext": partial(_value_parts, "ext"),
}


def tensor_part(tensor: TensorMeta) -> Part:
    """A tensor in short, and its values by name."""
    values = {}
    if tensor.dtype is not None:
        values["dtype"] = word(tensor.dtype)
    if tensor.shape is not None:
        values["shape"] = _listed(map(size_text, tensor.shape))
    text = f"{values.get('dtype', '?')}{values.get('shape', '[?]')}"
    return Part(text, {**values, "device": word(tensor.device), "layout": word(tensor.layout)})


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
    size = "" if saved.bytes is None else f" {saved.bytes} bytes"
    return Part(f"{tensor.text}{size}", values)


def _listed(texts: Iterable[str]) -> str:
    return f"[{', '.join(texts)}]"


def _key(text: str) -> str:
    return text if _KEY.fullmatch(text) else quoted(text)
