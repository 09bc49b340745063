"""A diff where people review: as Markdown for a pull request, and as a picture of what changed and what is near it."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from gradir import registry
from gradir.diff.report.headline import unknown_sizes
from gradir.diff.report.notes import notes
from gradir.diff.report.outline import cut_kind, folds, outline
from gradir.diff.report.ranges import ranges
from gradir.diff.report.table import LONGEST_RANGE, table
from gradir.diff.report.text import render_brief, render_text
from gradir.diff.union import union
from gradir.errors import ExportError, GradirWarning
from gradir.ir.marks import status
from gradir.ir.text import amount, short_bytes
from gradir.ir.totals import unknown_slots
from gradir.markdown import code_span, fenced
from gradir.passes import around

if TYPE_CHECKING:
    from gradir.diff.model import Diff
    from gradir.diff.report.outline import Outline
    from gradir.diff.report.places import Sides
    from gradir.ir import Graph

__all__ = ["changed_part", "markdown"]

_MOST_CHARACTERS: Final = 60_000
"""A comment on GitHub holds 65,536; what surrounds the report has to fit too."""

_KINDS: Final = ("added", "removed", "changed", "renamed", "moved")
_MOST_CUTS: Final = 4
_MOST_RENAMED: Final = 10
_MOST_PICTURED: Final = 120
_HOPS: Final = 1
_LEAST_ROOM: Final = 200


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
    sides = (a, b)
    found = outline(diff, sides)
    head = "\n".join([f"### {title}", "", *_figures(diff, found, sides), "", *table(diff, sides)])
    picture = _picture(a, b, diff)
    room = _MOST_CHARACTERS - len(head) - len(picture)
    details = _folded("What changed", render_brief(diff, sides), room)
    if folds(found):
        details += _folded("Every change by itself", render_text(diff, sides), room - len(details))
    return f"{head}\n{picture}{details}"


def _figures(diff: Diff, outline: Outline, sides: Sides) -> Iterator[str]:
    yield from _cuts(outline)
    for note in notes(diff, sides):
        what, _, text = note.partition(": ")
        yield f"**{what.capitalize()}:** {code_span(text, LONGEST_RANGE)}  "
    counts = Counter(change.kind for change in diff.changes if change.subject == "node")
    nodes = ", ".join(f"{counts[kind]:,} {kind}" for kind in _KINDS if counts[kind])
    yield f"**Nodes:** {nodes or 'none'} ({diff.before.nodes:,} → {diff.after.nodes:,})  "
    modules = Counter(change.kind for change in diff.changes if change.subject == "scope")
    if modules:
        yield f"**Modules:** {', '.join(f'{modules[kind]:,} {kind}' for kind in _KINDS if modules[kind])}  "
    parameters, saved = (
        (getattr(diff.before, name), getattr(diff.after, name)) for name in ("parameters", "saved_bytes")
    )
    yield f"**Parameters in the graph:** {_figure(*parameters, *map(amount, parameters))}  "
    unknown = unknown_sizes(*(unknown_slots(graph.nodes.values()) for graph in sides))
    figure = _figure(*saved, *map(short_bytes, saved))
    yield f"**Saved for backward:** {figure}{f', {unknown}' if unknown else ''}  "
    renamed = [change for change in diff.changes if change.subject == "module"]
    for change in renamed[:_MOST_RENAMED]:
        was, now = (code_span(name or "(top level)") for name in (change.was, change.id))
        yield f"**Renamed:** {was} → {now}, {change.summary}  "
    if len(renamed) > _MOST_RENAMED:
        yield f"**Renamed:** {len(renamed) - _MOST_RENAMED:,} more modules  "


def _figure(before: int, after: int, text: str, text_after: str) -> str:
    share = f" ({100 * (after - before) / before:+.1f} %)" if before and after != before else ""
    return f"{text} → {text_after}{share}" if after != before else f"{text}, as before"


def _cuts(outline: Outline) -> Iterator[str]:
    """A line for each kind of cut that came or went; their parameters count as gone, which alone would mislead."""
    for cuts in outline.cuts[:_MOST_CUTS]:
        changes = cuts.changes
        names = list(dict.fromkeys(change.id for change in changes))
        shown = ranges(names) if len(names) > 1 else names[0]
        if len(shown) <= LONGEST_RANGE:
            listed = code_span(shown, LONGEST_RANGE)
        else:
            rest = f" and {len(names) - _MOST_CUTS:,} more" if len(names) > _MOST_CUTS else ""
            listed = f"{', '.join(map(code_span, names[:_MOST_CUTS]))}{rest}"
        yield f"**Cuts:** {len(changes):,} {code_span(cut_kind(changes[0]))} {changes[0].kind}: {listed}  "
    if len(outline.cuts) > _MOST_CUTS:
        yield f"**Cuts:** {len(outline.cuts) - _MOST_CUTS:,} more kinds  "


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


def _folded(title: str, text: str, room: int) -> str:
    """A text that is folded away, shortened to the room that there is; nothing where that is hardly any."""
    frame = f"\n<details><summary>{title}</summary>\n\n{{}}\n</details>\n"
    left = room - len(frame) - 100
    if left < _LEAST_ROOM:
        return ""
    if len(text) > left:
        lines = text[:left].rpartition("\n")[0].splitlines()
        text = "\n".join(
            [*lines, f"… {text.count(chr(10)) - len(lines):,} more lines: gradir diff --full shows them all", ""]
        )
    return frame.format(fenced(text, "text"))
