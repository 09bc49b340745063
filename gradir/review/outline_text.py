"""An outline in lines: what a reviewer reads first."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from gradir.ir.text import amount, counted, short_bytes, word
from gradir.review.headline import SIGNS, unknown_sizes
from gradir.review.lines import (
    BLANK,
    Line,
    change_line,
    change_lines,
    field_text,
    heading,
    module_name,
    sign_line,
)
from gradir.review.name_ranges import ranges
from gradir.review.outline import Cuts, Group, Modules, Outline
from gradir.review.relative_changes import changes_in
from gradir.review.values import both_words, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gradir.diffs.model import Change, FieldChange, Kind
    from gradir.review.outline import Entry
    from gradir.review.whole_modules import Contents

__all__ = ["brief_lines", "cut_line", "modules_text"]

_SHORT: Final = 10
"""Modules that take no more lines are read as they are; more are preceded by a list of what changed in which."""

_LEAST_GAIN: Final = 3
"""How many times as many lines the changes have to take as their list."""


def brief_lines(outline: Outline) -> Iterator[Line]:
    """The lines of an outline below its headline."""
    if outline.cuts or outline.facts:
        yield from (BLANK, heading("(whole graph)"))
        yield from map(cut_line, outline.cuts)
        for fact in outline.facts:
            yield from change_lines(fact)
    blocks = [(entry, _entry_lines(entry)) for entry in outline.entries]
    changes = [lines for entry, lines in blocks if isinstance(entry, Group)]
    overview = _overview(blocks)
    length, folded = sum(map(len, changes)), sum(len(lines) for _, lines in blocks) - sum(map(len, changes))
    if len(changes) > 1 and length + folded > _SHORT and (len(overview) - folded) * _LEAST_GAIN <= length:
        yield from (BLANK, heading("(by module)"), *overview)
        for lines in changes:
            yield from (BLANK, *lines)
        return
    # Modules that came or went have no heading; those side by side are one block.
    within = False
    for entry, lines in blocks:
        if isinstance(entry, Group) or not within:
            yield BLANK
        within = isinstance(entry, Modules)
        yield from lines


def cut_line(cuts: Cuts) -> Line:
    """Cuts of one kind, in one line: gradient reaches these parameters no more, or again."""
    first = cuts.changes[0]
    gone = "removed" if first.kind == "added" else "added"
    nodes = f", {counted(len(cuts.nodes), 'node')} {gone}" if cuts.nodes else ""
    if len(cuts.changes) == 1:
        line = change_line(first)
        return line._replace(text=f"{line.text}{nodes}")
    names = ranges(change.id for change in cuts.changes)
    return sign_line(first.kind, f"{counted(len(cuts.changes), 'cut')}, {word(first.what)}{nodes}: {names}")


def modules_text(paths: Sequence[str], *, gone: bool = False) -> str:
    """One module by its path, several by a range; ``gone`` where only the first graph has them."""
    if len(paths) == 1:
        return module_name(paths[0], gone=gone)
    return f"{ranges(paths)}{' (removed)' if gone else ''}"


def _entry_lines(entry: Entry) -> list[Line]:
    return _group_lines(entry) if isinstance(entry, Group) else _modules_lines(entry)


def _group_lines(group: Group) -> list[Line]:
    title = modules_text(group.paths, gone=group.gone)
    if len(group.paths) > 1:
        what = "change" if len(group.form) == 1 else f"{len(group.form):,} changes"
        title += f": the same {what} in each of {len(group.paths):,} modules, here in {module_name(group.paths[0])}"
    return [heading(title), *(line for change in group.changes(group.paths[0]) for line in change_lines(change))]


def _modules_lines(entry: Modules) -> list[Line]:
    kind: Kind = "added" if entry.added else "removed"
    count = len(entry.paths)
    subject = "module" if count == 1 else f"{count:,} modules"
    what = subject if entry.itself else "all of" if count == 1 else f"all of {subject}"
    name = f"  {word(entry.class_name)}" if entry.class_name else ""
    contents = f"{'each ' if count > 1 else ''}{_contents_text(entry.contents)}"
    return [sign_line(kind, f"{what} {modules_text(entry.paths)}{name}  {contents}"), *_reader_lines(entry)]


def _reader_lines(entry: Modules) -> Iterator[Line]:
    for form, paths in entry.readers:
        rest = (
            "" if len(paths) == 1 else ", and so for each" if paths == entry.paths else f", and so for {ranges(paths)}"
        )
        for change in changes_in(form, paths[0]):
            was = f"{word(change.was)} -> " if change.was else ""
            yield Line(f"{SIGNS[change.kind]} {was}{word(change.id)}  {_edges(change)}{rest}", indent=6)


def _contents_text(contents: Contents) -> str:
    parts = [counted(contents.nodes, "node")]
    if contents.parameters:
        parts.append(f"{counted(contents.parameters, 'parameter')} ({amount(contents.elements)})")
    if contents.modules:
        parts.append(f"{counted(contents.modules, 'module')} in it")
    if contents.saved_bytes or contents.unknown:
        parts.append(f"saved {short_bytes(contents.saved_bytes)}")
    parts.append(unknown_sizes(0, contents.unknown))
    return ", ".join(filter(None, parts))


def _edges(change: Change) -> str:
    """From where to where a node reads, fields of the same values together."""
    together: dict[tuple[str, str], list[str]] = {}
    for field in change.fields:
        together.setdefault(both_words(field), []).append(one_line(field.name))
    return "; ".join(f"{', '.join(paths)}: {before} -> {after}" for (before, after), paths in together.items())


def _overview(blocks: Iterable[tuple[Entry, list[Line]]]) -> list[Line]:
    """Modules that came or went, and one line for all modules in which as many of the same kinds of changes are."""
    together: dict[tuple[Kind, str, bool], list[str]] = {}
    order: list[list[Line] | tuple[Kind, str, bool]] = []
    for entry, lines in blocks:
        if isinstance(entry, Modules):
            order.append(lines)
            continue
        changes = entry.changes(entry.paths[0])
        key = _common_kind(changes), _kinds(changes), entry.gone
        if key not in together:
            order.append(key)
        together.setdefault(key, []).extend(entry.paths)
    return [
        line
        for found in order
        for line in (found if isinstance(found, list) else [_overview_line(*found, together[found])])
    ]


def _overview_line(kind: Kind, text: str, gone: bool, paths: Sequence[str]) -> Line:
    count, each = (f"{len(paths):,} modules ", "each ") if len(paths) > 1 else ("", "")
    return sign_line(kind, f"{count}{modules_text(paths, gone=gone)}  {each}{text}")


def _common_kind(changes: Iterable[Change]) -> Kind:
    kinds = {change.kind for change in changes}
    return kinds.pop() if len(kinds) == 1 else "changed"


def _kinds(changes: Iterable[Change]) -> str:
    """How many changes of each kind, and which fields they touch: ``~1 scope (detail), -2 ~1 nodes (in, out)``."""
    counts: dict[str, Counter[str]] = {}
    fields: dict[str, dict[str, None]] = {}
    for change in changes:
        counts.setdefault(change.subject, Counter())[change.kind] += 1
        touched = fields.setdefault(change.subject, {})
        touched.update(dict.fromkeys(map(_field_name, change.fields)))
    texts = []
    for subject, found in counts.items():
        signs = " ".join(f"{sign}{found[kind]:,}" for kind, sign in SIGNS.items() if found[kind])
        names = f" ({', '.join(fields[subject])})" if fields[subject] else ""
        texts.append(f"{signs} {subject}{'s'[: found.total() != 1]}{names}")
    return ", ".join(texts)


def _field_name(field: FieldChange) -> str:
    """A field without its parts; a module's class, which says most, with its values."""
    return field_text(field) if field.path == ("class",) else one_line(str(field.path[0]))
