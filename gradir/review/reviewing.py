"""Compare two graphs and report the changes as findings."""

from __future__ import annotations

import dataclasses
from functools import cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from gradir.diffs import compare, matching
from gradir.diffs.changes import Sides
from gradir.diffs.correspondence import Correspondence
from gradir.diffs.hunks import script
from gradir.diffs.ignoring import check_names, drop_framework_details, drop_identities, ignore_fields, normalize_diff
from gradir.diffs.modules import ChangedModule
from gradir.gcpause import pause_gc
from gradir.progress import stage
from gradir.review.evidence import Evidence
from gradir.review.kinds import KINDS, SECTIONS, text_of
from gradir.review.rules import compositions, graphs, modules, parameters, sharing
from gradir.review.summary import summary
from gradir.vocabulary import vocabulary_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gradir.diffs.changes import Diff, Finding
    from gradir.diffs.modules import Outline
    from gradir.ir import Graph

# An earlier rule takes the changes that it explains out of `Evidence.left`.
_RULES: Final[tuple[Callable[[Evidence], Iterable[Finding]], ...]] = (
    graphs.report_same_result,
    graphs.report_graph_kinds,
    parameters.report_inputs,
    parameters.report_unowned,
    graphs.report_frameworks,
    parameters.report_frozen,
    sharing.report_shared_modules,
    parameters.report_tied,
    graphs.report_common_change,
    compositions.report_compositions,
    modules.report_whole_modules,
    parameters.report_cuts,
    modules.report_graph_changes,
    graphs.report_hooked,
    graphs.report_tensor_changes,
    modules.report_equal_modules,
    graphs.report_totals,
)


def review_graphs(
    before: Graph, after: Graph, *, ignore: Sequence[str] = (), normalize: bool = False, vocabulary: bool = False
) -> Diff:
    """Return the diff of two graphs with its findings; the options are those of `gradir.diff`.

    Raises:
        GradirError: a field to ignore does not exist.
    """
    check_names(ignore)
    if vocabulary:
        before, after = _translate(before, after)
    whole = before, after
    if normalize:
        before, after = map(drop_identities, whole)
    names = cache(partial(_match_names, before, after))
    with stage("comparing the nodes"):
        diff = compare.compare(before, after, names)
    if vocabulary:
        diff = drop_framework_details(diff, before.nodes, after.nodes)
    if ignore or normalize:
        diff = ignore_fields(diff, ignore)
        diff = normalize_diff(diff, vocabulary_of(before, after)) if normalize else diff
    if before is not whole[0] or after is not whole[1]:
        # A patch applies to the original graphs.
        diff = replace(diff, script=script(*whole))
    return add_findings(diff, Sides(before, after, names, vocabulary))


def add_findings(diff: Diff, sides: Sides) -> Diff:
    """Return a diff with the findings of each rule, and with its graphs."""
    with_graphs = diff.with_sides(sides)
    if not (diff.changes or diff.script or diff.before != diff.after or sides.in_shared_words):
        return with_graphs
    with stage("grouping the changes"), pause_gc():
        evidence = Evidence.of(with_graphs)
        found: list[Finding] = []
        for rule in _RULES:
            findings = list(rule(evidence))
            explained = {at for finding in findings for at in chain.from_iterable(finding.changes)}
            evidence = dataclasses.replace(evidence, left=[at for at in evidence.left if at not in explained])
            found += findings
        found = [
            replace(each, text=text_of(each, evidence.changes))
            for each in _sort_findings(found, evidence.wholes.outline)
        ]
        # The summary needs the other findings, and follows those of the section "top".
        at = sum(KINDS[finding.kind].section == "top" for finding in found)
        found[at:at] = summary(evidence, found)
    return replace(diff, findings=tuple(found)).with_sides(sides)


def _sort_findings(findings: Sequence[Finding], outline: Outline) -> list[Finding]:
    """Sort findings about the whole graph first, then by module in the order of the model, each before its readers."""
    places: list[tuple[int, int]] = []
    for finding in findings:
        position = 0
        if finding.kind == "same":
            position = outline.position(ChangedModule(finding.subjects[0], "gone" in finding.details))
        elif finding.kind in {"module-added", "module-removed"}:
            position = outline.position(outline.module(finding.subjects[0], added=finding.kind == "module-added"))
        section = SECTIONS.index(KINDS[finding.kind].section)
        places.append(places[-1] if finding.kind == "reads" else (section, position))
    return [findings[at] for at in sorted(range(len(findings)), key=places.__getitem__)]


def _match_names(before: Graph, after: Graph) -> Correspondence:
    with stage("matching the nodes"), pause_gc():
        return Correspondence(before, after, matching.match(before, after))


def _translate(before: Graph, after: Graph) -> tuple[Graph, Graph]:
    """Return both graphs with shared operation names, and modules if both record them for operations."""
    from gradir.passes.shared_words import has_scoped_operations, translate_to_shared_terms

    with stage("translating operations"):
        with_modules = has_scoped_operations(before) and has_scoped_operations(after)
        translate = partial(translate_to_shared_terms, with_modules=with_modules)
        return translate(before), translate(after)
