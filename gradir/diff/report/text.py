"""A diff as text for a terminal or a review."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradir.diff.report.brief import brief_lines
from gradir.diff.report.headline import headline
from gradir.diff.report.lines import ANSI, BLANK, NO_COLOUR, Line, Palette, change_lines, heading, module_name, written
from gradir.diff.report.notes import notes
from gradir.diff.report.outline import outline
from gradir.diff.report.places import UNKNOWN, Places
from gradir.diff.report.wrap import wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradir.diff.model import Diff
    from gradir.diff.report.places import Sides

__all__ = ["ANSI", "NO_COLOUR", "Palette", "render_brief", "render_text"]

_NOTHING = "no difference\n"


def render_brief(diff: Diff, sides: Sides, *, palette: Palette = NO_COLOUR, width: int | None = None) -> str:
    """The counts on the first line, then what a reviewer has to know, in the order of the model, each thing once.

    Cuts stand first. A module that came or went as a whole is one line, and modules with the same changes are one
    group; where that is long, a list of what changed in which modules stands before it. ``sides`` are the graphs. The
    counts and the notes below them are wrapped at ``width``, any other line is cut short there with ``…``.

    >>> from gradir.diff.compare import compare
    >>> from gradir.ir import Graph, Node
    >>> a, b = (Graph.of([Node(f"h.{n}/f:1", op=op, scope=f"h.{n}") for n in range(12)]) for op in ("exp", "sin"))
    >>> print(render_brief(compare(a, b), (a, b)), end="")
    +0 -0 ~12 nodes
    <BLANKLINE>
    h.{0..11}: the same change in each of 12 modules, here in h.0
      ~ h.0/f:1  sin
          op: exp -> sin
    """
    if not diff:
        return _NOTHING
    return written([*_head(diff, sides, width), *brief_lines(outline(diff, sides))], palette, width)


def render_text(diff: Diff, sides: Sides = UNKNOWN, *, palette: Palette = NO_COLOUR, width: int | None = None) -> str:
    """The counts on the first line, then every change, by module; ``width`` is that of `render_brief`.

    Signs: ``+`` added, ``-`` removed, ``~`` changed, ``>`` renamed, ``^`` moved to another module. Where the graphs are
    at hand as ``sides``, modules stand in the order of the model.

    >>> from gradir.diff.model import Change, Diff, FieldChange, Totals
    >>> change = Change("changed", "node", "fc/addmm:1", "fc", "addmm float32[8, 3]", (FieldChange("in[0]", "-", "b"),))
    >>> print(render_text(Diff(Totals(2, 1), Totals(2, 2), (change,))), end="")
    +0 -0 ~1 nodes; edges +1
    <BLANKLINE>
    fc
      ~ fc/addmm:1  addmm float32[8, 3]
          in[0]: - -> b
    """
    if not diff:
        return _NOTHING
    return written([*_head(diff, sides, width), *_every_change(diff, sides)], palette, width)


def _head(diff: Diff, sides: Sides, width: int | None) -> list[Line]:
    """The counts, then what is said in one line of many changes; all of it, however narrow the terminal is."""
    return [Line(line) for text in (headline(diff, sides), *notes(diff, sides)) for line in wrapped(text, width)]


def _every_change(diff: Diff, sides: Sides) -> Iterator[Line]:
    facts = [change for change in diff.changes if change.subject not in {"node", "scope"}]
    if facts:
        yield from (BLANK, heading("(whole graph)"))
        # Parameters that lost their gradient before all else.
        for change in sorted(facts, key=lambda change: (change.subject != "cut", change.kind != "added")):
            yield from change_lines(change)
    rest = [change for change in diff.changes if change.subject in {"node", "scope"}]
    for place, changes in Places(diff, sides).sections(rest):
        yield from (BLANK, heading(module_name(place.path, gone=place.gone)))
        for change in changes:
            yield from change_lines(change)
