"""The rules that make findings of changes, one file each, in the order in which they may explain a change.

A rule is a function from the evidence to its findings. It may explain what stands in `Evidence.left`, and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gradir.review.rules.computing import computing
from gradir.review.rules.cuts import cuts
from gradir.review.rules.for_all import for_all
from gradir.review.rules.frameworks import frameworks
from gradir.review.rules.frozen import frozen
from gradir.review.rules.inputs import inputs
from gradir.review.rules.layers import layers
from gradir.review.rules.modules import modules
from gradir.review.rules.tensors import hooked, tensors
from gradir.review.rules.tied import tied
from gradir.review.rules.totals import totals
from gradir.review.rules.unowned import unowned
from gradir.review.rules.whole_graph import whole_graph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gradir.diffs.changes import Finding
    from gradir.review.evidence import Evidence

__all__ = ["RULES"]

RULES: Final[tuple[Callable[[Evidence], Iterable[Finding]], ...]] = (
    computing,
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
