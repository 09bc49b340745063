"""How the two graphs were made, where that decides what a comparison of them can say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gradir.diffs.changes import Finding
from gradir.ir.cuts import lacking_flow
from gradir.ir.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradir.ir import Graph
    from gradir.review.evidence import Evidence

_FEWEST: Final = 20
"""Two graphs of fewer nodes are read as they are."""

_IN_COMMON: Final = 10
"""Of two models, less than one node in so many is the same."""

_OTHER: Final = {("op",), ("role",)}


def frameworks(evidence: Evidence) -> Iterator[Finding]:
    """What two frameworks share, a side without data or without flow, and two graphs with hardly a node in common.

    >>> from gradir.ir import Graph, Node, Producer
    >>> from gradir.review.reviewing import reviewed
    >>> a, b = (Graph.of([Node(name)], producer=Producer(framework=name)) for name in ("torch", "jax"))
    >>> next(found.text for found in reviewed(a, b).findings if found.kind == "frameworks")
    'the frameworks differ: torch and jax have other words; --vocabulary compares in words that both share'
    """
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
    common = _nodes_in_common(evidence)
    fewest = min(len(graph.nodes) for graph in evidence.graphs)
    if evidence.changes and fewest >= _FEWEST and common * _IN_COMMON < fewest:
        yield Finding("two-models", "note", before=len(before.nodes), after=len(after.nodes), count=common)
    lacking = lacking_flow(before, after)
    if lacking is not None and any(change.subject == "graph" and change.id == "flow" for change in evidence.changes):
        yield Finding("without-flow", "note", details={"side": int(lacking is after)})


def _nodes_in_common(evidence: Evidence) -> int:
    """How many nodes both graphs have, whatever else of them changed than what they do."""
    others = sum(
        change.kind == "added" or any(field.path in _OTHER for field in change.fields if change.kind != "removed")
        for change in evidence.changes
        if change.subject == "node"
    )
    return len(evidence.graphs[1].nodes) - others


def _in_common(evidence: Evidence) -> dict[str, Any]:
    """By role, how many nodes both graphs have, and how many are the same in both."""
    other = {
        change.id for change in evidence.changes if change.subject == "node" and change.kind in ("added", "changed")
    }
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
