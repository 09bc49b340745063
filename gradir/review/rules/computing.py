"""Graphs that compute the same in other operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradir.diffs.changes import Finding
from gradir.diffs.computing import computes_the_same

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradir.review.evidence import Evidence


def computing(evidence: Evidence) -> Iterator[Finding]:
    """That both graphs compute the same result, where both are of a forward, which has all operands, and nodes changed.

    ``subjects`` are the parameters that one of the graphs has transposed, ``count`` counts the constants.

    >>> from gradir.ir import Builder, Producer, TensorMeta
    >>> from gradir.review.reviewing import reviewed
    >>> def graph(twice):
    ...     b, shape = Builder(), [TensorMeta("float32", (2, 2))]
    ...     x = b.tensor("x", *shape, role="input")
    ...     y = b.function("t", [b.function("t", [x], shape)], shape) if twice else x
    ...     b.output(b.function("exp", [y], shape))
    ...     return b.build(producer=Producer(framework="torch", options={"graph": "forward"}))
    >>> reviewed(graph(False), graph(True)).findings[0].text
    'computes the same result in other operations'
    """
    is_forward = all(graph.producer.options.get("graph") == "forward" for graph in evidence.graphs)
    nodes = [change for change in evidence.changes if change.subject == "node"]
    is_edited = any(change.kind != "changed" or change.fields for change in nodes)
    if not (is_forward and is_edited) or any(graph.cuts for graph in evidence.graphs):
        return
    same = computes_the_same(*evidence.graphs, evidence.matched)
    if same is not None:
        yield Finding("same-result", "note", same.transposed, count=same.constants)
