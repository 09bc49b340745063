"""The short text of a diff against the diff itself: every change is told, once."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import product

from reports import attach_findings, changes_in, entries, findings_of_kinds, render_details

from gradir.diffs.changes import Change, Diff, Finding
from gradir.ir import Graph
from gradir.ir.text import word
from gradir.review.text import headline
from gradir.review.wording import change_lines, module_name

_PLAIN = re.compile(r"[^{},.:\"\s]+")
_RUN = re.compile(r"(\d+)\.\.(\d+)")


def check_text(diff: Diff, sides: tuple[Graph, Graph]) -> None:
    """Read a text as a person would, who believes it, and compare with what changed."""
    if not diff:
        assert render_details(diff, sides) == "no difference\n"
        return
    found = attach_findings(diff, sides)
    lines = render_details(diff, sides).splitlines()
    assert all(line.isprintable() for line in lines)
    assert lines[0] == headline(found)
    for finding in findings_of_kinds(found, "cut-added", "cut-removed"):
        cuts, gone = changes_in(found, finding)
        nodes = f", {len(gone)} node" if gone else ""
        # Cuts of another kind may have the same names.
        assert any(_is_of(line, cuts) and nodes in line for line in lines)
    for finding in entries(found):
        first = changes_in(found, finding)[0]
        body = [line.text for change in first for line in change_lines(change)]
        if finding.kind == "same":
            places = [at for at, line in enumerate(lines) if _heads(line, finding)]
            shown = [[line.strip() for line in lines[at + 1 : at + 1 + len(body)]] for at in places]
            assert [line.strip() for line in body] in shown
        else:
            assert sum(_names_modules(line, finding) for line in lines) >= 1
            assert finding.details["nodes"] == sum(change.subject == "node" for change in first)


def _is_of(line: str, cuts: list[Change]) -> bool:
    if len(cuts) == 1:
        return line.startswith(f"  {next(change_lines(cuts[0])).text}")
    start = f"  {'+' if cuts[0].kind == 'added' else '-'} {len(cuts)} cuts, {word(cuts[0].label)}"
    ends = [found.end() for found in re.finditer(": ", line)] if line.startswith(start) else []
    return any(set(expand_names(line[end:])[0]) == {change.id for change in cuts} for end in ends)


def _heads(line: str, group: Finding) -> bool:
    removed = " (removed)" if "gone" in group.details else ""
    if len(group.subjects) == 1:
        return line == f"{module_name(group.subjects[0])}{removed}"
    if line[:1] not in {"", " ", "("}:
        names, rest = expand_names(line)
        what = "change" if len(group.changes[0]) == 1 else f"{len(group.changes[0])} changes"
        here = module_name(group.subjects[0])
        but = "but for sizes, " if "sizes" in group.details else ""
        told = f"{removed}: {but}the same {what} in each of {len(group.subjects)} modules, here in {here}"
        return rest == told and Counter(names) == Counter(group.subjects)
    return False


def _names_modules(line: str, entry: Finding) -> bool:
    count = len(entry.subjects)
    modules = "module" if count == 1 else f"{count} modules"
    what = modules if entry.details["itself"] else "all of" if count == 1 else f"all of {modules}"
    sign = "+" if entry.kind == "module-added" else "-"
    start = f"  {sign} {what} "
    if not line.startswith(start):
        return False
    rest = line[len(start) :]
    if count == 1:
        return rest.startswith(f"{module_name(entry.subjects[0])}  ")
    return Counter(expand_names(rest)[0]) == Counter(entry.subjects)


def expand_names(text: str, *, braced: bool = False) -> tuple[list[str], str]:
    """The names at the start of a text, and what follows them, by the grammar of `gradir.ir.name_ranges`."""
    names = [""]
    while text:
        run = _RUN.match(text) if braced else None
        if text[0] == "{":
            found, text = _alternatives(text[1:])
        elif text[0] == '"':
            value, end = json.JSONDecoder().raw_decode(text)
            found, text = [value], text[end:]
        elif run is not None:
            found, text = [str(number) for number in range(int(run[1]), int(run[2]) + 1)], text[run.end() :]
        elif text[0] == ".":
            found, text = ["."], text[1:]
        elif plain := _PLAIN.match(text):
            found, text = [plain[0]], text[plain.end() :]
        else:
            break
        names = [before + after for before, after in product(names, found)]
    return names, text


def _alternatives(text: str) -> tuple[list[str], str]:
    names: list[str] = []
    while True:
        found, text = expand_names(text, braced=True)
        names += found
        end, text = text[0], text[1:]
        if end == "}":
            return names, text
        assert end == ","
