"""Parameters that became one, as a head that takes the weight of the embedding, and one that became several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gradir.review.name_ranges import ranges

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradir.ir import Graph
    from gradir.review.comparison import Comparison

__all__ = ["ties"]

_MOST: Final = 4


def ties(comparison: Comparison) -> Iterator[str]:
    """One line for the parameters that were tied, and one for those that were untied.

    >>> from gradir.ir import Graph, Node
    >>> from gradir.review.comparison import Comparison
    >>> def weight(*names): return Node(names[0], role="parameter", names=names)
    >>> a, b = Graph.of([weight("a.w"), weight("b.w")]), Graph.of([weight("a.w", "b.w")])
    >>> [*ties(Comparison(a, b)), *ties(Comparison(b, a))]
    ['tied: {a,b}.w', 'untied: {a,b}.w']
    """
    tied, untied = [], []
    fields = [
        field
        for change in comparison.diff.changes
        if change.subject == "node" and change.what == "parameter"
        for field in change.fields
        if field.path == ("names",)
    ]
    known = [_parameter_names(graph) for graph in comparison.graphs] if fields else []
    for field in fields:
        before, after = (value if isinstance(value, tuple) else () for value in (field.before, field.after))
        if len(after) > 1 and known[0].intersection(after).difference(before):
            tied.append(ranges(after))
        if len(before) > 1 and known[1].intersection(before).difference(after):
            untied.append(ranges(before))
    for what, found in (("tied", tied), ("untied", untied)):
        if found:
            more = f" and {len(found) - _MOST:,} more" if len(found) > _MOST else ""
            yield f"{what}: {', '.join(found[:_MOST])}{more}"


def _parameter_names(graph: Graph) -> frozenset[str]:
    return frozenset(name for node in graph.nodes.values() if node.role == "parameter" for name in node.names)
