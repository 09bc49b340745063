"""Write values, changes and modules as text, and fit lines to a terminal."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from gradir.diffs.changes import ADDED_OR_REMOVED, FieldChange
from gradir.diffs.field_changes import further_parts, parts_of
from gradir.diffs.sequences import number_repeats
from gradir.ir import Cut, Node, Ref, Saved, Scope, Source, TensorMeta
from gradir.ir.cuts import cut_text
from gradir.ir.fields import fields_of
from gradir.ir.model import NonFinite, Record
from gradir.ir.name_ranges import ranges
from gradir.ir.text import pluralize, quote, ref_text, size_text, tensor_text, value_text, word
from gradir.vocabulary import vocabulary_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from gradir.diffs.changes import Change, Diff, Kind
    from gradir.diffs.field_changes import Path
    from gradir.vocabulary import Vocabulary

SIGNS: Final = {"added": "+", "removed": "-", "changed": "~", "renamed": ">", "moved": "^"}
_LAST: Final = frozenset({"order", "indices"})
# Fields with values of any type, where text has quotes, unlike names.
_OF_VALUES: Final = frozenset(
    field.key for kind in (Node, Scope, Cut) for field in fields_of(kind) if isinstance(field.default, dict)
)
_OPERATION: Final = ("op",)
_DESCRIPTION: Final = ("detail",)
# Descriptions leave out a setting with its default value.
_DEFAULT: Final = "default"
_ATTRIBUTES: Final = "attrs"
# Descriptions with only these characters need no quotes.
_PLAIN_DESCRIPTION: Final = re.compile(r"[\w=.,'()\[\]{}:<> +*/-]*", re.ASCII)
# Operations, by their shared names, with a number as second operand.
_BY: Final = frozenset({"mul", "div"})
# In this slot the number is the dividend, so "div by 2" would be wrong.
_DIVIDED: Final = frozenset({("div", "in0")})
_MOST_OF_SETTINGS: Final = 80
# Further lines of a narrower terminal are not indented.
_LEAST_WIDTH: Final = 20
_END_OF_PHRASE: Final = re.compile(r"(?<=;) ")


class NamedValue(int):
    """A number with a ``name`` to show instead."""

    name: str = ""


def field_value_texts(field: FieldChange) -> tuple[str, str]:
    """Return both values of a field as text; the second of two nodes with one name becomes ``another NAME``."""
    before, after = field_value_text(field.path, field.before), field_value_text(field.path, field.after)
    return before, f"another {after}" if before == after else after


def field_value_text(path: Path, value: Any) -> str:
    """Return the value of a field as text: a name that is no plain word is a JSON string."""
    if value is UNSET:
        return "(absent)"
    if isinstance(value, Record) and not isinstance(value, NonFinite):
        return _record_text(value)
    if path[0] in _OF_VALUES and len(path) > 1:
        return value.name if isinstance(value, NamedValue) else value_text(value)
    if isinstance(value, str):
        return word(value)
    if isinstance(value, tuple):
        return f"[{', '.join(_item_texts(path, value))}]"
    # The value None means an input slot without a gradient.
    return "-" if value is None else value_text(value)


def one_line(text: str) -> str:
    """Return text as one printable line, in quotes if needed, as for a Diff that was read from a file."""
    return text if text.isprintable() else quote(text)


def _item_texts(path: Path, values: Iterable[Any]) -> Iterable[str]:
    if path == ("saved",):
        # The order of the slots differs.
        return (FieldChange(("saved", *key)).name.partition(".")[2] for key in number_repeats(values))
    if path[-1] == "shape":
        return map(size_text, values)
    # A Diff read from a file may hold anything.
    return (word(value) if isinstance(value, str) else value_text(value) for value in values)


def _record_text(record: Record) -> str:
    if isinstance(record, Ref):
        return ref_text(record)
    if isinstance(record, TensorMeta):
        return tensor_text(record)
    if isinstance(record, Source):
        function = f" {word(record.function)}" if record.function else ""
        # These are fields of newer versions.
        rest = "".join(f" {text}" for text in _part_texts(record, frozenset({"file", "line", "function"})))
        return f"{word(record.file)}:{record.line}{function}{rest}"
    if isinstance(record, Saved):
        if record.state != "held" and record == Saved(record.slot, state=record.state):
            return word(record.state)
        size = "" if record.bytes is None else f" {record.bytes} bytes"
        return f"{tensor_text(record.tensor)}{size}"
    return f"[{', '.join(_part_texts(record, frozenset()))}]"


def _part_texts(record: Record, known: frozenset[str]) -> Iterable[str]:
    return (
        f"{FieldChange(path).name}: {field_value_text(path, value)}"
        for path, value in further_parts(record, known).items()
    )


class Palette(NamedTuple):
    """The escape code before each kind of line, and ``reset`` after it. Color is never the only sign."""

    added: str = ""
    removed: str = ""
    changed: str = ""
    heading: str = ""
    reset: str = ""


NO_COLOUR: Final = Palette()
ANSI: Final = Palette("\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[1m", "\x1b[0m")


class Line(NamedTuple):
    """One line; ``colour`` names a field of a `Palette`, which applies after ``indent`` spaces."""

    text: str
    colour: str = ""
    indent: int = 0


BLANK: Final = Line("")


def format_lines(lines: Iterable[Line], palette: Palette, width: int | None) -> str:
    """Return lines as text, cut off at ``width`` with ``…``."""
    texts = []
    for line in lines:
        spaces = " " * line.indent
        text = f"{spaces}{line.text}"
        if width is not None and len(text) > width:
            text = f"{text[: max(width - 1, 0)]}…"
        if line.colour:
            # Color codes have no width, so they are added after the text is cut off.
            text = f"{spaces}{getattr(palette, line.colour)}{text[line.indent :]}{palette.reset}"
        texts.append(f"{text}\n")
    return "".join(texts)


def heading(text: str) -> Line:
    """Return the line above the changes of a module."""
    return Line(text, "heading")


def module_name(path: str) -> str:
    """Return the name of a module in a heading."""
    return word(path) if path else "(top level)"


def list_modules(paths: Collection[str], *, gone: bool = False) -> str:
    """Return modules as a range, or as a list if one is the root; ``gone`` if only the first graph has them."""
    text = ranges(paths) if len(paths) > 1 and all(paths) else ", ".join(map(module_name, paths))
    return f"{text} (removed)" if gone else text


def unknown_sizes(before: int, after: int) -> str:
    """Return the number of saved slots that a figure of saved bytes leaves out, or an empty text."""
    if before and not after:
        return f"unknown for {before:,} slot{'s'[: before != 1]} before"
    if before != after and before:
        return f"unknown for {before:,} -> {after:,} slots"
    return f"unknown for {after:,} slot{'s'[: after != 1]}" if after else ""


def sign_line(kind: Kind, text: str) -> Line:
    """Return a line with the sign and color of a kind of change."""
    return Line(f"{SIGNS[kind]} {text}", kind if kind in {"added", "removed"} else "changed", indent=2)


def change_lines(change: Change) -> Iterator[Line]:
    """Yield the line of a change, and a line for each of its `visible_fields`."""
    yield sign_line(change.kind, change_text(change))
    for name, before, after in field_texts(change):
        yield Line(f"{name}: {before} -> {after}", indent=6)


def field_texts(change: Change) -> Iterator[tuple[str, str, str]]:
    """Yield the name and both values of each of the `visible_fields`; an operation has its settings."""
    for field in visible_fields(change):
        if field.path == _OPERATION:
            before = operation_text(change, field.before, before=True)
            yield field.name, before, operation_text(change, field.after, before=False)
        else:
            yield one_line(field.name), *field_value_texts(field)


def visible_fields(change: Change) -> tuple[FieldChange, ...]:
    """Return the fields to list below a change, without those that its own line or another field says."""
    if change.kind in ADDED_OR_REMOVED:
        return ()
    moved = {_ends_of(field) for field in change.fields if field.path[0] == "in"} - {None}
    has_other_operation = any(field.path == _OPERATION for field in change.fields)

    def is_said(field: FieldChange) -> bool:
        if field.path[0] == _ATTRIBUTES:
            return has_other_operation
        # A saved input comes from another node because the operation has another input.
        return field.path[0] == "saved" and field.path[-1] == "origin" and _ends_of(field) in moved

    return tuple([field for field in change.fields if not is_said(field)])


def _ends_of(field: FieldChange) -> tuple[Ref | None, Ref | None] | None:
    """Return the nodes before and after; ``None`` if a value is no node, as in a Diff that was read from a file."""
    before, after = (None if value is UNSET else value for value in (field.before, field.after))
    return (before, after) if all(end is None or isinstance(end, Ref) for end in (before, after)) else None


def change_text(change: Change, *, summary: bool = True, by: str = "") -> str:
    """Return a change on one line without its sign; ``by`` names the wrapper of a wrapped module."""
    if change.cut is not None:
        return f"cut {cut_text(change.cut)}"
    subject = f"{role_text(change) if change.subject == 'module' else change.subject} "
    subject = subject if change.subject in {"scope", "cut", "module"} else ""
    write_name = module_name if change.subject in {"module", "scope"} else word
    was = f"{write_name(change.old_id)} -> " if change.old_id or change.subject == "module" else ""
    about, how = change_summary(change) if summary else "", nesting(change)
    how = f", {how}{by}" if how else ""
    return f"{subject}{was}{write_name(change.id)}{how}{f'  {about}' if about else ''}"


def role_text(change: Change) -> str:
    """Return the role of a renamed tensor, or ``module``."""
    return word(change.label) if change.subject == "module" and change.label else "module"


def is_renumbering(change: Change) -> bool:
    """Return whether a change is only of the order or numbers of records."""
    return change.subject == "graph" and change.id in _LAST


def nesting(change: Change) -> str:
    """Return ``wrapped`` for a renamed module that now is inside its former name, ``unwrapped`` for the reverse."""
    if change.kind != "renamed" or change.subject not in {"module", "scope"} or change.old_id == change.id:
        return ""
    inner, outer = (f"{name}." if name else "" for name in (change.id, change.old_id))
    return "wrapped" if inner.startswith(outer) else "unwrapped" if outer.startswith(inner) else ""


def change_summary(change: Change) -> str:
    """Return the operation and tensor of a change: ``addmm float32[8, 3]``."""
    if change.subject == "module":
        return pluralize(change.nodes, "node") if change.nodes else ""
    tensor = "" if change.tensor is None else tensor_text(change.tensor)
    name = operation_or_class(change) if change.label or change.subject in {"cut", "node"} else ""
    return " ".join(filter(None, (name, tensor)))


def operation_or_class(change: Change) -> str:
    """Return the operation or class of a change, with settings if it was added or removed: ``Dropout(p=0.1)``."""
    if change.kind not in ADDED_OR_REMOVED:
        return word(change.label)
    return operation_text(change, change.label, before=change.kind == "removed")


def operation_text(change: Change, name: object, *, before: bool) -> str:
    """Return an operation or a class with the settings of one side of a change."""
    settings = []
    for field in change.fields:
        value = field.before if before else field.after
        if value is not UNSET and field.path == _DESCRIPTION:
            is_plain = isinstance(value, str) and _PLAIN_DESCRIPTION.fullmatch(value)
            settings.append(("", value if is_plain else value_text(value)))
        elif value is not UNSET and field.path[0] == _ATTRIBUTES:
            settings.append((word(str(field.path[-1])), field_value_text(field.path, value)))
    text = field_value_text(_OPERATION, name)
    if len(settings) == 1 and (name, settings[0][0]) not in _DIVIDED and name in _BY:
        return _short(f"{text} by {settings[0][1]}")
    arguments = ", ".join(f"{key}={value}" if key else value for key, value in settings)
    return f"{text}({_short(arguments)})" if arguments else text


def _short(text: str) -> str:
    return text if len(text) <= _MOST_OF_SETTINGS else f"{text[: _MOST_OF_SETTINGS - 1]}…"


def wrap_text(text: str, width: int | None) -> list[str]:
    """Return a text in lines of at most ``width`` characters, which end after ``;`` if possible."""
    if width is None or len(text) <= width:
        return [text]
    width = max(width, 1)
    indent = "  " if width >= _LEAST_WIDTH else ""
    lines: list[str] = []
    for phrase in _END_OF_PHRASE.split(text):
        if lines and len(lines[-1]) + 1 + len(phrase) <= width:
            lines[-1] = f"{lines[-1]} {phrase}"
        else:
            first = indent if lines else ""
            lines += textwrap.wrap(
                phrase, width, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False
            )
    return lines


def name_values(diff: Diff) -> tuple[Change, ...]:
    """Return the changes of a diff, with names for numbers that the vocabulary knows."""
    if diff.sides is None:
        return diff.changes
    vocabulary = vocabulary_of(diff.sides.before, diff.sides.after)
    return tuple([_name_values_of(change, vocabulary) for change in diff.changes])


def _name_values_of(change: Change, vocabulary: Vocabulary) -> Change:
    if change.subject != "node" or not any(field.path[0] == _ATTRIBUTES for field in change.fields):
        return change
    was = next((str(field.before) for field in change.fields if field.path == _OPERATION), change.label)

    def name_value(operation: str, path: Path, value: Any) -> Any:
        name = vocabulary.value_name(operation, str(path[1]), value)
        if not name:
            return value
        named = NamedValue(value)
        named.name = name
        return named

    def name_both(field: FieldChange) -> FieldChange:
        if field.path[0] != _ATTRIBUTES or len(field.path) == 1:
            return field
        before, after = name_value(was, field.path, field.before), name_value(change.label, field.path, field.after)
        return replace(field, before=before, after=after)

    return replace(change, fields=tuple(map(name_both, change.fields)))


def settings(fields: Iterable[tuple[Change, FieldChange]]) -> str:
    """Return changed fields, those with equal values together; of a description, its changed parts."""
    grouped: dict[tuple[str, str], dict[str, None]] = {}
    for change, field in fields:
        before, after = field_value_texts(field)
        if field.path == _DESCRIPTION:
            # A description on one printable line has no quotes.
            plain = [
                value if isinstance(value, str) and value.isprintable() else text
                for value, text in ((field.before, before), (field.after, after))
            ]
            before, after = _find_differing_parts(*plain)
        # Several operations of a module may have a field of one name.
        grouped.setdefault((before, after), {})[_setting_name(change, field)] = None
    return "; ".join(f"{_label(names)}{before} → {after}" for (before, after), names in grouped.items())


def _setting_name(change: Change, field: FieldChange) -> str:
    """Return the words before the values of a setting: ``mul by`` or ``softmax dim``."""
    if field.path in (("class",), _DESCRIPTION):
        return ""
    if field.path[0] != _ATTRIBUTES or len(field.path) == 1:
        return one_line(field.name)
    key = str(field.path[-1])
    is_factor = change.label in _BY and (change.label, key) not in _DIVIDED
    return f"{word(change.label)} {'by' if is_factor else word(key)}"


def _label(names: Collection[str]) -> str:
    text = ", ".join(filter(None, names))
    return f"{text}{' ' if text.endswith(' by') else ': '}" if text else ""


def _find_differing_parts(before: str, after: str) -> tuple[str, str]:
    """Return the parts of two descriptions that differ, or both whole if they cannot be paired."""
    old, new = parts_of(before), parts_of(after)
    if len(old) == len(new):
        pairs = [(was, now) for was, now in zip(old, new, strict=True) if was != now] or [(before, after)]
        return ", ".join(was for was, _ in pairs), ", ".join(now for _, now in pairs)
    if [part for part in old if "=" not in part] != [part for part in new if "=" not in part]:
        return before, after
    only_old, only_new = ([part for part in own if part not in other] for own, other in ((old, new), (new, old)))
    return ", ".join(only_old) or _DEFAULT, ", ".join(only_new) or _DEFAULT
