"""A diff where people review: as Markdown for a pull request, and as a picture of what changed and what is near it."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from typing import TYPE_CHECKING, Final

from gradir import registry
from gradir.diff.text import render_text, short_bytes
from gradir.diff.union import union
from gradir.errors import ExportError, GradirWarning
from gradir.ir.marks import status
from gradir.markdown import fenced
from gradir.passes import around

if TYPE_CHECKING:
    from gradir.diff.model import Change, Diff, Growth
    from gradir.ir import Graph

__all__ = ["changed_part", "markdown"]

_MOST_CHARACTERS: Final = 60_000
"""A comment on GitHub holds 65,536; what surrounds the report has to fit too."""

_KINDS: Final = ("added", "removed", "changed", "renamed", "moved")
_MOST_CUTS: Final = 4
_MOST_RENAMED: Final = 10
_LONGEST_NAME: Final = 120
_MOST_MODULES: Final = 40
_MOST_PICTURED: Final = 120
_HOPS: Final = 1


def changed_part(a: Graph, b: Graph, diff: Diff, hops: int = _HOPS) -> Graph:
    """What changed from ``a`` to ``b``, each node marked, with what is at most ``hops`` edges away.

    >>> from gradir import diff
    >>> from gradir.ir import Graph, Node, Ref
    >>> a = Graph.of([Node("a"), Node("b", inputs=(Ref("a", 0),)), Node("c", inputs=(Ref("b", 0),))])
    >>> b = Graph.of([*list(a.nodes.values())[:2], Node("c", op="exp", inputs=(Ref("b", 0),))])
    >>> list(changed_part(a, b, diff(a, b)).nodes)
    ['b', 'c']
    """
    whole = union(a, b, diff)
    return around(whole, [node.id for node in whole.nodes.values() if status(node)], hops)


def markdown(a: Graph, b: Graph, diff: Diff, *, title: str = "Autograd graph") -> str:
    """A report that fits into a comment: the figures, a table by module, a picture, and the details folded.

    >>> from gradir import diff
    >>> from gradir.ir import Graph, Node
    >>> print(markdown(Graph.of([]), Graph.of([]), diff(Graph.of([]), Graph.of([]))), end="")
    ### Autograd graph: no difference
    """
    if not diff:
        return f"### {title}: no difference\n"
    head = "\n".join([f"### {title}", "", *_figures(diff), "", *_table(diff)])
    picture = _picture(a, b, diff)
    room = _MOST_CHARACTERS - len(head) - len(picture)
    return f"{head}\n{picture}{_details(diff, room)}"


def _figures(diff: Diff) -> Iterator[str]:
    counts = Counter(change.kind for change in diff.changes if change.subject == "node")
    nodes = ", ".join(f"{counts[kind]:,} {kind}" for kind in _KINDS if counts[kind])
    yield f"**Nodes:** {nodes or 'none'} ({diff.before.nodes:,} → {diff.after.nodes:,})  "
    for name, before, after in (
        ("Parameters in the graph", diff.before.parameters, diff.after.parameters),
        ("Saved for backward", diff.before.saved_bytes, diff.after.saved_bytes),
    ):
        share = f" ({100 * (after - before) / before:+.1f} %)" if before and after != before else ""
        shown = (short_bytes(before), short_bytes(after)) if name.startswith("Saved") else (f"{before:,}", f"{after:,}")
        yield f"**{name}:** {' → '.join(shown) if after != before else shown[0] + ', as before'}{share}  "
    yield from _cuts(diff)
    renamed = [change for change in diff.changes if change.subject == "module"]
    for change in renamed[:_MOST_RENAMED]:
        was, now = (_code(name or "(top level)") for name in (change.was, change.id))
        yield f"**Renamed:** {was} → {now}, {change.summary}  "
    if len(renamed) > _MOST_RENAMED:
        yield f"**Renamed:** {len(renamed) - _MOST_RENAMED:,} more modules  "


def _cuts(diff: Diff) -> Iterator[str]:
    """A line for each kind of cut that came or went; their parameters count as gone, which alone would mislead."""
    groups: dict[tuple[str, str], list[str]] = {}
    for change in diff.changes:
        if change.subject == "cut" and change.kind in {"added", "removed"}:
            groups.setdefault((change.kind, change.summary.partition(" ")[0]), []).append(change.id)
    for (kind, what), names in list(groups.items())[:_MOST_CUTS]:
        shown = ", ".join(map(_code, names[:_MOST_CUTS]))
        rest = f" and {len(names) - _MOST_CUTS:,} more" if len(names) > _MOST_CUTS else ""
        yield f"**Cuts:** {len(names):,} {_code(what)} {kind}: {shown}{rest}  "


def _table(diff: Diff) -> Iterator[str]:
    """One row for each module with changes: what became of its nodes, and how much it grew."""
    counts: dict[tuple[str, bool], Counter[str]] = {}
    gone = {growth.path for growth in diff.modules if growth.gone}
    now = {growth.was: growth.path for growth in diff.modules if growth.was}
    for change in diff.changes:
        if change.subject == "node":
            counts.setdefault(_module_of(change, gone, now), Counter())[change.kind] += 1
    sizes = {(growth.path, growth.gone): growth for growth in diff.modules}
    keys = list(dict.fromkeys((*counts, *sizes)))
    if not keys:
        return
    yield "| module | + | - | ~ | operations | parameters | saved |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    for key in keys[:_MOST_MODULES]:
        found = counts.get(key, Counter())
        changed = found["changed"] + found["renamed"] + found["moved"]
        cells = [f"{number:,}" if number else "" for number in (found["added"], found["removed"], changed)]
        yield f"| {_module_name(key, sizes.get(key))} | {' | '.join([*cells, *_growths(sizes.get(key))])} |"
    if len(keys) > _MOST_MODULES:
        yield f"| … {len(keys) - _MOST_MODULES:,} more modules | | | | | | |"


def _module_of(change: Change, gone: Set[str], now: Mapping[str, str]) -> tuple[str, bool]:
    """The module that a change belongs to, and whether only the first graph has it."""
    if change.kind != "removed":
        return change.scope, False
    # What was removed names its module as the first graph does.
    return (change.scope, True) if change.scope in gone else (now.get(change.scope, change.scope), False)


def _module_name(key: tuple[str, bool], growth: Growth | None) -> str:
    path, gone = key
    name = _code(path) if path else "(top level)"
    if gone:
        return f"{name} (removed)"
    return f"{name} (was {_code(growth.was)})" if growth is not None and growth.was else name


def _growths(growth: Growth | None) -> Iterator[str]:
    if growth is None:
        yield from ("", "", "")
        return
    operations, parameters, saved = (
        getattr(growth.after, name) - getattr(growth.before, name) for name in ("nodes", "parameters", "saved_bytes")
    )
    yield f"{operations:+,}" if operations else ""
    yield f"{parameters:+,}" if parameters else ""
    yield short_bytes(saved, signed=True) if saved else ""


def _picture(a: Graph, b: Graph, diff: Diff) -> str:
    """The changed part as a Mermaid block; nothing where it is too large to read."""
    part = changed_part(a, b, diff)
    if not part.nodes or len(part.nodes) > _MOST_PICTURED:
        return ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GradirWarning)
            source = registry.export("mermaid", part, {"fold": False})
    except ExportError:
        return ""
    legend = "`+` added, `-` removed, `~` changed; what is gray is as it was."
    return f"\n{fenced(source, 'mermaid')}\n{legend}\n"


def _details(diff: Diff, room: int) -> str:
    text = render_text(diff)
    frame = "\n<details><summary>Every change</summary>\n\n{}\n</details>\n"
    left = room - len(frame) - 100
    if len(text) > left:
        lines = text[: max(left, 0)].rpartition("\n")[0].splitlines()
        text = "\n".join([*lines, f"… {text.count(chr(10)) - len(lines):,} more lines: gradir diff shows them all", ""])
    return frame.format(fenced(text, "text"))


def _code(text: str) -> str:
    """Text as a code span that a table can hold, without its middle when it is long."""
    if len(text) > _LONGEST_NAME:
        text = f"{text[: _LONGEST_NAME // 2]}…{text[-_LONGEST_NAME // 2 :]}"
    shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text).replace("|", "\\|")
    ticks = "`" * (max((len(run) for run in re.findall("`+", shown)), default=0) + 1)
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{ticks}{pad}{shown}{pad}{ticks}"
