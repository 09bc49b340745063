"""A diff as text for a terminal or a review."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradir.review.headline import headline
from gradir.review.lines import ANSI, BLANK, NO_COLOUR, Line, Palette, change_lines, heading, module_name, written
from gradir.review.outline_text import brief_lines
from gradir.review.wrap import wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradir.review.comparison import Comparison

__all__ = ["ANSI", "NO_COLOUR", "Palette", "render_brief", "render_text"]

_NOTHING = "no difference\n"


def render_brief(comparison: Comparison, *, palette: Palette = NO_COLOUR, width: int | None = None) -> str:
    """The counts on the first line, then what a reviewer has to know, in the order of the model, each thing once.

    Cuts stand first. A module that came or went as a whole is one line, and modules with the same changes are one
    group; where that is long, a list of what changed in which modules stands before it. The
    counts and the notes below them are wrapped at ``width``, any other line is cut short there with ``…``.

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
        return _NOTHING
    return written([*_head(comparison, width), *brief_lines(comparison.outline)], palette, width)


def render_text(comparison: Comparison, *, palette: Palette = NO_COLOUR, width: int | None = None) -> str:
    """The counts on the first line, then every change, by module; ``width`` is that of `render_brief`.

    Signs: ``+`` added, ``-`` removed, ``~`` changed, ``>`` renamed, ``^`` moved to another module. Where the graphs are
    known, modules stand in the order of the model.

    >>> from gradir.diffs.model import Change, Diff, FieldChange, Totals
    >>> from gradir.ir import Ref
    >>> from gradir.review.comparison import Comparison
    >>> change = Change("changed", "node", "fc/addmm:1", "fc", "addmm", (FieldChange(("in", 0), None, Ref("b", 0)),))
    >>> print(render_text(Comparison.of(Diff(Totals(2, 1), Totals(2, 2), (change,)))), end="")
    +0 -0 ~1 nodes; edges +1
    <BLANKLINE>
    fc
      ~ fc/addmm:1  addmm
          in[0]: - -> b
    """
    if not comparison.diff:
        return _NOTHING
    return written([*_head(comparison, width), *_every_change(comparison)], palette, width)


def _head(comparison: Comparison, width: int | None) -> list[Line]:
    """The counts, then what is said in one line of many changes; all of it, however narrow the terminal is."""
    return [Line(line) for text in (headline(comparison), *comparison.notes) for line in wrapped(text, width)]


def _every_change(comparison: Comparison) -> Iterator[Line]:
    changes = comparison.diff.changes
    facts = [change for change in changes if change.subject not in {"node", "scope"}]
    if facts:
        yield from (BLANK, heading("(whole graph)"))
        # Parameters that lost their gradient before all else.
        for change in sorted(facts, key=lambda change: (change.subject != "cut", change.kind != "added")):
            yield from change_lines(change)
    rest = [change for change in changes if change.subject in {"node", "scope"}]
    for place, found in comparison.places.sections(rest):
        yield from (BLANK, heading(module_name(place.path, gone=place.gone)))
        for change in found:
            yield from change_lines(change)
