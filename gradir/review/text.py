"""A diff as text for a terminal or a review."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from gradir.ir.ids import without_indices
from gradir.ir.name_ranges import ranges
from gradir.ir.text import amount, counted, short_bytes, word
from gradir.review.headline import common, headline, unknown_sizes
from gradir.review.outline import Cuts, Group, Modules, Outline, stands_last
from gradir.review.wording import (
    BLANK,
    NO_COLOUR,
    SIGNS,
    Line,
    Palette,
    both_words,
    change_line,
    change_lines,
    field_text,
    fields_below,
    heading,
    module_name,
    nesting,
    one_line,
    sign_line,
    what_text,
    wrapped,
    written,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gradir.diffs.changes import Change, FieldChange, Kind
    from gradir.review.changed_modules import Contents
    from gradir.review.comparison import Comparison
    from gradir.review.outline import Entry

__all__ = ["MOST_LINES", "cut_line", "group_title", "module_line", "no_difference", "render_brief", "render_text"]

_NOTHING: Final = "no difference"
MOST_LINES: Final = 200


def no_difference(comparison: Comparison) -> str:
    """That there is none; in shared words also of how much."""
    return f"{_NOTHING} in shared words: {common(comparison)}" if comparison.in_shared_words else _NOTHING


def render_brief(
    comparison: Comparison, *, palette: Palette = NO_COLOUR, width: int | None = None, most: int | None = MOST_LINES
) -> str:
    """The counts on the first line, then what a reviewer has to know, in the order of the model, each thing once.

    Cuts stand first. A module that came or went as a whole is one line, and modules with the same changes are one
    group; where that is long, a list of what changed in which modules stands before it. Of two different models only
    the totals are told, and any other text ends after ``most`` lines with the number of the rest. The counts and the
    notes below them are wrapped at ``width``, any other line is cut short there with ``…``.

    >>> from gradir.ir import Graph, Node
    >>> from gradir.review.comparison import Comparison
    >>> a, b = (Graph.of([Node(f"h.{n}/f:1", op=op, scope=f"h.{n}") for n in range(12)]) for op in ("exp", "sin"))
    >>> print(render_brief(Comparison(a, b)), end="")
    +0 -0 ~12 nodes
    <BLANKLINE>
    h.{0..11}: the same change in each of 12 modules, here in h.0
      ~ h.0/f:1  sin
          op: exp -> sin
    """
    if not comparison.diff:
        return f"{no_difference(comparison)}\n"
    if comparison.are_two_models:
        told = [Line(f"{counted(len(comparison.diff.changes), 'change')}: --full lists them")]
        return written([*_head(comparison, width), *told], palette, width)
    following = len(comparison.outline.following)
    more = [Line(f"{counted(following, 'change')} that only follow from that: --full lists them")] if following else []
    lines = list(brief_lines(comparison.outline))
    if most is not None and len(lines) > most:
        left = len(lines) - most
        lines[most:] = [BLANK, Line(f"… {counted(left, 'more line')}: --full shows every change")]
    return written([*_head(comparison, width), *more, *lines], palette, width)


def render_text(comparison: Comparison, *, palette: Palette = NO_COLOUR, width: int | None = None) -> str:
    """The counts on the first line, then every change, by module; ``width`` is that of `render_brief`.

    Signs: ``+`` added, ``-`` removed, ``~`` changed, ``>`` renamed, ``^`` moved to another module. Where the graphs are
    known, modules stand in the order of the model.

    >>> from gradir.diffs.changes import Change, Diff, FieldChange, Totals
    >>> from gradir.ir import Ref
    >>> from gradir.review.comparison import Comparison
    >>> change = Change("changed", "node", "fc/addmm:1", "fc", "addmm", (FieldChange(("in", 0), None, Ref("b", 0)),))
    >>> print(render_text(Comparison.of(Diff(Totals(2, 1), Totals(2, 2), (change,)))), end="")
    1 gained input: in[0] of addmm:1 in fc; +0 -0 ~1 nodes; edges +1
    <BLANKLINE>
    fc
      ~ fc/addmm:1  addmm
          in[0]: - -> b
    """
    if not comparison.diff:
        return f"{no_difference(comparison)}\n"
    return written([*_head(comparison, width), *_every_change(comparison)], palette, width)


def _head(comparison: Comparison, width: int | None) -> list[Line]:
    """The counts, then what is said in one line of many changes; all of it, however narrow the terminal is."""
    return [Line(line) for text in (headline(comparison), *comparison.notes) for line in wrapped(text, width)]


def _every_change(comparison: Comparison) -> Iterator[Line]:
    changes = comparison.changes
    facts = [change for change in changes if change.subject not in {"node", "scope"}]
    # Parameters that lost their gradient before all else.
    facts.sort(key=lambda change: (change.subject != "cut", change.kind != "added"))
    first, last = (
        [line for change in facts if stands_last(change) == is_last for line in change_lines(change)]
        for is_last in (False, True)
    )
    yield from _section(first)
    rest = [change for change in changes if change.subject in {"node", "scope"}]
    for module, found in comparison.module_order.sections(rest):
        yield from (BLANK, heading(module_name(module.path, gone=module.gone)))
        for change in found:
            yield from change_lines(change)
    yield from _section(last)


_SHORT: Final = 10
"""Modules that take no more lines are read as they are; more are preceded by a list of what changed in which."""

_LEAST_GAIN: Final = 3
"""How many times as many lines the changes have to take as their list."""


def brief_lines(outline: Outline) -> Iterator[Line]:
    """The lines of an outline below its headline; another order stands last."""
    last = [fact for fact in outline.facts if stands_last(fact)]
    facts = [fact for fact in outline.facts if not stands_last(fact)]
    yield from _section([*map(cut_line, outline.cuts), *_fact_lines(facts)])
    yield from _entries(outline)
    yield from _section(list(_fact_lines(last)))


def _section(lines: Sequence[Line]) -> Iterator[Line]:
    """Lines about the whole graph, if there are any."""
    if lines:
        yield from (BLANK, heading("(whole graph)"), *lines)


def _entries(outline: Outline) -> Iterator[Line]:
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


def _fact_lines(facts: Iterable[Change]) -> Iterator[Line]:
    """What is about the whole graph; modules that were renamed in the same way are one line."""
    together: dict[object, list[Change]] = {}
    for at, fact in enumerate(facts):
        same = (without_indices(fact.was), without_indices(fact.id)) if fact.subject == "module" else at
        together.setdefault(same, []).append(fact)
    for first, *others in together.values():
        if not others:
            yield from change_lines(first)
            continue
        renamed = [first, *others]
        was, now = (ranges(names) for names in ([each.was for each in renamed], [each.id for each in renamed]))
        nodes = counted(sum(each.nodes for each in renamed), "node")
        how = f", each {nesting(first)}" if nesting(first) else ""
        yield sign_line("renamed", f"{len(renamed):,} modules {was} -> {now}{how}  {nodes}")


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


def group_title(group: Group) -> str:
    """The heading above the changes that one module or equal ones have."""
    title = modules_text(group.paths, gone=group.gone)
    if len(group.paths) > 1:
        what = "change" if len(group.changes[0]) == 1 else f"{len(group.changes[0]):,} changes"
        title += f": the same {what} in each of {len(group.paths):,} modules, here in {module_name(group.paths[0])}"
    return title


def _entry_lines(entry: Entry) -> list[Line]:
    if isinstance(entry, Modules):
        return [module_line(entry), *_reader_lines(entry)]
    return [heading(group_title(entry)), *(line for change in entry.changes[0] for line in change_lines(change))]


def module_line(entry: Modules) -> Line:
    """Equal modules that came or went, in one line."""
    kind: Kind = "added" if entry.added else "removed"
    count = len(entry.paths)
    subject = "module" if count == 1 else f"{count:,} modules"
    what = subject if entry.itself else "all of" if count == 1 else f"all of {subject}"
    own = next(
        (change for change in entry.changes[0] if change.subject == "scope" and change.id == entry.paths[0]), None
    )
    name = f"  {word(entry.class_name) if own is None else what_text(own)}" if entry.class_name else ""
    contents = f"{'each ' if count > 1 else ''}{_contents_text(entry.contents, *entry.saved)}"
    return sign_line(kind, f"{what} {modules_text(entry.paths)}{name}  {contents}")


def _reader_lines(entry: Modules) -> Iterator[Line]:
    for paths, changes in entry.readers:
        rest = (
            "" if len(paths) == 1 else ", and so for each" if paths == entry.paths else f", and so for {ranges(paths)}"
        )
        for change in changes[0]:
            was = f"{word(change.was)} -> " if change.was else ""
            yield Line(f"{SIGNS[change.kind]} {was}{word(change.id)}  {_edges(change)}{rest}", indent=6)


def _contents_text(contents: Contents, least_saved: int, most_saved: int) -> str:
    parts = [counted(contents.nodes, "node")]
    if contents.parameters:
        parts.append(f"{counted(contents.parameters, 'parameter')} ({amount(contents.elements)})")
    if contents.modules:
        parts.append(f"{counted(contents.modules, 'module')} in it")
    if most_saved or contents.unknown:
        least = f"{short_bytes(least_saved)} to " if least_saved != most_saved else ""
        parts.append(f"saved {least}{short_bytes(most_saved)}")
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
        kinds = {change.kind for change in entry.changes[0]}
        key = kinds.pop() if len(kinds) == 1 else "changed", _kinds(entry.changes[0]), entry.gone
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


def _kinds(changes: Iterable[Change]) -> str:
    """How many changes of each kind, and which fields they touch: ``~1 scope (detail), -2 ~1 nodes (in, out)``."""
    counts: dict[str, Counter[str]] = {}
    fields: dict[str, dict[str, None]] = {}
    for change in changes:
        counts.setdefault(change.subject, Counter())[change.kind] += 1
        touched = fields.setdefault(change.subject, {})
        touched.update(dict.fromkeys(map(_field_name, fields_below(change))))
    texts = []
    for subject, found in counts.items():
        signs = " ".join(f"{sign}{found[kind]:,}" for kind, sign in SIGNS.items() if found[kind])
        names = f" ({', '.join(fields[subject])})" if fields[subject] else ""
        texts.append(f"{signs} {subject}{'s'[: found.total() != 1]}{names}")
    return ", ".join(texts)


def _field_name(field: FieldChange) -> str:
    """A field without its parts; a module's class, which says most, with its values."""
    return field_text(field) if field.path == ("class",) else one_line(str(field.path[0]))
