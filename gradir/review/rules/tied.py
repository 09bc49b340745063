"""Parameters that became one, and those that became several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradir.diffs.changes import Finding
from gradir.ir.name_ranges import ranges

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradir.ir import Graph
    from gradir.review.evidence import Evidence


def tied(evidence: Evidence) -> Iterator[Finding]:
    """The parameters that were tied, and those that were untied.

    >>> from gradir.ir import Graph, Node
    >>> from gradir.review.reviewing import reviewed
    >>> def weight(*names): return Node(names[0], role="parameter", names=names)
    >>> a, b = Graph.of([weight("a.w"), weight("b.w")]), Graph.of([weight("a.w", "b.w")])
    >>> [found.text for graphs in ((a, b), (b, a)) for found in reviewed(*graphs).findings if "tied" in found.kind]
    ['tied: {a,b}.w', 'untied: {a,b}.w']
    """
    fields = [
        field
        for change in evidence.changes
        if change.subject == "node" and change.what == "parameter"
        for field in change.fields
        if field.path == ("names",)
    ]
    known = [_parameter_names(graph) for graph in evidence.graphs] if fields else []
    both = [
        tuple(value if isinstance(value, tuple) else () for value in (field.before, field.after)) for field in fields
    ]
    became = [
        ranges(after) for before, after in both if len(after) > 1 and known[0].intersection(after).difference(before)
    ]
    were = [
        ranges(before) for before, after in both if len(before) > 1 and known[1].intersection(before).difference(after)
    ]
    for kind, names in (("tied", became), ("untied", were)):
        if names:
            yield Finding(kind, "change", tuple(names))


def _parameter_names(graph: Graph) -> frozenset[str]:
    return frozenset(name for node in graph.nodes.values() if node.role == "parameter" for name in node.names)
