"""Parameters and input slots that get no gradient any more, or newly get one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gradir.diffs.changes import CAME, UNSET, Finding
from gradir.ir import Ref
from gradir.ir.cuts import cut_text, lacking_flow
from gradir.ir.ids import accumulated
from gradir.review.evidence import serving

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from gradir.diffs.changes import Change, Level
    from gradir.ir import Graph
    from gradir.review.evidence import Evidence

# The kind of cut of a parameter that an opaque function may reach.
_MAY_BE_REACHED: Final = "hidden"


def cuts(evidence: Evidence) -> Iterator[Finding]:
    """Report whether there are more cuts, then those of each kind with the nodes that went or came with them."""
    # New cuts stand first, since their parameters lost their gradient.
    changes = evidence.changes
    yield from _growth(evidence, [change for change in changes if change.subject == "cut"])
    groups: dict[tuple[str, str | int], list[int]] = {}
    for at, change in enumerate(changes):
        if change.subject == "cut" and change.kind in CAME:
            # A place is a finding of its own.
            groups.setdefault((change.kind, change.what if change.cut is None else at), []).append(at)
    nodes: dict[tuple[str, str], list[int]] = {}
    for at in evidence.left if groups else ():
        change = changes[at]
        if change.subject == "node" and change.kind in CAME:
            nodes.setdefault((change.kind, accumulated(change.id, evidence.words.accumulators)), []).append(at)
    for key in sorted(groups, key=lambda key: key[0]):
        other = "removed" if key[0] == "added" else "added"
        names = [changes[at].id for at in groups[key]]
        gone = [node for name in names if changes[groups[key][0]].cut is None for node in nodes.pop((other, name), ())]
        level: Level = "error" if key[0] == "added" else "change"
        yield Finding(f"cut-{key[0]}", level, tuple(names), (tuple(groups[key]), tuple(gone)), count=len(names))


def inputs(evidence: Evidence) -> Iterator[Finding]:
    """Report input slots of matched nodes of one operation that lost their edge, and those that gained one."""
    # If a node has as many edges into other slots instead, its inputs only changed places. An edge that led to nothing
    # but parameters that left the graph is not lost: the cuts name them, or the model has them no more or does not
    # train them.
    kinds: tuple[tuple[str, Level, str, str], ...] = (
        ("lost-inputs", "error", "before", "after"),
        ("gained-inputs", "change", "after", "before"),
    )
    for kind, level, side, other in kinds:
        found = [(change, slot) for change in evidence.changes for slot in _slots_of_one_side(change, side, other)]
        explained = _explained(evidence, side) if found else ()
        slots = [(change.id, slot) for change, (slot, source) in found if source not in explained]
        if slots:
            nodes, numbers = zip(*slots, strict=True)
            yield Finding(kind, level, subjects=nodes, count=len(slots), details={"slots": list(numbers)})


def _growth(evidence: Evidence, changes: list[Change]) -> Iterator[Finding]:
    """Count the unexpected cuts of both graphs, except for places that only one of them was asked for."""
    before, after = evidence.graphs
    had_none = _without_gradient(before)
    new, places = [], []
    for change in changes:
        keys = {field.path[0] for field in change.fields}
        cut, is_added = change.cut, change.kind == "added"
        if cut is None:
            # A parameter that may have had a gradient out of sight surely has none now.
            is_sure = "kind" in keys and change.what != _MAY_BE_REACHED
            if is_sure or (is_added and change.id not in had_none):
                new.append(change)
        elif not cut.meant and (is_added or "meant" in keys):
            places.append(cut)
    has_places = lacking_flow(before, after) is None
    known = [sum(not cut.meant for cut in graph.cuts if has_places or not cut.is_place) for graph in (before, after)]
    unsure = sum(change.what == _MAY_BE_REACHED for change in new)
    if new or places or known[0] != known[1]:
        yield Finding(
            "cuts",
            "error" if new or places else "change",
            tuple(cut_text(cut, count=True) for cut in places),
            before=known[0],
            after=known[1],
            count=max(len(new) + len(places), known[1] - known[0]),
            details={"no gradient": len(new) - unsure, "no gradient that can be seen": unsure},
        )


def _without_gradient(graph: Graph) -> set[str]:
    """Return the parameters that are not in a graph because of the places that cut them off."""
    names = {name for cut in graph.cuts if cut.is_place for name in cut.names}
    return names.difference(*(node.names for node in graph.nodes.values())) if names else names


def _slots_of_one_side(change: Change, side: str, other: str) -> list[tuple[int, str]]:
    """Return the slots of a changed node with an edge on one side alone, each with the node that it leads to."""
    if change.subject != "node" or change.kind in CAME or any(field.path == ("op",) for field in change.fields):
        return []
    slots, instead = [], 0
    for field in change.fields:
        if field.path[0] == "in":
            here, there = getattr(field, side), getattr(field, other)
            if isinstance(here, Ref) and there is None:
                slots.append((int(field.path[1]), here.id))
            instead += here in (None, UNSET) and isinstance(there, Ref)
    return slots if len(slots) > instead else []


def _explained(evidence: Evidence, side: str) -> Collection[str]:
    """Return the nodes of one graph that serve only parameters whose absence from the other is explained elsewhere."""
    is_first = side == "before"
    here, there = evidence.graphs if is_first else evidence.graphs[::-1]
    kind = "removed" if is_first else "added"
    gone = {
        (change.was or change.id) if is_first else change.id
        for change in evidence.changes
        if change.subject == "node" and (change.kind == kind or any(field.path == ("role",) for field in change.fields))
    }
    if not (here.scopes and there.scopes):
        # The parameter may still be there, and trained.
        gone.intersection_update(name for cut in there.cuts for name in cut.names)
    return serving(here, lambda node: node.id in gone)
