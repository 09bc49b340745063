"""The lines that tell changes, and how they are written: in colour, and no longer than the terminal is wide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gradir.ir.text import counted, tensor_text, word
from gradir.review.headline import SIGNS
from gradir.review.values import both_words, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gradir.diffs.model import Change, FieldChange, Kind

__all__ = [
    "ANSI",
    "BLANK",
    "NO_COLOUR",
    "Line",
    "Palette",
    "change_line",
    "change_lines",
    "change_summary",
    "field_text",
    "heading",
    "module_name",
    "sign_line",
    "written",
]


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


def written(lines: Iterable[Line], palette: Palette, width: int | None) -> str:
    """Lines as text; one longer than ``width`` is cut short with ``…``."""
    return "".join([f"{_written(line, palette, width)}\n" for line in lines])


def heading(text: str) -> Line:
    """The line above the changes of a module."""
    return Line(text, "heading")


def module_name(path: str, *, gone: bool = False) -> str:
    """A module as a heading says it; ``gone`` where only the first graph has it."""
    return f"{word(path) if path else '(top level)'}{' (removed)' if gone else ''}"


def sign_line(kind: Kind, text: str, *, indent: int = 2) -> Line:
    """A line with the sign and the colour of a kind of change."""
    return Line(f"{SIGNS[kind]} {text}", kind if kind in {"added", "removed"} else "changed", indent)


def change_lines(change: Change) -> Iterator[Line]:
    """A change, and below it each field that differs."""
    yield change_line(change)
    for field in change.fields:
        yield Line(field_text(field), indent=6)


def change_line(change: Change) -> Line:
    """A change in one line, without its fields."""
    subject = f"{change.subject} " if change.subject in {"scope", "cut", "module"} else ""
    was = f"{_name(change.was, change)} -> " if change.was or change.subject == "module" else ""
    summary = change_summary(change)
    return sign_line(change.kind, f"{subject}{was}{_name(change.id, change)}{f'  {summary}' if summary else ''}")


def change_summary(change: Change) -> str:
    """What a change is about, in a few words: ``addmm float32[8, 3]``."""
    if change.subject == "module":
        return counted(change.nodes, "node") if change.nodes else ""
    tensor = "" if change.tensor is None else tensor_text(change.tensor)
    what = word(change.what) if change.what or change.subject in {"cut", "node"} else ""
    return " ".join(filter(None, (what, tensor)))


def field_text(field: FieldChange) -> str:
    """A field that differs, with both values."""
    before, after = both_words(field)
    return f"{one_line(field.name)}: {before} -> {after}"


def _written(line: Line, palette: Palette, width: int | None) -> str:
    blanks = " " * line.indent
    text = f"{blanks}{line.text}"
    if width is not None and len(text) > width:
        text = f"{text[: max(width - 1, 0)]}…"
    if not line.colour:
        return text
    # The colours take no place.
    return f"{blanks}{getattr(palette, line.colour)}{text[line.indent :]}{palette.reset}"


def _name(name: str, change: Change) -> str:
    return module_name(name) if change.subject == "module" else word(name)
