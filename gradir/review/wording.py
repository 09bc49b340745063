"""How values, changes and modules are written, and how lines are fitted to a terminal."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from gradir.diffs.changes import CAME, FieldChange
from gradir.diffs.field_changes import further_parts, numbered, parts_of
from gradir.ir import Cut, Node, Ref, Saved, Scope, Source, TensorMeta
from gradir.ir.cuts import cut_text
from gradir.ir.fields import fields_of
from gradir.ir.model import NonFinite, Record
from gradir.ir.name_ranges import ranges
from gradir.ir.text import counted, quoted, ref_text, size_text, tensor_text, value_text, word
from gradir.vocabulary import vocabulary_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from gradir.diffs.changes import Change, Diff, Kind
    from gradir.diffs.field_changes import Path
    from gradir.vocabulary import Vocabulary

SIGNS: Final = {"added": "+", "removed": "-", "changed": "~", "renamed": ">", "moved": "^"}
_LAST: Final = frozenset({"order", "indices"})
# The fields with values of any type, of which a text is told from a name by its quotes.
_OF_VALUES: Final = frozenset(
    field.key for kind in (Node, Scope, Cut) for field in fields_of(kind) if isinstance(field.default, dict)
)
_OPERATION: Final = ("op",)
_DESCRIPTION: Final = ("detail",)
# Descriptions leave out a setting with its default value.
_UNSAID: Final = "default"
_ATTRIBUTES: Final = "attrs"
# Descriptions of these characters are shown without quotes.
_DESCRIBES: Final = re.compile(r"[\w=.,'()\[\]{}:<> +*/-]*", re.ASCII)
# The shared words of operations with a number beside their input.
_BY: Final = frozenset({"mul", "div"})
# In this slot the number is what is divided, so "div by 2" would be wrong.
_DIVIDED: Final = frozenset({("div", "in0")})
_MOST_OF_SETTINGS: Final = 80
# Further lines of a narrower terminal are not indented.
_LEAST_WIDTH: Final = 20
_END_OF_PHRASE: Final = re.compile(r"(?<=;) ")


class NamedValue(int):
    """A number that is written as its ``name``; it is equal to the number."""

    name: str = ""


def field_value_texts(field: FieldChange) -> tuple[str, str]:
    """Return both values of a field that differs; a node that left its name to another one is told apart.

    >>> both_words(FieldChange(("in", 0), Ref("h.5/add:1", 0), Ref("h.5/add:1", 0)))
    ('h.5/add:1', 'another h.5/add:1')
    """
    before, after = field_value_text(field.path, field.before), field_value_text(field.path, field.after)
    return before, f"another {after}" if before == after else after


def field_value_text(path: Path, value: Any) -> str:
    """Return the value of a field as text: names as they are or, if they are no plain word, as JSON strings."""
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
    # An input slot without an edge takes no gradient.
    return "-" if value is None else value_text(value)


def one_line(text: str) -> str:
    """Return one printable line; a Diff read from a file may contain anything."""
    return text if text.isprintable() else quoted(text)


def _item_texts(path: Path, values: Iterable[Any]) -> Iterable[str]:
    if path == ("saved",):
        # Slots that stand in another order.
        return (FieldChange(("saved", *key)).name.partition(".")[2] for key in numbered(values))
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
        # A field of a newer version follows.
        rest = "".join(f" {text}" for text in _part_texts(record, frozenset({"file", "line", "function"})))
        return f"{word(record.file)}:{record.line}{function}{rest}"
    if isinstance(record, Saved):
        if record.state != "held" and record == Saved(record.slot, state=record.state):
            return word(record.state)
        size = "" if record.bytes is None else f" {record.bytes} bytes"
        return f"{tensor_text(record.tensor)}{size}"
    return f"[{', '.join(_part_texts(record, frozenset()))}]"


def _part_texts(record: Record, but: frozenset[str]) -> Iterable[str]:
    return (
        f"{FieldChange(path).name}: {field_value_text(path, value)}"
        for path, value in further_parts(record, but).items()
    )


class Palette(NamedTuple):
    """What to write before each kind of line; ``reset`` follows it. Colour is never the only sign."""

    added: str = ""
    removed: str = ""
    changed: str = ""
    heading: str = ""
    reset: str = ""


NO_COLOUR: Final = Palette()
ANSI: Final = Palette("\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[1m", "\x1b[0m")


class Line(NamedTuple):
    """One line; ``colour`` names a field of a `Palette`, which holds for what stands behind ``indent`` blanks."""

    text: str
    colour: str = ""
    indent: int = 0


BLANK: Final = Line("")


def format_lines(lines: Iterable[Line], palette: Palette, width: int | None) -> str:
    """Return lines as text; one longer than ``width`` is cut short with ``…``."""
    texts = []
    for line in lines:
        blanks = " " * line.indent
        text = f"{blanks}{line.text}"
        if width is not None and len(text) > width:
            text = f"{text[: max(width - 1, 0)]}…"
        if line.colour:
            # The codes of a colour take no place in the line, so they come after the cut.
            text = f"{blanks}{getattr(palette, line.colour)}{text[line.indent :]}{palette.reset}"
        texts.append(f"{text}\n")
    return "".join(texts)


def heading(text: str) -> Line:
    """Return the line above the changes of a module."""
    return Line(text, "heading")


def module_name(path: str, *, gone: bool = False) -> str:
    """Return a module as a heading names it; ``gone`` if only the first graph has it."""
    return f"{word(path) if path else '(top level)'}{' (removed)' if gone else ''}"


def list_modules(paths: Collection[str]) -> str:
    """Return modules as a range, or one after the other if the root is among them."""
    return ranges(paths) if len(paths) > 1 and all(paths) else ", ".join(map(module_name, paths))


def modules_text(paths: Sequence[str], *, gone: bool = False) -> str:
    """Return one module by its path, several by a range; ``gone`` if only the first graph has them."""
    if len(paths) == 1:
        return module_name(paths[0], gone=gone)
    return f"{ranges(paths)}{' (removed)' if gone else ''}"


def unknown_sizes(before: int, after: int) -> str:
    """Return how many saved slots a figure of saved bytes leaves out, if any.

    >>> unknown_sizes(0, 3), unknown_sizes(58, 0)
    ('unknown for 3 slots', 'unknown for 58 slots before')
    """
    if before and not after:
        return f"unknown for {before:,} slot{'s'[: before != 1]} before"
    if before != after and before:
        return f"unknown for {before:,} -> {after:,} slots"
    return f"unknown for {after:,} slot{'s'[: after != 1]}" if after else ""


def sign_line(kind: Kind, text: str) -> Line:
    """Return a line with the sign and the colour of a kind of change."""
    return Line(f"{SIGNS[kind]} {text}", kind if kind in {"added", "removed"} else "changed", indent=2)


def change_lines(change: Change) -> Iterator[Line]:
    """Yield a change, and below it each field that differs."""
    yield change_line(change)
    for name, before, after in field_texts(change):
        yield Line(f"{name}: {before} -> {after}", indent=6)


def field_texts(change: Change) -> Iterator[tuple[str, str, str]]:
    """Yield the name and both values of each field of `fields_below`; an operation has its settings."""
    for field in visible_fields(change):
        if field.path == _OPERATION:
            before, after = (
                operation_text(change, name, before=name is field.before) for name in (field.before, field.after)
            )
            yield field.name, before, after
        else:
            yield one_line(field.name), *field_value_texts(field)


def visible_fields(change: Change) -> tuple[FieldChange, ...]:
    """Return the fields of a change that stand below its line: no settings of a node put in, or of a new operation."""
    if change.kind in CAME:
        return ()
    if not any(field.path == _OPERATION for field in change.fields):
        return change.fields
    return tuple([field for field in change.fields if field.path[0] != _ATTRIBUTES])


def change_line(change: Change) -> Line:
    """Return a change in one line, without its fields."""
    return sign_line(change.kind, change_text(change))


def change_text(change: Change, *, summary: bool = True, by: str = "") -> str:
    """Return a change in one line without its sign; ``by`` follows the word for a wrapper."""
    if change.cut is not None:
        return f"cut {cut_text(change.cut)}"
    subject = f"{role_text(change) if change.subject == 'module' else change.subject} "
    subject = subject if change.subject in {"scope", "cut", "module"} else ""
    named = module_name if change.subject in {"module", "scope"} else word
    was = f"{named(change.was)} -> " if change.was or change.subject == "module" else ""
    about, how = change_summary(change) if summary else "", nesting(change)
    how = f", {how}{by}" if how else ""
    return f"{subject}{was}{named(change.id)}{how}{f'  {about}' if about else ''}"


def role_text(change: Change) -> str:
    """Return the role of a renamed tensor, or "module"."""
    return word(change.what) if change.subject == "module" and change.what else "module"


def is_renumbering(change: Change) -> bool:
    """Return whether a change says only that records have another place or number."""
    return change.subject == "graph" and change.id in _LAST


def nesting(change: Change) -> str:
    """Return whether a renamed module lies in another one of its former name now, or did before."""
    if change.kind != "renamed" or change.subject not in {"module", "scope"} or change.was == change.id:
        return ""
    inner, outer = (f"{name}." if name else "" for name in (change.id, change.was))
    return "wrapped" if inner.startswith(outer) else "unwrapped" if outer.startswith(inner) else ""


def change_summary(change: Change) -> str:
    """Return the subject of a change in a few words: ``addmm float32[8, 3]``."""
    if change.subject == "module":
        return counted(change.nodes, "node") if change.nodes else ""
    tensor = "" if change.tensor is None else tensor_text(change.tensor)
    what = operation_or_class(change) if change.what or change.subject in {"cut", "node"} else ""
    return " ".join(filter(None, (what, tensor)))


def operation_or_class(change: Change) -> str:
    """Return the operation or class of a change; of what came or went with its settings: ``Dropout(p=0.1)``."""
    if change.kind not in CAME:
        return word(change.what)
    return operation_text(change, change.what, before=change.kind == "removed")


def operation_text(change: Change, name: object, *, before: bool) -> str:
    """Return an operation or a class with the settings of one side of a change."""
    settings = []
    for field in change.fields:
        value = field.before if before else field.after
        if value is not UNSET and field.path == _DESCRIPTION:
            is_plain = isinstance(value, str) and _DESCRIBES.fullmatch(value)
            settings.append(("", value if is_plain else value_text(value)))
        elif value is not UNSET and field.path[0] == _ATTRIBUTES:
            settings.append((word(str(field.path[-1])), field_value_text(field.path, value)))
    text = field_value_text(_OPERATION, name)
    if len(settings) == 1 and (name, settings[0][0]) not in _DIVIDED and name in _BY:
        return _short(f"{text} by {settings[0][1]}")
    said = ", ".join(f"{key}={value}" if key else value for key, value in settings)
    return f"{text}({_short(said)})" if said else text


def _short(text: str) -> str:
    return text if len(text) <= _MOST_OF_SETTINGS else f"{text[: _MOST_OF_SETTINGS - 1]}…"


def wrap_text(text: str, width: int | None) -> list[str]:
    """Return a text in lines of at most ``width`` characters, which end behind ``;`` if they can.

    >>> wrapped("+1 -0 ~0 cuts; +0 -1 ~0 nodes; edges -1", 26)
    ['+1 -0 ~0 cuts;', '  +0 -1 ~0 nodes; edges -1']
    """
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
    """Return the changes of a diff, in which numbers that stand for something have its name."""
    if diff.sides is None:
        return diff.changes
    words = vocabulary_of(diff.sides.before, diff.sides.after)
    return tuple([_name_values_of(change, words) for change in diff.changes])


def _name_values_of(change: Change, words: Vocabulary) -> Change:
    if change.subject != "node" or not any(field.path[0] == _ATTRIBUTES for field in change.fields):
        return change
    was = next((str(field.before) for field in change.fields if field.path == _OPERATION), change.what)

    def named(operation: str, path: Path, value: Any) -> Any:
        name = words.value_name(operation, str(path[1]), value)
        if not name:
            return value
        made = NamedValue(value)
        made.name = name
        return made

    fields = [
        replace(field, before=named(was, field.path, field.before), after=named(change.what, field.path, field.after))
        if field.path[0] == _ATTRIBUTES and len(field.path) > 1
        else field
        for field in change.fields
    ]
    return replace(change, fields=tuple(fields))


def settings(fields: Iterable[FieldChange]) -> str:
    """Return the fields of a module that differ, those of equal values together; of a description what differs."""
    together: dict[tuple[str, str], list[str]] = {}
    for field in fields:
        before, after = field_value_texts(field)
        if field.path == _DESCRIPTION:
            # A description is shown as it is, if it is one printable line.
            plain = [
                value if isinstance(value, str) and value.isprintable() else text
                for value, text in ((field.before, before), (field.after, after))
            ]
            before, after = _find_differing_parts(*plain)
        together.setdefault((before, after), []).append(one_line(field.name))
    return "; ".join(
        f"{before} → {after}" if names[0] in {"class", "detail"} else f"{', '.join(names)}: {before} → {after}"
        for (before, after), names in together.items()
    )


def _find_differing_parts(before: str, after: str) -> tuple[str, str]:
    """Return the parts of two descriptions that differ; both whole if the numbers of parts without a name differ."""
    parts = parts_of(before), parts_of(after)
    if len(parts[0]) != len(parts[1]):
        unnamed = [[part for part in each if "=" not in part] for each in parts]
        own = [[part for part in each if part not in other] for each, other in (parts, parts[::-1])]
        return (
            (before, after)
            if unnamed[0] != unnamed[1]
            else (", ".join(own[0]) or _UNSAID, ", ".join(own[1]) or _UNSAID)
        )
    other = [(was, now) for was, now in zip(*parts, strict=True) if was != now]
    was, now = zip(*other, strict=True) if other else ((before,), (after,))
    return ", ".join(was), ", ".join(now)
