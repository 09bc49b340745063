"""The rules that make findings of changes, in the order in which they may explain a change.

A rule is a function from the evidence to its findings. It may explain what stands in `Evidence.left`, and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gradir.review.rules.graphs import computing, for_all, frameworks, graph_kinds, hooked, tensors, totals
from gradir.review.rules.modules import layers, modules, whole_graph
from gradir.review.rules.parameters import cuts, frozen, inputs, tied, unowned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gradir.diffs.changes import Finding
    from gradir.review.evidence import Evidence

__all__ = ["RULES"]

RULES: Final[tuple[Callable[[Evidence], Iterable[Finding]], ...]] = (
    computing,
    graph_kinds,
    inputs,
    unowned,
    frameworks,
    frozen,
    tied,
    for_all,
    modules,
    cuts,
    whole_graph,
    hooked,
    tensors,
    layers,
    totals,
)
