"""Input slots that gradient goes through no more, and those that it newly goes through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from gradir.diffs.changes import UNSET
from gradir.ir import Ref
from gradir.ir.edges import sources
from gradir.ir.ids import split_id
from gradir.ir.name_ranges import ranges
from gradir.review.wording import module_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from gradir.diffs.changes import Change
    from gradir.review.comparison import Comparison

__all__ = ["LostInput", "gained_inputs", "lost_inputs", "lost_inputs_text"]

_INPUTS: Final = "in"
_OPERATION: Final = ("op",)
_MOST: Final = 4


class LostInput(NamedTuple):
    """An input slot of a node of the second graph."""

    node_id: str
    slot: int


def lost_inputs(comparison: Comparison) -> Iterator[LostInput]:
    """The input slots of matched nodes of one operation that had an edge and have none.

    Where a node has as many edges into other slots instead, its inputs only changed places, and none is lost. Nor is
    one that led to nothing but parameters that left the graph: the cuts tell these or, where both graphs know the
    modules, the model has them no more or does not train them.

    >>> from gradir.ir import Graph, Node
    >>> from gradir.review.comparison import Comparison
    >>> a, b = (Graph.of([Node("x"), Node("neg:1", op="neg", inputs=(ref,))]) for ref in (Ref("x", 0), None))
    >>> list(lost_inputs(Comparison(a, b)))
    [LostInput(node_id='neg:1', slot=0)]
    """
    yield from _slots(comparison, "before")


def gained_inputs(comparison: Comparison) -> Iterator[LostInput]:
    """The input slots of matched nodes that had no edge and have one, as those that the way back would lose.

    >>> from gradir.ir import Graph, Node
    >>> from gradir.review.comparison import Comparison
    >>> a, b = (Graph.of([Node("x"), Node("neg:1", op="neg", inputs=(ref,))]) for ref in (None, Ref("x", 0)))
    >>> list(gained_inputs(Comparison(a, b)))
    [LostInput(node_id='neg:1', slot=0)]
    """
    yield from _slots(comparison, "after")


_Side = Literal["before", "after"]
"""The graph in which the slots have an edge."""

_OTHER: Final[Mapping[_Side, _Side]] = {"before": "after", "after": "before"}


def _slots(comparison: Comparison, side: _Side) -> Iterator[LostInput]:
    found = [(change, slots) for change in comparison.diff.changes if (slots := _only_at(side, change))]
    told = _told(comparison, side) if found else frozenset()
    for change, slots in found:
        yield from (LostInput(change.id, slot) for slot, source in slots if source not in told)


def lost_inputs_text(lost: Sequence[LostInput]) -> str:
    """The slots, those of the same name in several modules together.

    >>> lost_inputs_text([LostInput(f"h.{n}/add:1", 0) for n in range(6)])
    'in[0] of add:1 in h.{0..5}'
    """
    together: dict[tuple[str, int], list[str]] = {}
    for node_id, slot in lost:
        path, name = split_id(node_id)
        together.setdefault((name, slot), []).append(path)
    texts = []
    for (name, slot), paths in together.items():
        where = ranges(paths) if len(paths) > 1 and all(paths) else ", ".join(map(module_name, paths))
        texts.append(f"in[{slot}] of {name} in {where}")
    more = [f"{len(texts) - _MOST:,} more"] if len(texts) > _MOST else []
    return ", ".join([*texts[:_MOST], *more])


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


def _told(comparison: Comparison, side: _Side) -> AbstractSet[str]:
    """What a graph has for the gradients of parameters alone that the other has not, where something else tells why."""
    here, there = (getattr(comparison, name) for name in (side, _OTHER[side]))
    kind = "removed" if side == "before" else "added"
    gone = {
        (change.was or change.id) if side == "before" else change.id
        for change in comparison.diff.changes
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
