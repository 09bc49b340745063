"""What many changes come to, in one line each, for the top of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradir.review.frozen_parameters import freezing
from gradir.review.shared_changes import uniform

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradir.review.comparison import Comparison

__all__ = ["notes"]


def notes(comparison: Comparison) -> Iterator[str]:
    """Which side has no data, what was frozen or unfrozen, and what makes up most of the changed nodes.

    >>> from gradir.ir import Graph, Node, TensorMeta
    >>> from gradir.review.comparison import Comparison
    >>> def cast(dtype): return Graph.of([Node(f"exp:{n}", outputs=(TensorMeta(dtype, (2,)),)) for n in range(1, 6)])
    >>> list(notes(Comparison(cast("float32"), cast("bfloat16"))))
    ['all 5 changed nodes: dtype float32 -> bfloat16']
    """
    fake = [graph.producer.options.get("fake") is True for graph in comparison.graphs]
    if fake[0] != fake[1]:
        nth, graph = ("first", comparison.before) if fake[0] else ("second", comparison.after)
        framework = graph.producer.framework or "the framework"
        yield f"without data: the {nth} graph (--fake), where {framework} runs some operations in other ways"
    yield from freezing(comparison)
    yield from uniform(comparison.diff)
