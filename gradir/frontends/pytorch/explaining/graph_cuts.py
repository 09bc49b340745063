"""The stops of a flow as cuts of the graph that was captured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from gradir.frontends.pytorch.explaining.cuts import Flowing, Leaving, Stop
from gradir.frontends.pytorch.explaining.ends import Ends
from gradir.frontends.pytorch.explaining.kinds import EXPLICIT
from gradir.frontends.pytorch.explaining.meant import Meant
from gradir.frontends.pytorch.explaining.words import called, lines_of
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.places import Place
from gradir.frontends.pytorch.recording.sources import ShownLines
from gradir.frontends.pytorch.recording.steps import Value
from gradir.frontends.pytorch.recording.timelines import Frame
from gradir.ir import Cut

__all__ = ["cuts_of", "leavings"]


def cuts_of(
    flow: Flow,
    flowing: Flowing,
    names_of: Callable[[Value], tuple[str, ...]],
    live: LiveGraph,
    scope_of: Callable[[Frame | None], str],
) -> Iterator[Cut]:
    """One cut for each place and kind, in the order of the program.

    ``names_of`` gives the names of a leaf. A kind that no program asks for is left out where the graph has all leaves
    that are behind it. Of a place that ran several times, the ends are those of the first time that has any.
    """
    lines, ends, meant = ShownLines(), Ends(flow, flowing, live), Meant(flow, flowing)
    nodes = live.graph.nodes.values()
    reached = {name for node in nodes if node.role in {"leaf", "parameter"} for name in node.names}
    groups: dict[tuple[str, Place | None, str], tuple[list[Stop], int]] = {}
    for stop in flowing.stops:
        key = stop.kind, stop.step.place, scope_of(stop.step.call)
        stops, leaves = groups.get(key, ([], 0))
        stops.append(stop)
        groups[key] = stops, leaves | stop.leaves
    stopped = 0
    for (kind, place, scope), (stops, leaves) in groups.items():
        stopped |= leaves
        names = dict.fromkeys(name for leaf in flowing.members(leaves) for name in names_of(leaf)[:1])
        if kind in EXPLICIT or not names.keys() <= reached:
            source, via = lines_of(place, lines)
            (stop, *_), patterns = stops, {meant.pattern(stop) for stop in stops}
            entry = next(filter(None, map(ends.entry, stops)), None)
            yield Cut(
                kind,
                tuple(names),
                scope,
                flow.meta_of(stop.value),
                operation_of(stop),
                source,
                via,
                meant=patterns.pop() if len(patterns) == 1 else "",
                at=next(filter(None, map(ends.at, stops)), ""),
                into="" if entry is None else entry.into,
                slot=None if entry is None else entry.slot,
            )
    hidden = {name for cut in live.graph.cuts if cut.kind == "hidden" for name in cut.names}
    told = {name for leaf in flowing.members(stopped) for name in names_of(leaf)[:1]} | reached | hidden
    for (operation, place), leaving in leavings(flowing).items():
        behind = flowing.members(leaving.leaves)
        names = {name: None for leaf in behind for name in names_of(leaf)[:1] if name not in told}
        if names:
            told.update(names)
            tensor = flow.meta_of(leaving.exit.reads[0].value)
            # No node of the graph made the value, or it would have what is behind it.
            yield Cut("exit", tuple(names), "", tensor, operation, *lines_of(place, lines))


def leavings(flowing: Flowing) -> Mapping[tuple[str, Place | None], Leaving]:
    """By function and place, where values leave torch: the first time there, with the leaves of every time."""
    found: dict[tuple[str, Place | None], Leaving] = {}
    for leaving in flowing.exits:
        key = leaving.exit.called.strip("_"), leaving.exit.place
        found[key] = found[key]._replace(leaves=found[key].leaves | leaving.leaves) if key in found else leaving
    return found


def operation_of(stop: Stop) -> str:
    """The operation that a stop is at, or the custom Function."""
    return called(stop.step) if stop.step.inside is None else stop.step.inside.called
