"""A diff as Markdown for a pull request."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import astuple

from gradir.diffs.changes import ADDED_OR_REMOVED
from gradir.diffs.matching.renames import pattern, rename
from gradir.diffs.modules import ChangedModule
from gradir.ir.name_ranges import ranges
from gradir.ir.text import amount, short_bytes
from gradir.ir.totals import Size
from gradir.markdown import code_span, fence_code
from gradir.review.evidence import WholeModules
from gradir.review.kinds import EDITS_OF_SEVERAL, KINDS, LISTED, sections, share
from gradir.review.relative_changes import COUNTS, RelativeName, relative_name
from gradir.review.text import no_difference, render
from gradir.review.wording import SIGNS, operation_or_class, settings, unknown_sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gradir.diffs.changes import Change, Diff, Growth
    from gradir.review.evidence import WholeModule

    Module = ChangedModule | WholeModule

# A comment on GitHub has at most 65,536 characters, elsewhere bytes, with the text around the report.
_MOST_BYTES: Final = 60_000
# A longer range in a report is cut in its middle.
LONGEST_RANGE: Final = 400
# A longer table would hide the picture. Rows of long names are limited by the bytes below.
_MOST_ROWS: Final = 40
_MOST_OF_ROWS: Final = 24_000
_MOST_LISTED: Final = 10
# A folded text of fewer bytes is left out.
_LEAST_ROOM: Final = 200
_MOST_FOLLOWING: Final = 8_000
_KINDS: Final = ("added", "removed", "changed", "renamed", "moved")
# The labels of findings about the whole graph.
_HEADS: Final = {
    "cut-added": "Cuts",
    "cut-removed": "Cuts",
    **{kind: kind.capitalize() for kind in (*EDITS_OF_SEVERAL, "renamed", "wrapped", "unwrapped")},
}
_LEGEND: Final = "`+` added, `-` removed, `~` changed; gray is unchanged."
_TOO_LONG: Final = "No picture: a comment has no room for it; gradir diff --format mermaid writes it."


def markdown(diff: Diff, *, title: str = "Autograd graph", picture: str = "", unpictured: str = "") -> str:
    """Return a report that fits into a comment: figures, a table by module, a picture, and folded details."""
    # `picture` is Mermaid source, and `unpictured` says why there is none or which parts it lacks.
    if not diff:
        return f"### {title}: {no_difference(diff)}\n"
    head = "\n".join([f"### {title}", "", *_figures(diff), "", *table(diff)])
    drawn = f"\n{fence_code(picture, 'mermaid')}\n{_LEGEND}\n" if picture else ""
    if _count_bytes(head) + _count_bytes(drawn) > _MOST_BYTES - _LEAST_ROOM:
        drawn, unpictured = "", _TOO_LONG
    drawn += f"\n{unpictured}\n" if unpictured else ""
    room = _MOST_BYTES - _count_bytes(f"{head}\n{drawn}")
    details = _fold_text("What changed", render(diff, "details"), room)
    kinds = {finding.kind for finding in diff.findings}
    is_folded = any(
        sum(map(len, each.changes)) > 1 and (each.kind not in {"same", "reads", "graph"} or len(each.subjects) > 1)
        for each in diff.findings
    )
    if is_folded and "two-models" not in kinds:
        every = render(diff, "full")
        # The consequences of one change of all operations may be as long as the graph.
        if "following" not in kinds or len(every) <= _MOST_FOLLOWING:
            details += _fold_text("Every change by itself", every, room - _count_bytes(details))
    return f"{head}\n{drawn}{details}"


def _figures(diff: Diff) -> Iterator[str]:
    found = sections(diff)
    for finding in found["top"]:
        yield f"**In short:** {code_span(finding.text, LONGEST_RANGE)}  "
    listed = [finding for finding in found["graph"] if finding.kind in _HEADS]
    for finding in listed[:_MOST_LISTED]:
        text = f"{SIGNS[KINDS[finding.kind].sign]} {finding.text}"
        yield f"**{_HEADS[finding.kind]}:** {code_span(text, LONGEST_RANGE)}  "
    if len(listed) > _MOST_LISTED:
        yield f"**Cuts and names:** {len(listed) - _MOST_LISTED:,} more  "
    kinds = {finding.kind: finding for finding in diff.findings}
    for finding in (*(kinds[kind] for kind in LISTED if kind in kinds), *found["note"]):
        title, _, text = finding.text.partition(": ")
        yield f"**{title.capitalize()}:** {code_span(text, LONGEST_RANGE)}  "
    counts = Counter(change.kind for change in diff.changes if change.subject == "node")
    nodes = ", ".join(f"{counts[kind]:,} {kind}" for kind in _KINDS if counts[kind])
    yield f"**Nodes:** {nodes or 'none'} ({diff.before.nodes:,} → {diff.after.nodes:,})  "
    modules = Counter(change.kind for change in diff.changes if change.subject == "scope")
    if modules:
        yield f"**Modules:** {', '.join(f'{modules[kind]:,} {kind}' for kind in _KINDS if modules[kind])}  "
    before, after = diff.before, diff.after
    yield f"**Parameters in the graph:** {_figure(before.parameters, after.parameters, amount)}  "
    slots = kinds["saved-bytes"].details.get("unknown", (0, 0)) if "saved-bytes" in kinds else (0, 0)
    saved = _figure(before.saved_bytes, after.saved_bytes, short_bytes)
    yield f"**Saved for backward:** {', '.join(filter(None, (saved, unknown_sizes(*slots))))}  "


def _figure(before: int, after: int, text: Callable[[int], str]) -> str:
    return f"{text(before)} → {text(after)}{share(before, after)}" if after != before else f"{text(before)}, as before"


def _fold_text(title: str, text: str, room: int) -> str:
    """Return a folded text of at most ``room`` bytes, or an empty text if too little would be left."""
    frame = f"\n<details><summary>{title}</summary>\n\n{{}}\n</details>\n"
    whole = frame.format(fence_code(text, "text"))
    if _count_bytes(whole) <= room:
        return whole
    more = "… {:,} more lines: gradir diff --full shows them all\n"
    left = room - (_count_bytes(whole) - _count_bytes(text)) - _count_bytes(more.format(text.count("\n")))
    if left < _LEAST_ROOM:
        return ""
    beginning = text.encode()[:left].decode(errors="ignore")
    beginning = beginning[: beginning.rfind("\n") + 1]
    return frame.format(fence_code(beginning + more.format(text.count("\n") - beginning.count("\n")), "text"))


def _count_bytes(text: str) -> int:
    return len(text.encode())


class _Row(NamedTuple):
    """A row for modules with equal values; ``was`` is the path in the first graph, relative to the module."""

    note: str
    was: RelativeName
    added: int
    removed: int
    changed: int
    growth: Size
    settings: str


def table(diff: Diff) -> Iterator[str]:
    """Yield one row for each module with changes, or for several with the same counts."""
    wholes, changes = WholeModules(diff), diff.changes
    renamed = {rename(pattern(each.old_id), pattern(each.id)) for each in changes if each.subject == "module"}
    counts: dict[Module, Counter[str]] = {}
    for change in changes:
        if change.subject == "node":
            counts.setdefault(wholes.find_row(change), Counter())[change.kind] += 1
    scopes = {
        wholes.find_row(change): change for change in changes if change.subject == "scope" and _has_row(change, wholes)
    }
    growths: dict[Module, Size] = {}
    was: dict[Module, str] = {}
    for growth in diff.modules:
        module = _find_module(growth, wholes)
        sizes = map(astuple, (growths.get(module, Size()), growth.before, growth.after))
        growths[module] = Size(*(so_far + after - before for so_far, before, after in zip(*sizes, strict=True)))
        if growth.old_path and isinstance(module, ChangedModule):
            was[module] = growth.old_path
    was.update(
        (module, scope.old_id) for module, scope in scopes.items() if scope.old_id and isinstance(module, ChangedModule)
    )
    # A renamed module explains these names in its own row.
    was = {
        module: before for module, before in was.items() if rename(pattern(before), pattern(module.path)) not in renamed
    }
    grouped: dict[_Row, list[Module]] = {}
    for module in sorted(dict.fromkeys((*counts, *growths, *scopes)), key=wholes.position):
        found, size = counts.get(module, Counter()), growths.get(module, Size())
        row = _Row(
            _note(module, scopes.get(module)),
            relative_name(module.path, was.get(module, module.path)),
            found["added"],
            found["removed"],
            found["changed"] + found["renamed"] + found["moved"],
            size,
            _settings(scopes.get(module), size),
        )
        grouped.setdefault(row, []).append(module)
    if not grouped:
        return
    rows, has_settings = list(grouped.items()), any(row.settings for row in grouped)
    yield f"| module | + | - | ~ | operations | parameters | saved |{' settings |' if has_settings else ''}"
    yield f"|---|--:|--:|--:|--:|--:|--:|{'---|' if has_settings else ''}"
    written = length = 0
    for row, modules in rows[:_MOST_ROWS]:
        paths = [module.path for module in modules]
        cells = [
            _title(row, paths, [was.get(module, module.path) for module in modules]),
            *_cells(row, len(paths)),
            *([row.settings and code_span(row.settings)] if has_settings else []),
        ]
        line = f"| {' | '.join(cells)} |"
        length += _count_bytes(line)
        if length > _MOST_OF_ROWS:
            break
        written += 1
        yield line
    if len(rows) > written:
        more = sum(len(modules) for _, modules in rows[written:])
        yield f"| … {more:,} more modules |{' |' * (6 + has_settings)}"


def _find_module(growth: Growth, wholes: WholeModules) -> Module:
    module = ChangedModule(growth.path, growth.gone)
    whole = None if growth.gone else wholes.find_top(growth.path, added=True)
    # The first graph may have another module at this path that was removed.
    was = growth.old_path or growth.path
    if whole is None and wholes.outline.module(was, added=False) == module:
        whole = wholes.find_top(was, added=False)
    return whole or module


def _note(module: Module, scope: Change | None) -> str:
    if isinstance(module, ChangedModule):
        is_added = scope is not None and scope.kind == "added"
        return "removed" if module.gone else "added" if is_added else ""
    kind = "added" if module.added else "removed"
    return kind if module.itself else f"all of it {kind}"


def _has_row(change: Change, wholes: WholeModules) -> bool:
    """Return whether a change of a module has a row, apart from that of an outer module."""
    whole = wholes.find_top_of(change)
    if change.kind in ADDED_OR_REMOVED or not all(field.path[0] in COUNTS for field in change.fields):
        return whole is None or whole.path == change.id
    return not (wholes.find_top(change.id, added=True) or wholes.find_top(change.old_id or change.id, added=False))


def _settings(scope: Change | None, growth: Size) -> str:
    """Return the changed settings of a module; its counts only if the column of parameters is empty."""
    if scope is None:
        return ""
    if scope.kind in ADDED_OR_REMOVED:
        return operation_or_class(scope) if scope.fields else ""
    return settings((scope, field) for field in scope.fields if not (growth.parameters and field.path[0] in COUNTS))


def _title(row: _Row, paths: Sequence[str], before: Sequence[str]) -> str:
    notes = [f"{len(paths):,} modules"] if len(paths) > 1 else []
    notes += [row.note] if row.note else []
    notes += [f"was {_names(before)}"] if before != paths else []
    return f"{_names(paths)} ({', '.join(notes)})" if notes else _names(paths)


def _names(paths: Sequence[str]) -> str:
    if len(paths) > 1:
        return code_span(ranges(paths), LONGEST_RANGE)
    return code_span(paths[0]) if paths[0] else "(top level)"


def _cells(row: _Row, modules: int) -> Iterator[str]:
    for number in (row.added, row.removed, row.changed):
        yield f"{number * modules:,}" if number else ""
    for number in (row.growth.nodes, row.growth.parameters):
        yield amount(number * modules, signed=True) if number else ""
    yield short_bytes(row.growth.saved_bytes * modules, signed=True) if row.growth.saved_bytes else ""
