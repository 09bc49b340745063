"""A comparison as Markdown for a pull request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from gradir.ir.text import amount, short_bytes, word
from gradir.markdown import code_span, fenced
from gradir.review.headline import unknown_sizes
from gradir.review.lines import change_summary
from gradir.review.name_ranges import ranges
from gradir.review.outline import folds
from gradir.review.table import LONGEST_RANGE, table
from gradir.review.text import render_brief, render_text

if TYPE_CHECKING:
    from gradir.review.comparison import Comparison
    from gradir.review.outline import Outline

__all__ = ["markdown"]

_MOST_CHARACTERS: Final = 60_000
"""A comment on GitHub holds 65,536; what surrounds the report has to fit too."""

_KINDS: Final = ("added", "removed", "changed", "renamed", "moved")
_MOST_CUTS: Final = 4
_MOST_RENAMED: Final = 10
_LEGEND: Final = "`+` added, `-` removed, `~` changed; what is gray is as it was."
_LEAST_ROOM: Final = 200


def markdown(comparison: Comparison, *, title: str = "Autograd graph", picture: str = "") -> str:
    """A report that fits into a comment: the figures, a table by module, a picture, and the details folded.

    ``picture`` is Mermaid source of what changed.

    >>> from gradir.ir import Graph
    >>> from gradir.review.comparison import Comparison
    >>> print(markdown(Comparison(Graph.of([]), Graph.of([]))), end="")
    ### Autograd graph: no difference
    """
    if not comparison.diff:
        return f"### {title}: no difference\n"
    head = "\n".join([f"### {title}", "", *_figures(comparison), "", *table(comparison)])
    drawn = f"\n{fenced(picture, 'mermaid')}\n{_LEGEND}\n" if picture else ""
    room = _MOST_CHARACTERS - len(head) - len(drawn)
    details = _folded("What changed", render_brief(comparison), room)
    if folds(comparison.outline):
        details += _folded("Every change by itself", render_text(comparison), room - len(details))
    return f"{head}\n{drawn}{details}"


def _figures(comparison: Comparison) -> Iterator[str]:
    diff = comparison.diff
    yield from _cuts(comparison.outline)
    for note in comparison.notes:
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
    unknown = unknown_sizes(*comparison.unknown_slots)
    figure = _figure(*saved, *map(short_bytes, saved))
    yield f"**Saved for backward:** {figure}{f', {unknown}' if unknown else ''}  "
    renamed = [change for change in diff.changes if change.subject == "module"]
    for change in renamed[:_MOST_RENAMED]:
        was, now = (code_span(name or "(top level)") for name in (change.was, change.id))
        yield f"**Renamed:** {was} → {now}, {change_summary(change)}  "
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
        yield f"**Cuts:** {len(changes):,} {code_span(word(changes[0].what))} {changes[0].kind}: {listed}  "
    if len(outline.cuts) > _MOST_CUTS:
        yield f"**Cuts:** {len(outline.cuts) - _MOST_CUTS:,} more kinds  "


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
