"""Input slots that gradient goes through no more, and those that it newly goes through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from gradir.diffs.changes import UNSET, Finding
from gradir.ir import Ref
from gradir.ir.edges import sources

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from gradir.diffs.changes import Change, Level
    from gradir.review.evidence import Evidence

_INPUTS: Final = "in"
_OPERATION: Final = ("op",)


def inputs(evidence: Evidence) -> Iterator[Finding]:
    """The input slots of matched nodes of one operation that had an edge and have none, and the other way round.

    Where a node has as many edges into other slots instead, its inputs only changed places, and none is lost. Nor is
    one that led to nothing but parameters that left the graph: the cuts tell these or, where both graphs know the
    modules, the model has them no more or does not train them.

    >>> from gradir.ir import Graph, Node
    >>> from gradir.review.reviewing import reviewed
    >>> a, b = (Graph.of([Node("x"), Node("neg:1", op="neg", inputs=(ref,))]) for ref in (Ref("x", 0), None))
    >>> [reviewed(*graphs).findings[0].text for graphs in ((a, b), (b, a))]
    ['1 lost input: in[0] of neg:1 in (top level)', '1 gained input: in[0] of neg:1 in (top level)']
    """
    sides: Sequence[tuple[str, Level, _Side]] = (
        ("lost-inputs", "error", "before"),
        ("gained-inputs", "change", "after"),
    )
    for kind, level, side in sides:
        found = list(_slots(evidence, side))
        if found:
            nodes, slots = zip(*found, strict=True)
            yield Finding(kind, level, subjects=nodes, count=len(found), details={"slots": list(slots)})


_Side = Literal["before", "after"]
"""The graph in which the slots have an edge."""

_OTHER: Final[Mapping[_Side, _Side]] = {"before": "after", "after": "before"}


def _slots(evidence: Evidence, side: _Side) -> Iterator[tuple[str, int]]:
    found = [(change, slots) for change in evidence.changes if (slots := _only_at(side, change))]
    told = _told(evidence, side) if found else frozenset()
    for change, slots in found:
        yield from ((change.id, slot) for slot, source in slots if source not in told)


def _only_at(side: _Side, change: Change) -> list[tuple[int, str]]:
    """The slots of a changed node with an edge on one side alone, each with the node of that graph that it leads to."""
    if change.subject != "node" or change.kind in {"added", "removed"}:
        return []
    slots, instead = [], 0
    for field in change.fields:
        if field.path == _OPERATION:
            return []
        if field.path[0] == _INPUTS:
            here, there = getattr(field, side), getattr(field, _OTHER[side])
            if isinstance(here, Ref) and there is None:
                slots.append((int(field.path[1]), here.id))
            instead += here in (None, UNSET) and isinstance(there, Ref)
    return slots if len(slots) > instead else []


def _told(evidence: Evidence, side: _Side) -> AbstractSet[str]:
    """What a graph has for the gradients of parameters alone that the other has not, where something else tells why."""
    here, there = evidence.graphs if side == "before" else evidence.graphs[::-1]
    kind = "removed" if side == "before" else "added"
    gone = {
        (change.was or change.id) if side == "before" else change.id
        for change in evidence.changes
        if change.subject == "node" and (change.kind == kind or any(field.path == ("role",) for field in change.fields))
    }
    if not (here.scopes and there.scopes):
        # The parameter may still be there, and trained.
        gone.intersection_update(name for cut in there.cuts for name in cut.names)
    found: set[str] = set()
    for node in here.nodes.values():
        feeding = sources(node)
        if node.id in gone if node.role == "parameter" else bool(feeding) and found.issuperset(feeding):
            found.add(node.id)
    return found
