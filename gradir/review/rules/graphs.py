"""Findings about both graphs as a whole: what they compute, how they were made, and their totals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gradir.diffs.changes import Finding
from gradir.diffs.computing import computes_the_same
from gradir.ir.cuts import lacking_flow
from gradir.ir.model import MOST
from gradir.ir.saved import unknown_slots
from gradir.ir.text import printable
from gradir.review.kinds import TOTALS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradir.ir import Graph
    from gradir.review.evidence import Evidence

_FEWEST: Final = 20
"""Two graphs of fewer nodes are never two different models."""

_IN_COMMON: Final = 10
"""Two different models have less than one node in so many in common."""

_OTHER: Final = {("op",), ("role",)}


def computing(evidence: Evidence) -> Iterator[Finding]:
    """Report that two edited forward graphs compute the same result.

    ``subjects`` are the parameters that one graph has transposed, and ``count`` is the number of constants.
    """
    is_forward = all(graph.producer.options.get("graph") == "forward" for graph in evidence.graphs)
    nodes = [change for change in evidence.changes if change.subject == "node"]
    is_edited = any(change.kind != "changed" or change.fields for change in nodes)
    if not (is_forward and is_edited) or any(graph.cuts for graph in evidence.graphs):
        return
    same = computes_the_same(*evidence.graphs, evidence.matched)
    if same is not None:
        yield Finding("same-result", "note", same.transposed, count=same.constants)


def frameworks(evidence: Evidence) -> Iterator[Finding]:
    """Report what two frameworks share, a graph without data or flow, and graphs with hardly a node in common."""
    before, after = evidence.graphs
    names = tuple(_framework(graph) for graph in evidence.graphs)
    made = [graph.producer.framework for graph in evidence.graphs]
    sides = evidence.diff.sides
    if sides is not None and sides.in_shared_words:
        yield Finding("shared-words", "note", names, details=_in_common(evidence))
    elif all(made) and made[0] != made[1]:
        yield Finding("frameworks", "note", names)
    without = [graph.producer.options.get("fake") is True for graph in evidence.graphs]
    if without[0] != without[1]:
        at = without.index(True)
        yield Finding("without-data", "note", (made[at] or "the framework",), details={"side": at})
    common = len(after.nodes) - sum(
        change.kind == "added" or (change.kind != "removed" and any(field.path in _OTHER for field in change.fields))
        for change in evidence.changes
        if change.subject == "node"
    )
    fewest = min(len(graph.nodes) for graph in evidence.graphs)
    if evidence.changes and fewest >= _FEWEST and common * _IN_COMMON < fewest:
        yield Finding("two-models", "note", before=len(before.nodes), after=len(after.nodes), count=common)
    lacking = lacking_flow(before, after)
    if lacking is not None and any(change.subject == "graph" and change.id == "flow" for change in evidence.changes):
        yield Finding("without-flow", "note", details={"side": int(lacking is after)})


def totals(evidence: Evidence) -> Iterator[Finding]:
    """Report each total that differs, or that may since it is unknown or beyond counting.

    ``details`` has the numbers of saved slots of unknown size, which no total counts.
    """
    for kind, name in TOTALS.items():
        before, after = (getattr(side, name) for side in (evidence.diff.before, evidence.diff.after))
        is_saved = kind == "saved-bytes"
        slots = [unknown_slots(graph.nodes.values()) for graph in evidence.graphs] if is_saved else [0, 0]
        if before != after or any(slots) or min(before, after) >= MOST:
            yield Finding(kind, "note", before=before, after=after, details={"unknown": slots} if any(slots) else {})


def _in_common(evidence: Evidence) -> dict[str, Any]:
    """Count by role the nodes that are the same in both graphs, and those of each graph."""
    other = {each.id for each in evidence.changes if each.subject == "node" and each.kind in ("added", "changed")}
    after = evidence.graphs[1].nodes
    found = {}
    for role in ("parameter", "function"):
        numbers = [sum(node.role == role for node in graph.nodes.values()) for graph in evidence.graphs]
        if any(numbers):
            same = sum(after[node].role == role and node not in other for node in evidence.matched.values())
            found[role] = [same, *numbers]
    return found


def _framework(graph: Graph) -> str:
    made = graph.producer
    return printable(f"{made.framework} {made.framework_version}".strip() or "a graph made by hand")
