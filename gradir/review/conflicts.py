"""Why two edits of one graph cannot be merged: by module, with what each side changed there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gradir.diffs.compare import compare
from gradir.ir.name_ranges import ranges
from gradir.ir.text import counted, word
from gradir.review.reviewing import reviewed
from gradir.review.text import render_brief
from gradir.review.wording import NO_COLOUR, Line, change_lines, heading, module_name, written

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gradir.diffs.changes import Change
    from gradir.diffs.merging import Conflict
    from gradir.ir import Graph

_MOST_MODULES: Final = 12
_MOST_IN_ONE: Final = 8

Changes = dict[tuple[str, bool, str], "Change"]
"""By subject, whether it is new, and what it was called, or is called where it is new."""


def render_conflicts(conflicts: Sequence[Conflict], base: Graph, ours: Graph, theirs: Graph) -> str:
    """Each module with why, what ours changed and what theirs did; where there are many, names alone of the last."""
    if all(conflict.subject == "graph" for conflict in conflicts):
        reasons = "".join(f"{conflict.reason}; from ours to theirs:\n" for conflict in conflicts)
        return reasons + render_brief(reviewed(ours, theirs))
    modules: dict[str, list[Conflict]] = {}
    for conflict in conflicts:
        modules.setdefault(conflict.module, []).append(conflict)
    sides = [_indexed(base, side) for side in (ours, theirs)]
    shown = list(modules)[:_MOST_MODULES]
    lines = [line for module in shown for line in _module_lines(module, modules[module], sides)]
    rest = list(modules)[_MOST_MODULES:]
    if rest:
        lines.append(Line(f"and {counted(len(rest), 'module')} more: {ranges(rest)}"))
    return written(lines, NO_COLOUR, None)


def _indexed(base: Graph, side: Graph) -> Changes:
    return {
        (change.subject, change.kind == "added", change.was or change.id): change
        for change in compare(base, side).changes
    }


def _module_lines(module: str, conflicts: Sequence[Conflict], sides: Sequence[Changes]) -> Iterator[Line]:
    reasons = dict.fromkeys(conflict.reason for conflict in conflicts)
    yield heading(f"{module_name(module)}: {'; '.join(reasons)}")
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


def _side_lines(conflict: Conflict, called: str, changes: Mapping[tuple[str, bool, str], Change]) -> Iterator[Line]:
    is_new = not conflict.base
    change = changes.get((conflict.subject, is_new, called if is_new else conflict.base))
    if change is None and conflict.subject == "cut":
        change = changes.get(("cut", True, called))
    if change is not None:
        yield from change_lines(change)
    elif called and called != conflict.base:
        yield Line(f"{conflict.subject} {word(called)}", indent=2)
