"""The values of a changed field as text, each on one printable line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from gradir.diffs.fields import further_parts, numbered
from gradir.diffs.model import FieldChange
from gradir.ir import Cut, Node, Ref, Saved, Scope, Source, TensorMeta
from gradir.ir.fields import fields_of
from gradir.ir.model import NonFinite, Record
from gradir.ir.text import quoted, ref_text, size_text, tensor_text, value_text, word

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gradir.diffs.fields import Path

__all__ = ["both_words", "one_line", "words"]

_ABSENT: Final = "(absent)"
_NO_GRADIENT: Final = "-"
_OF_VALUES: Final = frozenset(
    field.key for kind in (Node, Scope, Cut) for field in fields_of(kind) if isinstance(field.default, dict)
)
"""The fields with values of any type, of which a text is told from a name by its quotes."""

_SOURCE: Final = frozenset({"file", "line", "function"})


def both_words(field: FieldChange) -> tuple[str, str]:
    """Both values of a field that differs.

    >>> both_words(FieldChange(("saved", "mat1", "shape"), before=(2, "s0")))
    ('[2, s0]', '(absent)')
    """
    return words(field.path, field.before), words(field.path, field.after)


def words(path: Path, value: Any) -> str:
    """The value of a field as text: names as they are or, when they are no plain word, as JSON strings."""
    if value is UNSET:
        return _ABSENT
    if isinstance(value, Record) and not isinstance(value, NonFinite):
        return _record_words(value)
    if path[0] in _OF_VALUES and len(path) > 1:
        return value_text(value)
    if isinstance(value, str):
        return word(value)
    if isinstance(value, tuple):
        return _listed(_all_words(path, value))
    return _NO_GRADIENT if value is None else value_text(value)


def one_line(text: str) -> str:
    """What is one printable line already stays as it is; a Diff read from a file may hold anything."""
    return text if text.isprintable() else quoted(text)


def _all_words(path: Path, values: Iterable[Any]) -> Iterable[str]:
    if path == ("saved",):
        # Slots that stand in another order.
        return (FieldChange(("saved", *key)).name.partition(".")[2] for key in numbered(values))
    if path[-1] == "shape":
        return map(size_text, values)
    # A Diff read from a file may hold anything.
    return (word(value) if isinstance(value, str) else value_text(value) for value in values)


def _record_words(record: Record) -> str:
    if isinstance(record, Ref):
        return ref_text(record)
    if isinstance(record, TensorMeta):
        return tensor_text(record)
    if isinstance(record, Source):
        function = f" {word(record.function)}" if record.function else ""
        return f"{word(record.file)}:{record.line}{function}{_further(record, _SOURCE)}"
    if isinstance(record, Saved):
        if record.state != "held" and record == Saved(record.slot, state=record.state):
            return word(record.state)
        size = "" if record.bytes is None else f" {record.bytes} bytes"
        return f"{tensor_text(record.tensor)}{size}"
    return _listed(_parts(record, frozenset()))


def _further(record: Record, told: frozenset[str]) -> str:
    return "".join(f" {text}" for text in _parts(record, told))


def _parts(record: Record, told: frozenset[str]) -> Iterable[str]:
    return (f"{FieldChange(path).name}: {words(path, value)}" for path, value in further_parts(record, told).items())


def _listed(texts: Iterable[str]) -> str:
    return f"[{', '.join(texts)}]"
