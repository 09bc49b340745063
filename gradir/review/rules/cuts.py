"""Cuts that came or went: the parameters that get no gradient any more, or again, and the places that cut them off."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gradir.diffs.changes import Finding
from gradir.ir.cuts import cut_text, lacking_flow
from gradir.ir.ids import accumulated

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gradir.diffs.changes import Change, Level
    from gradir.ir import Cut, Graph
    from gradir.review.evidence import Evidence

_CAME: Final = frozenset({"added", "removed"})
_MAY_BE_REACHED: Final = "hidden"
"""The kind of cut of a parameter that an opaque function may reach."""


def cuts(evidence: Evidence) -> Iterator[Finding]:
    """Whether there are more cuts, and then those of each kind with the nodes that went or came with them.

    Cuts that came are parameters that have no gradient any more, so they stand first.

    >>> from gradir.ir import Cut, Graph, Node
    >>> from gradir.review.reviewing import reviewed
    >>> a, b = Graph.of([Node("x")]), Graph.of([], [], [Cut("unreached", ("x",))])
    >>> [(found.kind, found.text) for found in reviewed(a, b).findings if "cut" in found.kind]
    [('cuts', '1 parameter now gets no gradient'), ('cut-added', 'cut x  unreached, 1 node removed')]
    """
    changes = evidence.changes
    yield from _growth(evidence, [change for change in changes if change.subject == "cut"])
    groups: dict[tuple[str, str | int], list[int]] = {}
    for at, change in enumerate(changes):
        if change.subject == "cut" and change.kind in _CAME:
            # A place is a finding of its own.
            groups.setdefault((change.kind, change.what if change.cut is None else at), []).append(at)
    nodes: dict[tuple[str, str], list[int]] = {}
    for at in evidence.left if groups else ():
        change = changes[at]
        if change.subject == "node" and change.kind in _CAME:
            nodes.setdefault((change.kind, accumulated(change.id, evidence.words.accumulators)), []).append(at)
    for key in sorted(groups, key=lambda key: key[0]):
        other = "removed" if key[0] == "added" else "added"
        names = [changes[at].id for at in groups[key]]
        gone = [node for name in names if changes[groups[key][0]].cut is None for node in nodes.pop((other, name), ())]
        level: Level = "error" if key[0] == "added" else "change"
        yield Finding(f"cut-{key[0]}", level, tuple(names), (tuple(groups[key]), tuple(gone)), count=len(names))


def _growth(evidence: Evidence, changes: Iterable[Change]) -> Iterator[Finding]:
    """How many more cuts there are that nothing means; a place that one side alone was asked for is none."""
    before, after = evidence.graphs
    had_none = _without_gradient(before)
    new = [
        change
        for change in changes
        if change.cut is None and ((change.kind == "added" and change.id not in had_none) or _is_sure_now(change))
    ]
    places = [cut for change in changes if (cut := change.cut) is not None and _is_new(change, cut)]
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


def _is_new(change: Change, cut: Cut) -> bool:
    """Whether a place newly cuts what nothing means to be cut, or that nothing means any more."""
    return not cut.meant and (change.kind == "added" or any(field.path == ("meant",) for field in change.fields))


def _is_sure_now(change: Change) -> bool:
    """Whether a parameter that may have had a gradient, out of sight, surely has none now."""
    return any(field.path == ("kind",) for field in change.fields) and change.what != _MAY_BE_REACHED


def _without_gradient(graph: Graph) -> set[str]:
    """The parameters that places of a graph cut off for good, since they are not in it."""
    names = {name for cut in graph.cuts if cut.is_place for name in cut.names}
    return names.difference(*(node.names for node in graph.nodes.values())) if names else names
