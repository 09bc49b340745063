"""What many changes come to, in one line each, for the top of a report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradir.diff.report.freezing import freezing
from gradir.diff.report.uniform import uniform

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradir.diff.model import Diff
    from gradir.diff.report.places import Sides

__all__ = ["notes"]


def notes(diff: Diff, sides: Sides) -> Iterator[str]:
    """Which side has no data, what was frozen or unfrozen, and what makes up most of the changed nodes.

    >>> from gradir.diff.compare import compare
    >>> from gradir.ir import Graph, Node, TensorMeta
    >>> def cast(dtype): return Graph.of([Node(f"exp:{n}", outputs=(TensorMeta(dtype, (2,)),)) for n in range(1, 6)])
    >>> sides = cast("float32"), cast("bfloat16")
    >>> list(notes(compare(*sides), sides))
    ['all 5 changed nodes: dtype float32 -> bfloat16']
    """
    fake = [graph.producer.options.get("fake") is True for graph in sides]
    if fake[0] != fake[1]:
        nth = "first" if fake[0] else "second"
        yield f"without data: the {nth} graph (--fake), where torch runs some operations in other ways"
    yield from freezing(diff, sides)
    yield from uniform(diff)
