"""Write a diff, or the conflicts of a merge, as text for a terminal or a review."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Final, Literal

from gradir.diffs.compare import compare
from gradir.ir.memo import group_by_key
from gradir.ir.name_ranges import ranges
from gradir.ir.text import pluralize, word
from gradir.review import wording
from gradir.review.evidence import find_outline
from gradir.review.kinds import EDITS_OF_SEVERAL, KINDS, LISTED, new_places, sections
from gradir.review.reviewing import review_graphs
from gradir.review.wording import BLANK, NO_COLOUR, SIGNS, Line, change_lines, heading, name_values, one_line, sign_line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from gradir.diffs.changes import Change, Diff, Finding
    from gradir.diffs.merging import Conflict
    from gradir.ir import Graph

# A longer text is replaced by a list of modules.
_MOST_LINES: Final = 12
_MOST_LISTED: Final = 40
# Signs: `+` added, `-` removed, `~` changed, `>` renamed, `^` moved to another module.
Detail = Literal["brief", "details", "full"]
_HOW: Final = ("renamed", "wrapped", "unwrapped")
_SINGLE: Final = frozenset({"graph", "cut-changed", "order", "indices"})


def no_difference(diff: Diff) -> str:
    """Return the text for equal graphs, with the share that could be compared across frameworks."""
    shared = (finding.text for finding in diff.findings if finding.kind == "shared-words")
    return " ".join(["no difference", *shared])


def render(
    diff: Diff, detail: Detail = "brief", *, palette: wording.Palette = NO_COLOUR, width: int | None = None
) -> str:
    """Return the sentence and the counts, then the changes, with equal ones once except in ``full``."""
    # The sentence, the counts and the notes are wrapped at `width`, and other lines are cut off there with `…`.
    if not diff:
        return f"{no_difference(diff)}\n"
    found, changes = sections(diff), name_values(diff)
    sentence = "".join([one_line(each.text) for each in found["top"]]) if detail == "brief" else ""
    notes = [each for each in found["note"] if one_line(each.text) not in sentence]
    notes = [each for each in notes if detail != "full" or each.kind != "following"]
    graph = [
        each for each in found["graph"] if each.kind not in EDITS_OF_SEVERAL or one_line(each.text) not in sentence
    ]
    head, lines = _head(diff, [*found["top"], *notes], width), _whole_graph(graph, changes)
    if detail == "full":
        lines = [*_list_every_change(diff)]
    elif any(finding.kind == "two-models" for finding in diff.findings):
        lines = [Line(f"{pluralize(len(diff.changes), 'change')}: --full lists them")]
    else:
        last = _whole_graph(found["last"], changes)
        blocks = [(finding, _finding_lines(finding, changes)) for finding in found["modules"]]
        by_module = [*_modules(blocks)]
        # In a short report, the last changes are minor.
        is_minor = detail == "brief" and (lines or by_module or found["note"] or found["graph"])
        if detail == "brief" and len(head) + len(lines) + len(by_module) > _MOST_LINES:
            lines += _section(_overview(blocks, changes), "(by module)")
            left = len(lines) - _MOST_LISTED
            lines[_MOST_LISTED:] = [Line(f"… {pluralize(left, 'more line')}")] if left > 0 else []
            lines.append(Line("--details shows these changes, of equal modules once"))
        else:
            lines += [*by_module, *([] if is_minor else last)]
    return wording.format_lines([*head, *lines], palette, width)


def headline(diff: Diff) -> str:
    """Return the numbers of changes on one line; cuts first, since their parameters lost their gradient."""
    counts: Counter[tuple[str, str]] = Counter((change.subject, change.kind) for change in diff.changes)
    found = {finding.kind: finding for finding in sections(diff)["head"]}
    renames = Counter(
        (wording.role_text(change), wording.nesting(change) or change.kind)
        for change in diff.changes
        if change.subject == "module"
    )
    by_way = sorted(renames.items(), key=lambda item: _HOW.index(item[0][1]))
    texts = [
        one_line(new_places(found["cuts"])) if "cuts" in found else "",
        _counts(counts, "cut"),
        *(one_line(found[kind].text) for kind in LISTED if kind in found),
        _counts(counts, "node"),
        _counts(counts, "scope"),
        *(f"{pluralize(count, role)} {how}" for (role, how), count in by_way),
        *(one_line(found[kind].text) for kind in ("edges", "params", "saved-bytes") if kind in found),
        "order changed" if any(change.id == "order" for change in diff.changes if change.subject == "graph") else "",
    ]
    return "; ".join(filter(None, texts))


def _counts(counts: Counter[tuple[str, str]], subject: str) -> str:
    """Count the changes of a subject by sign; without any, return an empty text, except for nodes."""
    if subject != "node" and not any(counts[subject, kind] for kind in SIGNS):
        return ""
    always = ("added", "removed", "changed")
    numbers = (
        f"{sign}{counts[subject, kind]}" for kind, sign in SIGNS.items() if kind in always or counts[subject, kind]
    )
    return f"{' '.join(numbers)} {subject}s"


def _head(diff: Diff, findings: Sequence[Finding], width: int | None) -> list[Line]:
    texts = [one_line(each.text) for each in findings]
    at = sum(KINDS[each.kind].section == "top" for each in findings)
    return [
        Line(line) for text in (*texts[:at], headline(diff), *texts[at:]) for line in wording.wrap_text(text, width)
    ]


def _list_every_change(diff: Diff) -> Iterator[Line]:
    changes = name_values(diff)
    facts = [change for change in changes if change.subject not in {"node", "scope"}]
    # Parameters that lost their gradient come first.
    facts.sort(key=lambda change: (change.subject != "cut", change.kind != "added"))
    first, last = (
        [line for change in facts if wording.is_renumbering(change) == is_last for line in change_lines(change)]
        for is_last in (False, True)
    )
    yield from _section(first)
    rest = [at for at, change in enumerate(changes) if change.subject in {"node", "scope"}]
    for module, indices in find_outline(diff).sections(changes, rest):
        yield from (BLANK, heading(wording.list_modules([module.path], gone=module.gone)))
        for at in indices:
            yield from change_lines(changes[at])
    yield from _section(last)


def _whole_graph(findings: Sequence[Finding], changes: Sequence[Change]) -> list[Line]:
    return _section([line for finding in findings for line in _finding_lines(finding, changes)])


def _section(lines: Sequence[Line], title: str = "(whole graph)") -> list[Line]:
    return [BLANK, heading(title), *lines] if lines else []


def _finding_lines(finding: Finding, changes: Sequence[Change]) -> list[Line]:
    if finding.kind == "same":
        own = [line for at in finding.changes[0] for line in change_lines(changes[at])]
        return [heading(finding.text), *own]
    if finding.kind == "reads":
        return [Line(f"~ {text}", indent=6) for text in finding.text.split("\n")]
    if finding.kind in _SINGLE:
        return list(change_lines(changes[finding.changes[0][0]]))
    return [sign_line(KINDS[finding.kind].sign, finding.text)]


def _modules(blocks: Iterable[tuple[Finding, list[Line]]]) -> Iterator[Line]:
    # Added and removed modules have no heading, and adjoining ones form one block.
    within = False
    for finding, lines in blocks:
        if finding.kind == "same" or not within:
            yield BLANK
        within = finding.kind != "same"
        yield from lines


def _overview(blocks: Iterable[tuple[Finding, list[Line]]], changes: Sequence[Change]) -> list[Line]:
    """Return the added and removed modules, and one line for all modules with equal counts of changes."""
    grouped: dict[object, list[Finding]] = {}
    found: dict[object, list[Line]] = {}
    for number, (finding, lines) in enumerate(blocks):
        key: object = number
        if finding.kind == "same":
            key = _count_kinds([changes[at] for at in finding.changes[0]], {"class"}), "gone" in finding.details
            grouped.setdefault(key, []).append(finding)
        found.setdefault(key, lines)
    found.update((key, [_overview_line(findings, changes)]) for key, findings in grouped.items())
    return [*chain.from_iterable(found.values())]


def _overview_line(findings: Sequence[Finding], changes: Sequence[Change]) -> Line:
    own = [changes[at] for at in findings[0].changes[0]]
    kinds = {change.kind for change in own}
    is_one = len(findings) == 1 and sum(len(wording.visible_fields(change)) for change in own) == 1
    with_values = {str(field.path[0]) for change in own for field in change.fields} if is_one else {"class", "op"}
    text = _count_kinds(own, with_values if len(findings) == 1 else {"class"})
    paths = [path for finding in findings for path in finding.subjects]
    count, each = (f"{len(paths):,} modules ", "each ") if len(paths) > 1 else ("", "")
    kind = kinds.pop() if len(kinds) == 1 else "changed"
    return sign_line(kind, f"{count}{wording.list_modules(paths, gone='gone' in findings[0].details)}  {each}{text}")


def _count_kinds(changes: Sequence[Change], with_values: Collection[str]) -> str:
    """Count the changes of each kind and name the fields: ``~1 scope (detail), -2 ~1 nodes (in, out)``."""
    counts: dict[str, Counter[str]] = {}
    fields: dict[str, dict[str, None]] = {}
    for change in changes:
        counts.setdefault(change.subject, Counter())[change.kind] += 1
        for field, (name, before, after) in zip(
            wording.visible_fields(change), wording.field_texts(change), strict=True
        ):
            key = str(field.path[0])
            text = f"{name}: {before} -> {after}" if key in with_values else one_line(key)
            fields.setdefault(change.subject, {})[text] = None
    texts = []
    for subject, found in counts.items():
        signs = " ".join(f"{sign}{found[kind]:,}" for kind, sign in SIGNS.items() if found[kind])
        names = f" ({', '.join(fields[subject])})" if subject in fields else ""
        texts.append(f"{signs} {subject}{'s'[: found.total() != 1]}{names}")
    return ", ".join(texts)


_MOST_MODULES: Final = 12
_MOST_IN_ONE: Final = 8
# Changes by subject, whether it is new, and its former name, or its name if it is new.
Changes = dict[tuple[str, bool, str], "Change"]


def render_conflicts(conflicts: Sequence[Conflict], base: Graph, ours: Graph, theirs: Graph) -> str:
    """Return each module with the reason and the changes of each side; of further modules only the names."""
    if all(conflict.subject == "graph" for conflict in conflicts):
        reasons = "".join(f"{conflict.reason}; from ours to theirs:\n" for conflict in conflicts)
        return reasons + render(review_graphs(ours, theirs))
    modules = group_by_key((conflict.module, conflict) for conflict in conflicts)
    sides: list[Changes] = [
        {
            (change.subject, change.kind == "added", change.old_id or change.id): change
            for change in compare(base, side).changes
        }
        for side in (ours, theirs)
    ]
    first, rest = list(modules)[:_MOST_MODULES], list(modules)[_MOST_MODULES:]
    lines = [line for module in first for line in _module_lines(module, modules[module], sides)]
    if rest:
        lines.append(Line(f"and {pluralize(len(rest), 'module')} more: {ranges(rest)}"))
    return wording.format_lines(lines, NO_COLOUR, None)


def _module_lines(module: str, conflicts: Sequence[Conflict], sides: Sequence[Changes]) -> Iterator[Line]:
    reasons = dict.fromkeys(conflict.reason for conflict in conflicts)
    yield heading(f"{wording.module_name(module)}: {'; '.join(reasons)}")
    for side, changes in zip(("ours", "theirs"), sides, strict=True):
        found = [
            line
            for conflict in conflicts[:_MOST_IN_ONE]
            for line in _side_lines(conflict, getattr(conflict, side), changes)
        ]
        yield Line(side, indent=2)
        for line in found or [Line("nothing by itself", indent=4)]:
            yield line._replace(indent=line.indent + 2)
    if len(conflicts) > _MOST_IN_ONE:
        yield Line(f"and {len(conflicts) - _MOST_IN_ONE:,} more here", indent=2)


def _side_lines(conflict: Conflict, name: str, changes: Changes) -> Iterator[Line]:
    is_new = not conflict.base
    change = changes.get((conflict.subject, is_new, name if is_new else conflict.base))
    if change is None and conflict.subject == "cut":
        change = changes.get(("cut", True, name))
    if change is not None:
        yield from change_lines(change)
    elif name and name != conflict.base:
        yield Line(f"{conflict.subject} {word(name)}", indent=2)
