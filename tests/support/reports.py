"""The reports of a diff that there is already, given with both of its graphs or without any."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from gradir import registry
from gradir.diffs.changes import Change, Diff, FieldChange, Finding, Sides
from gradir.diffs.compare import compare
from gradir.diffs.correspondence import Correspondence
from gradir.diffs.matching import match
from gradir.ir import Graph, Node
from gradir.review import conditions, report, text
from gradir.review.change_list import list_changes
from gradir.review.kinds import sections
from gradir.review.reviewing import add_findings
from gradir.review.united import UnionGraph
from gradir.review.wording import NO_COLOUR, Palette, field_value_text

Graphs = tuple[Graph, Graph]
UNKNOWN: Graphs = (Graph.of([]), Graph.of([]))
MODULES = frozenset({"same", "module-added", "module-removed"})


def attach_findings(diff: Diff, graphs: Graphs) -> Diff:
    """A diff that there is already, with its findings and both graphs."""
    return add_findings(diff, Sides(*graphs, lambda: Correspondence(*graphs, match(*graphs))))


def findings_of_kinds(diff: Diff, *kinds: str) -> list[Finding]:
    return [finding for finding in diff.findings if finding.kind in kinds]


def entries(diff: Diff) -> list[Finding]:
    """What is told of modules, but for what reads from them."""
    return findings_of_kinds(diff, *MODULES)


def changes_in(diff: Diff, finding: Finding) -> list[list[Change]]:
    """The changes of each subject of a finding."""
    return [[diff.changes[at] for at in indices] for indices in finding.changes]


def slots(diff: Diff, kind: str) -> list[tuple[str, int]]:
    """The input slots that were lost or gained."""
    return [
        slot
        for each in findings_of_kinds(diff, kind)
        for slot in zip(each.subjects, each.details["slots"], strict=True)
    ]


def all_changes(diff: Diff) -> Iterator[Change]:
    """Every change that the findings explain, those of equal modules again for each."""
    for finding in diff.findings:
        yield from chain.from_iterable(changes_in(diff, finding))


def words_of(field: FieldChange) -> tuple[str | None, str | None]:
    """Both values of a field as text; nothing where it is absent."""
    both = (field.before, field.after)
    return tuple(None if value is UNSET else field_value_text(field.path, value) for value in both)  # type: ignore[return-value]


def without_sentence(diff: Diff) -> Diff:
    """A diff that begins with the line of counts, and tells all notes."""
    assert diff.sides is not None
    return replace(diff, findings=tuple(each for each in diff.findings if each.kind != "summary")).with_sides(
        diff.sides
    )


def render_details(diff: Diff, graphs: Graphs, *, palette: Palette = NO_COLOUR, width: int | None = None) -> str:
    return text.render(without_sentence(attach_findings(diff, graphs)), "details", palette=palette, width=width)


def render_text(
    diff: Diff, graphs: Graphs | None = None, *, palette: Palette = NO_COLOUR, width: int | None = None
) -> str:
    known = without_sentence(attach_findings(diff, graphs or UNKNOWN))
    # Without graphs as one that was read.
    return text.render(known if graphs else replace(known), "full", palette=palette, width=width)


def markdown(a: Graph, b: Graph, diff: Diff) -> str:
    return registry.render("markdown", attach_findings(diff, (a, b)), {})


def cut_changed_part(a: Graph, b: Graph, diff: Diff, hops: int = 1) -> Graph:
    return UnionGraph(attach_findings(diff, (a, b))).changed_part(hops)


def union(a: Graph, b: Graph, diff: Diff) -> Graph:
    return UnionGraph(attach_findings(diff, (a, b))).graph


def list_diff_changes(diff: Diff) -> list[Any]:
    assert diff.sides is not None
    return list_changes(diff, diff.sides, UnionGraph(diff))


def headline(diff: Diff, graphs: Graphs) -> str:
    return text.headline(attach_findings(diff, graphs))


def notes(diff: Diff) -> list[str]:
    """The lines below the first one but for the number of changes that only follow."""
    return [finding.text for finding in sections(diff)["note"] if finding.kind != "following"]


def table(diff: Diff, graphs: Graphs) -> Iterator[str]:
    return report.table(attach_findings(diff, graphs))


def outcomes(
    diff: Diff, graphs: Graphs, conditions_given: Sequence[conditions.Condition]
) -> Iterator[conditions.Outcome]:
    return conditions.judge_conditions(attach_findings(diff, graphs), conditions_given)


def fields_of(diff: Diff, record: str) -> dict[str, tuple[str | None, str | None]]:
    found = [change for change in diff.changes if change.id == record]
    assert len(found) == 1
    return {field.name: words_of(field) for field in found[0].fields}


def node_fields(before: dict[str, Any], after: dict[str, Any]) -> dict[str, tuple[str | None, str | None]]:
    graphs = [Graph.of([Node("x"), Node("n", **fields)]) for fields in (before, after)]
    return fields_of(compare(*graphs), "n")
