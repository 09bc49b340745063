"""A diff as text for a terminal or a review."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from gradir.ir.text import quoted, word

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gradir.diff.model import Change, Diff, FieldChange, Kind, Totals

__all__ = ["ANSI", "NO_COLOUR", "Palette", "render_text", "short_bytes"]

_SIGNS: Final = {"added": "+", "removed": "-", "changed": "~", "renamed": ">", "moved": "^"}
_ALWAYS: Final = ("added", "removed", "changed")
_UNITS: Final = ("kB", "MB", "GB", "TB", "PB", "EB")


class Palette(NamedTuple):
    """What to write before each kind of line; ``reset`` follows it. Colour is never the only sign."""

    added: str = ""
    removed: str = ""
    changed: str = ""
    heading: str = ""
    reset: str = ""


NO_COLOUR: Final = Palette()
ANSI: Final = Palette("\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[1m", "\x1b[0m")


def render_text(diff: Diff, *, palette: Palette = NO_COLOUR, width: int | None = None) -> str:
    """The counts on the first line, then what changed, by scope; a line longer than ``width`` is cut short with ``…``.

    Signs: ``+`` added, ``-`` removed, ``~`` changed, ``>`` renamed, ``^`` moved to another module.

    >>> from gradir.diff.model import Change, Diff, FieldChange, Totals
    >>> change = Change("changed", "node", "fc/addmm:1", "fc", "addmm float32[8, 3]", (FieldChange("in[0]", "-", "b"),))
    >>> print(render_text(Diff(Totals(2, 1), Totals(2, 2), (change,))), end="")
    +0 -0 ~1 nodes; edges +1
    <BLANKLINE>
    fc
      ~ fc/addmm:1  addmm float32[8, 3]
          in[0]: - -> b
    """
    if not diff:
        return "no difference\n"
    lines = [_cut(_headline(diff), width)]
    for heading, changes in _groups(diff.changes).items():
        lines += ["", f"{palette.heading}{_cut(heading, width)}{palette.reset}"]
        for change in changes:
            # The colours take no place.
            told = _cut(f"  {_change(change)}", width)[2:]
            lines.append(f"  {_colour(change.kind, palette)}{told}{palette.reset}")
            lines += [_cut(f"      {_field(field)}", width) for field in change.fields]
    lines.append("")
    return "\n".join(lines)


def _cut(line: str, width: int | None) -> str:
    return line if width is None or len(line) <= width else f"{line[: max(width - 1, 0)]}…"


def _colour(kind: Kind, palette: Palette) -> str:
    return {"added": palette.added, "removed": palette.removed}.get(kind, palette.changed)


def _groups(changes: Iterable[Change]) -> dict[str, list[Change]]:
    groups: dict[str, list[Change]] = {}
    for change in changes:
        groups.setdefault(_heading(change), []).append(change)
    return groups


def _heading(change: Change) -> str:
    if change.subject in {"module", "graph"}:
        return "(whole graph)"
    return word(change.scope) if change.scope else "(top level)"


def _headline(diff: Diff) -> str:
    counts: Counter[tuple[str, str]] = Counter((change.subject, change.kind) for change in diff.changes)
    texts = []
    for subject in ("node", "scope", "cut"):
        numbers = [
            (sign, counts[subject, kind]) for kind, sign in _SIGNS.items() if kind in _ALWAYS or counts[subject, kind]
        ]
        if subject == "node" or any(number for _, number in numbers):
            texts.append(f"{' '.join(f'{sign}{number}' for sign, number in numbers)} {subject}s")
    modules = counts["module", "renamed"]
    if modules:
        texts.append(f"{modules} module{'s'[: modules != 1]} renamed")
    if any(change.id == "order" for change in diff.changes if change.subject == "graph"):
        texts.append("order changed")
    return "; ".join([*texts, *_growth(diff.before, diff.after)])


def _growth(before: Totals, after: Totals) -> Iterator[str]:
    for what, grown in (("edges", after.edges - before.edges), ("parameters", after.parameters - before.parameters)):
        if grown:
            yield f"{what} {grown:+,}"
    grown = after.saved_bytes - before.saved_bytes
    if grown:
        share = f" ({100 * grown / before.saved_bytes:+,.1f} %)" if before.saved_bytes else ""
        yield f"saved bytes {short_bytes(grown, signed=True)}{share}"


def short_bytes(count: int, *, signed: bool = False) -> str:
    """A number of bytes in few characters; ``signed`` shows a plus too.

    >>> short_bytes(1_536_000), short_bytes(12, signed=True)
    ('1.5 MB', '+12 B')
    """
    sign = "+" if signed else ""
    if abs(count) < 1000:
        return f"{count:{sign}} B"
    size, unit = count / 1000, 0
    while round(abs(size), 1) >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:{sign}.1f} {_UNITS[unit]}"


def _change(change: Change) -> str:
    subject = f"{change.subject} " if change.subject in {"scope", "cut", "module"} else ""
    was = f"{_name(change.was, change)} -> " if change.was or change.subject == "module" else ""
    summary = f"  {_one_line(change.summary)}" if change.summary else ""
    return f"{_SIGNS[change.kind]} {subject}{was}{_name(change.id, change)}{summary}"


def _name(name: str, change: Change) -> str:
    if change.subject != "module":
        return word(name)
    return word(name) if name else "(top level)"


def _field(field: FieldChange) -> str:
    before, after = ("(absent)" if text is None else _one_line(text) for text in (field.before, field.after))
    return f"{_one_line(field.path)}: {before} -> {after}"


def _one_line(text: str) -> str:
    """What is one printable line already stays as it is; a Diff read from a file may hold anything."""
    return text if text.isprintable() else quoted(text)
