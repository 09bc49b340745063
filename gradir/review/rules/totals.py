"""Totals of the graph that became others, which conditions of ``--fail-on`` name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gradir.diffs.changes import Finding
from gradir.ir.model import MOST
from gradir.ir.saved import unknown_slots
from gradir.review.kinds import TOTALS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gradir.review.evidence import Evidence

_SAVED: Final = "saved-bytes"


def totals(evidence: Evidence) -> Iterator[Finding]:
    """Each total that differs, or that may.

    One that is beyond counting on both sides may have grown by any number. Saved bytes leave out slots of unknown size,
    of which ``details`` has the numbers.

    >>> from gradir.ir import Graph, Node
    >>> from gradir.review.reviewing import reviewed
    >>> found = {each.kind: each for each in reviewed(Graph.of([]), Graph.of([Node("x")])).findings}
    >>> found["nodes"].before, found["nodes"].after
    (0, 1)
    """
    for kind, name in TOTALS.items():
        before, after = (getattr(side, name) for side in (evidence.diff.before, evidence.diff.after))
        slots = [unknown_slots(graph.nodes.values()) for graph in evidence.graphs] if kind == _SAVED else [0, 0]
        if before != after or any(slots) or min(before, after) >= MOST:
            yield Finding(kind, "note", before=before, after=after, details={"unknown": slots} if any(slots) else {})
