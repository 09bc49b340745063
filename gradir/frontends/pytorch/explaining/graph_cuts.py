"""The stops of a flow as cuts of the graph that was captured: whose value is cut, and where it enters again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import reduce
from operator import itemgetter, or_
from typing import NamedTuple

from torch import nn

from gradir.frontends.pytorch.explaining.cuts import Flowing, Leaving, Stop
from gradir.frontends.pytorch.explaining.kinds import EXPLICIT, kind_of
from gradir.frontends.pytorch.explaining.meant import Meant, is_own_of_torch
from gradir.frontends.pytorch.explaining.registered import foreign, kept_aside
from gradir.frontends.pytorch.explaining.words import called, lines_of
from gradir.frontends.pytorch.private import sequence_number
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.operands import plain_name
from gradir.frontends.pytorch.recording.places import Place
from gradir.frontends.pytorch.recording.sources import ShownLines
from gradir.frontends.pytorch.recording.steps import Step, Value
from gradir.frontends.pytorch.recording.timelines import path_of
from gradir.ir import Cut
from gradir.vocabulary.patterns import OTHER_MODEL

__all__ = ["cuts_of", "kind_of_cut", "leavings", "operation_of", "puttings"]


def cuts_of(
    flow: Flow,
    flowing: Flowing,
    names_of: Callable[[Value], tuple[str, ...]],
    live: LiveGraph,
    paths: Mapping[nn.Module, str],
) -> Iterator[Cut]:
    """One cut for each place and kind, in the order of the program.

    ``names_of`` gives the names of a leaf, and ``paths`` are where the modules are. A kind that no program asks for is
    left out where the graph has all leaves that are behind it. Of a place that ran several times, the ends are those of
    the first time that has any.
    """

    def names(leaves: int, known: Collection[str] = ()) -> tuple[str, ...]:
        found = (name for leaf in flowing.members(leaves) for name in names_of(leaf)[:1])
        return tuple(dict.fromkeys(name for name in found if name not in known))

    lines, nodes = ShownLines(), live.graph.nodes.values()
    reached = {name for node in nodes if node.role in {"leaf", "parameter"} for name in node.names}
    yield from _cuts_at_stops(flow, flowing, names_of, live, paths, reached=reached)
    hidden = {name for cut in live.graph.cuts if cut.kind == "hidden" for name in cut.names}
    told = {*names(reduce(or_, (stop.leaves for stop in flowing.stops), 0)), *reached, *hidden}
    for (operation, place), leaving in leavings(flowing).items():
        found = names(leaving.leaves, told)
        if found:
            told.update(found)
            tensor = flow.meta_of(leaving.exit.reads[0].value)
            # No node of the graph made the value, or it would have what is behind it.
            yield Cut("exit", found, "", tensor, operation, *lines_of(place, lines))
    for exchange in flowing.exchanges():
        assigned = names_of(flowing.root(exchange.reads[0].value))[:1]
        if assigned:
            yield Cut("exchanged", assigned, "", None, "", *lines_of(exchange.place, lines))
    for (operation, place), leaves in puttings(flowing).items():
        found = names(leaves, told)
        if found:
            yield Cut("put", found, "", None, operation, *lines_of(place, lines))


def _cuts_at_stops(
    flow: Flow,
    flowing: Flowing,
    names_of: Callable[[Value], tuple[str, ...]],
    live: LiveGraph,
    paths: Mapping[nn.Module, str],
    *,
    reached: set[str],
) -> Iterator[Cut]:
    lines, ends = ShownLines(), Ends(flow, flowing, live)
    meant = Meant(flow, flowing, {id(leaf) for leaf in live.leaves.values()}, names_of)
    groups: dict[tuple[str, Place | None, str], list[Stop]] = {}
    together: dict[tuple[str, Place | None], list[Stop]] = {}
    for stop in flowing.stops:
        groups.setdefault((stop.kind, stop.place, path_of(stop.step.call, paths)), []).append(stop)
        together.setdefault((stop.kind, stop.place), []).append(stop)
    patterns, _ = meant.patterns(together)
    aside = kept_aside(paths) if groups else {}
    for (kind, place, scope), stops in groups.items():
        behind = flowing.members(reduce(or_, (stop.leaves for stop in stops)))
        names = dict.fromkeys(name for leaf in behind for name in names_of(leaf)[:1])
        # Torch cuts for functions of its own, too.
        if (kind in EXPLICIT and not all(map(is_own_of_torch, stops))) or not names.keys() <= reached:
            source, via = lines_of(place, lines)
            entry = next(filter(None, map(ends.entry, stops)), None)
            yield Cut(
                kind_of_cut(kind, stops, is_lost=not names.keys() <= reached),
                tuple(names),
                scope,
                flow.meta_of(stops[0].value),
                operation_of(stops),
                source,
                via,
                meant=patterns[kind, place] if names or not foreign(flow, aside, behind) else OTHER_MODEL,
                at=next(filter(None, map(ends.at, stops)), ""),
                into="" if entry is None else entry.into,
                slot=None if entry is None else entry.slot,
            )


def leavings(flowing: Flowing) -> Mapping[tuple[str, Place | None], Leaving]:
    """By function and place, where values leave torch: the first time there, with the leaves of every time."""
    found: dict[tuple[str, Place | None], Leaving] = {}
    for leaving in flowing.exits:
        key = leaving.exit.called.strip("_"), leaving.exit.place
        found[key] = found[key]._replace(leaves=found[key].leaves | leaving.leaves) if key in found else leaving
    return found


def puttings(flowing: Flowing) -> Mapping[tuple[str, Place | None], int]:
    """By operation and place, where numbers are put into another leaf: the leaves that they are computed of."""
    found: dict[tuple[str, Place | None], int] = {}
    for called_as, place, leaves in flowing.puttings:
        found[called_as, place] = found.get((called_as, place), 0) | leaves
    return found


def kind_of_cut(kind: str, stops: Sequence[Stop], *, is_lost: bool) -> str:
    """The kind of a cut at a place; a deepcopy that leaves parameters without a gradient cuts as a copy does."""
    return "copied" if kind == "data" and is_lost and all(map(is_own_of_torch, stops)) else kind


def operation_of(stops: Sequence[Stop]) -> str:
    """The operation that stops of a place and kind are at, or the custom Function."""
    # What draws is named, and not what is computed for it.
    step = next((stop.step for stop in stops if kind_of(stop.step) == stop.kind), stops[0].step)
    return called(step) if step.inside is None else step.inside.called


class Entry(NamedTuple):
    """The node that takes a value that carries no gradient, and its input slot where that is sure."""

    step: int
    into: str
    slot: int | None


class Ends:
    """Knows which nodes of a graph the steps of a flow made.

    torch numbers the nodes of each thread, so a number alone may mean a node of another: what a step made has the name
    and the shape of what it gave, too. Where either differs, nothing is said of it. Every step is looked at once.
    """

    def __init__(self, flow: Flow, flowing: Flowing, live: LiveGraph) -> None:
        self._flow = flow
        self._flowing = flowing
        self._made = dict(_made(flow, flowing, live))
        self._leaves = {id(tensor): node_id for node_id, tensor in live.leaves.items()}
        self._entries = self._all_entries(live)

    def at(self, stop: Stop) -> str:
        """The node that made what a stop cuts, or the leaf; nothing where the graph has none of them."""
        for read in self._flowing.sources(stop.value):
            if read.is_leaf:
                tensor = self._flow.tensor_of(self._flowing.root(read.value))
                found = self._leaves.get(id(tensor), "")
            else:
                found = self._made.get(read.value.maker, "") if read.carries else ""
            if found:
                return found
        return ""

    def entry(self, stop: Stop) -> Entry | None:
        """The first node that takes a stop's value, or one that is computed of it and carries no gradient either."""
        return self._entries.get(stop.value)

    def _all_entries(self, live: LiveGraph) -> Mapping[Value, Entry]:
        found: dict[Value, Entry] = {}
        for index, step in reversed(list(enumerate(self._flow.steps))):
            node_id = self._made.get(index)
            if node_id is not None:
                refs = live.graph.nodes[node_id].inputs
                is_sure = [ref is not None for ref in refs] == [read.carries for read in step.inputs]
                for slot, read in reversed(list(enumerate(step.inputs))):
                    if not read.carries:
                        found[read.value] = Entry(index, node_id, slot if is_sure else None)
            for value in self._flow.made_by(index):
                if value in found and value not in self._flowing.carrying:
                    for read in self._flowing.sources(value):
                        if not read.carries:
                            found[read.value] = min(
                                found[value], found.get(read.value, found[value]), key=itemgetter(0)
                            )
        return found


def _made(flow: Flow, flowing: Flowing, live: LiveGraph) -> Iterator[tuple[int, str]]:
    """The steps that made a node of the graph, with its id."""
    numbered: dict[int, str] = {}
    for fn, node_id in live.grad_fns.items():
        number = sequence_number(fn)
        numbered[number] = "" if number in numbered else node_id
    makers: dict[int, list[int]] = {}
    for index, step in enumerate(flow.steps):
        if step.mode == "grad" and not flowing.carrying.isdisjoint(flow.made_by(index)):
            # The number was taken before the operation ran.
            makers.setdefault(step.number - 1, []).append(index)
    for number, (index, *others) in makers.items():
        found = numbered.get(number)
        if found and not others and _fits(flow.steps[index], found, live):
            yield index, found


def _fits(step: Step, node_id: str, live: LiveGraph) -> bool:
    node = live.graph.nodes[node_id]
    names = (node.op.strip("_"), plain_name(step.func))
    shapes = [tensor.shape for tensor in (*node.outputs[:1], *step.outputs[:1])]
    return min(names) != "" and max(names).startswith(min(names)) and len(shapes) == 2 and shapes[0] == shapes[1]
