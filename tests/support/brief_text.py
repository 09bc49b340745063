"""The short text of a diff against the diff itself: every change is told, once."""

from __future__ import annotations

import re
from collections import Counter

from range_notation import expanded
from reports import headline, outline, render_brief

from gradir.diffs.changes import Change, Diff
from gradir.ir import Graph
from gradir.ir.text import word
from gradir.review.outline import Group, Modules
from gradir.review.wording import change_line, change_lines, module_name

__all__ = ["check_text"]


def check_text(diff: Diff, sides: tuple[Graph, Graph]) -> None:
    """Read a text as a person would, who believes it, and compare with what changed."""
    if not diff:
        assert render_brief(diff, sides) == "no difference\n"
        return
    found = outline(diff, sides)
    lines = render_brief(diff, sides).splitlines()
    assert all(line.isprintable() for line in lines)
    assert lines[0] == headline(diff, sides)
    for cuts in found.cuts:
        nodes = f", {len(cuts.nodes)} node" if cuts.nodes else ""
        # Cuts of another kind may have the same names.
        assert any(_is_of(line, cuts.changes) and nodes in line for line in lines)
    for entry in found.entries:
        body = [line.text for change in entry.changes[0] for line in change_lines(change)]
        if isinstance(entry, Group):
            places = [at for at, line in enumerate(lines) if _heads(line, entry)]
            shown = [[line.strip() for line in lines[at + 1 : at + 1 + len(body)]] for at in places]
            assert [line.strip() for line in body] in shown
        else:
            assert sum(_names_modules(line, entry) for line in lines) >= 1
            assert entry.contents.nodes == sum(change.subject == "node" for change in entry.changes[0])


def _is_of(line: str, cuts: tuple[Change, ...]) -> bool:
    if len(cuts) == 1:
        return line.startswith(f"  {change_line(cuts[0]).text}")
    start = f"  {'+' if cuts[0].kind == 'added' else '-'} {len(cuts)} cuts, {word(cuts[0].what)}"
    ends = [found.end() for found in re.finditer(": ", line)] if line.startswith(start) else []
    return any(set(expanded(line[end:])[0]) == {change.id for change in cuts} for end in ends)


def _heads(line: str, group: Group) -> bool:
    removed = " (removed)" if group.gone else ""
    if len(group.paths) == 1:
        return line == f"{module_name(group.paths[0])}{removed}"
    if line[:1] not in {"", " ", "("}:
        names, rest = expanded(line)
        what = "change" if len(group.changes[0]) == 1 else f"{len(group.changes[0])} changes"
        told = (
            f"{removed}: the same {what} in each of {len(group.paths)} modules, here in {module_name(group.paths[0])}"
        )
        return rest == told and Counter(names) == Counter(group.paths)
    return False


def _names_modules(line: str, entry: Modules) -> bool:
    count = len(entry.paths)
    modules = "module" if count == 1 else f"{count} modules"
    what = modules if entry.itself else "all of" if count == 1 else f"all of {modules}"
    start = f"  {'+' if entry.added else '-'} {what} "
    if not line.startswith(start):
        return False
    rest = line[len(start) :]
    if count == 1:
        return rest.startswith(f"{module_name(entry.paths[0])}  ")
    return Counter(expanded(rest)[0]) == Counter(entry.paths)
