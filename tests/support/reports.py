"""The reports of a diff that there is already, given with both of its graphs or without any."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from gradir import registry
from gradir.diffs.changes import UNSET, Change, Diff, FieldChange
from gradir.diffs.compare import compare
from gradir.ir import Graph, Node
from gradir.review import conditions, frozen_parameters, report, text
from gradir.review import headline as top_lines
from gradir.review import outline as outlines
from gradir.review.comparison import Comparison
from gradir.review.wording import NO_COLOUR, Palette, words

Sides = tuple[Graph, Graph]
UNKNOWN: Sides = (Graph.of([]), Graph.of([]))


def words_of(field: FieldChange) -> tuple[str | None, str | None]:
    """Both values of a field as text; nothing where it is absent."""
    both = (field.before, field.after)
    return tuple(None if value is UNSET else words(field.path, value) for value in both)  # type: ignore[return-value]


def render_brief(diff: Diff, sides: Sides, *, palette: Palette = NO_COLOUR, width: int | None = None) -> str:
    return text.render_brief(Comparison.of(diff, *sides), palette=palette, width=width)


def render_text(
    diff: Diff, sides: Sides | None = None, *, palette: Palette = NO_COLOUR, width: int | None = None
) -> str:
    return text.render_text(Comparison.of(diff, *(sides or ())), palette=palette, width=width)


def markdown(a: Graph, b: Graph, diff: Diff) -> str:
    return registry.rendered("markdown", Comparison.of(diff, a, b), {})


def changed_part(a: Graph, b: Graph, diff: Diff, hops: int = 1) -> Graph:
    return Comparison.of(diff, a, b).changed_part(hops)


def union(a: Graph, b: Graph, diff: Diff) -> Graph:
    return Comparison.of(diff, a, b).union


def outline(diff: Diff, sides: Sides) -> outlines.Outline:
    return Comparison.of(diff, *sides).outline


def all_changes(outline: outlines.Outline) -> Iterator[Change]:
    """Every change that an outline tells, those of equal modules again for each."""
    for cut in outline.cuts:
        yield from (*cut.changes, *cut.nodes)
    yield from (*outline.facts, *outline.explained, *outline.following)
    for entry in outline.entries:
        yield from chain.from_iterable(entry.changes)
        for _, changes in entry.readers if isinstance(entry, outlines.Modules) else ():
            yield from chain.from_iterable(changes)


def headline(diff: Diff, sides: Sides) -> str:
    return top_lines.headline(Comparison.of(diff, *sides))


def notes(diff: Diff, sides: Sides) -> Sequence[str]:
    return top_lines.notes(Comparison.of(diff, *sides))


def freezing(diff: Diff, sides: Sides) -> Iterator[str]:
    return frozen_parameters.freezing(Comparison.of(diff, *sides))


def table(diff: Diff, sides: Sides) -> Iterator[str]:
    return report.table(Comparison.of(diff, *sides))


def findings(
    diff: Diff, sides: Sides, conditions_given: Sequence[conditions.Condition]
) -> Iterator[conditions.Finding]:
    return conditions.findings(Comparison.of(diff, *sides), conditions_given)


def fields_of(diff: Diff, record: str) -> dict[str, tuple[str | None, str | None]]:
    found = [change for change in diff.changes if change.id == record]
    assert len(found) == 1
    return {field.name: words_of(field) for field in found[0].fields}


def node_fields(before: dict[str, Any], after: dict[str, Any]) -> dict[str, tuple[str | None, str | None]]:
    graphs = [Graph.of([Node("x"), Node("n", **fields)]) for fields in (before, after)]
    return fields_of(compare(*graphs), "n")
