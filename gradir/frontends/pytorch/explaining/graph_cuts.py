"""Turn the stops of a flow into cuts of the captured graph, with their nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import itemgetter

from torch import nn

from gradir.frontends.pytorch.explaining.cuts import Flowing, Stop
from gradir.frontends.pytorch.explaining.intended_cuts import IntendedCuts, NamesOf, cut_by_program, is_own_of_torch
from gradir.frontends.pytorch.explaining.naming import find_lines, operation_name
from gradir.frontends.pytorch.explaining.step_kinds import EXPLICIT, kind_of
from gradir.frontends.pytorch.explaining.subject import find_foreign, find_unregistered_tensors
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.sources import ShownLines
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Step, Value, plain_name
from gradir.frontends.pytorch.recording.timelines import path_of
from gradir.ir import Cut
from gradir.ir.memo import group_by_key
from gradir.vocabulary.patterns import OTHER_MODEL


def cuts_of(flowing: Flowing, names_of: NamesOf, live: LiveGraph, paths: Mapping[nn.Module, str]) -> Iterator[Cut]:
    """Yield one cut for each place and kind, in the order of the program."""

    def names(leaves: int, known: Collection[str] = ()) -> tuple[str, ...]:
        found = (name for leaf in flowing.members(leaves) for name in names_of(leaf)[:1])
        return tuple(dict.fromkeys(name for name in found if name not in known))

    lines, nodes = ShownLines(), live.graph.nodes.values()
    reached = {name for node in nodes if node.role in {"leaf", "parameter"} for name in node.names}
    yield from _cuts_at_stops(flowing, names_of, live, paths, reached)
    hidden = {name for cut in live.graph.cuts if cut.kind == "hidden" for name in cut.names}
    reported = {*(name for stop in flowing.stops for name in names(stop.leaves)), *reached, *hidden}
    for (operation, place), leaving in flowing.exits.items():
        found = names(leaving.leaves, reported)
        if found:
            reported.update(found)
            tensor = flowing.flow.meta_of(leaving.exit.reads[0].value)
            # No node of the graph made the value, since the graph would then have these leaves.
            yield Cut("exit", found, "", tensor, operation, *find_lines(place, lines))
    for exchange in flowing.exchanges():
        assigned = names_of(flowing.root(exchange.reads[0].value))[:1]
        if assigned:
            yield Cut("exchanged", assigned, "", None, "", *find_lines(exchange.place, lines))
    for (operation, place), leaves in flowing.puttings.items():
        found = names(leaves, reported)
        if found:
            yield Cut("put", found, "", None, operation, *find_lines(place, lines))


def _cuts_at_stops(
    flowing: Flowing, names_of: NamesOf, live: LiveGraph, paths: Mapping[nn.Module, str], reached: set[str]
) -> Iterator[Cut]:
    if not flowing.stops:
        return
    lines, ends = ShownLines(), _Ends(flowing, live)
    intended = IntendedCuts(flowing, {id(leaf) for leaf in live.leaves.values()}, names_of)
    groups = group_by_key(((stop.kind, stop.place, path_of(stop.step.call, paths)), stop) for stop in flowing.stops)
    patterns, _ = intended.patterns(flowing.stops_by_place())
    aside = find_unregistered_tensors(paths)
    elsewhere = {name for leaf in cut_by_program(flowing, patterns) for name in names_of(leaf)[:1]}
    for (kind, place, scope), stops in groups.items():
        leaves, is_own = flowing.leaves_cut_by(stops), all(map(is_own_of_torch, stops))
        names = dict.fromkeys(name for leaf in leaves for name in names_of(leaf)[:1])
        is_lost = not names.keys() <= (reached | elsewhere if is_own else reached)
        # Report the cuts that a program asks for, and others, such as torch's own, only if they lose a leaf.
        if (kind in EXPLICIT and not is_own) or is_lost:
            is_foreign = not names and bool(find_foreign(flowing.flow, aside, leaves))
            source, via = find_lines(place, lines)
            # If a place ran several times, use the first run with ends in the graph.
            into, slot = next(filter(None, (ends.entries.get(stop.value) for stop in stops)), ("", None))
            yield Cut(
                kind_of_cut(kind, stops, is_lost=is_lost),
                tuple(names),
                scope,
                flowing.flow.meta_of(stops[0].value),
                operation_of(stops),
                source,
                via,
                meant=OTHER_MODEL if is_foreign else patterns[kind, place],
                at=next(filter(None, map(ends.find_maker, stops)), ""),
                into=into,
                slot=slot,
            )


def kind_of_cut(kind: str, stops: Sequence[Stop], *, is_lost: bool) -> str:
    """Return the kind of a cut at a place, where a deepcopy may count as a copy."""
    return "copied" if kind == "data" and is_lost and all(map(is_own_of_torch, stops)) else kind


def operation_of(stops: Sequence[Stop]) -> str:
    """Return the operation, or the custom Function, of stops with one place and kind."""
    # Name the step of this kind, such as a sampling, and not the steps before it.
    step = next((stop.step for stop in stops if kind_of(stop.step) == stop.kind), stops[0].step)
    return operation_name(step) if step.inside is None else step.inside.called


class _Ends:
    def __init__(self, flowing: Flowing, live: LiveGraph) -> None:
        self._flowing = flowing
        self._made = dict(_nodes_by_step(flowing.flow, live))
        self._leaves = {id(tensor): node_id for node_id, tensor in live.leaves.items()}
        # The first node that takes each value without gradient, and the input slot, if it is certain.
        self.entries = {value: entry for value, (_, entry) in self._all_entries(live).items()}

    def find_maker(self, stop: Stop) -> str:
        """Return the node or leaf whose value a stop cuts, or an empty text."""
        for read in self._flowing.sources(stop.value):
            if read.is_leaf:
                tensor = self._flowing.flow.tensor_of(self._flowing.root(read.value))
                found = self._leaves.get(id(tensor), "")
            else:
                found = self._made.get(read.value.maker, "") if read.carries else ""
            if found:
                return found
        return ""

    def _all_entries(self, live: LiveGraph) -> Mapping[Value, tuple[int, tuple[str, int | None]]]:
        flow, found = self._flowing.flow, dict[Value, tuple[int, tuple[str, int | None]]]()
        for index, step in reversed(list(enumerate(flow.steps))):
            node_id = self._made.get(index)
            if node_id is not None:
                refs = live.graph.nodes[node_id].inputs
                is_sure = [ref is not None for ref in refs] == [read.carries for read in step.inputs]
                for slot, read in reversed(list(enumerate(step.inputs))):
                    if not read.carries:
                        found[read.value] = index, (node_id, slot if is_sure else None)
            for value in flow.values_of_step(index):
                if value in found and value not in self._flowing.carrying:
                    for read in self._flowing.sources(value):
                        if not read.carries:
                            known = found.get(read.value, found[value])
                            found[read.value] = min(found[value], known, key=itemgetter(0))
        return found


def _nodes_by_step(flow: Flow, live: LiveGraph) -> Iterator[tuple[int, str]]:
    # torch numbers the nodes of each thread, so nodes of two threads may seem to belong to one step.
    makers = group_by_key((flow.maker_of(fn), node_id) for fn, node_id in live.grad_fns.items())
    lone = ((at, ids[0]) for at, ids in makers.items() if at != FROM_OUTSIDE and len(ids) == 1)
    return ((at, node_id) for at, node_id in lone if _fits(flow.steps[at], node_id, live))


def _fits(step: Step, node_id: str, live: LiveGraph) -> bool:
    """Return whether a node has the name and shape of a step."""
    node = live.graph.nodes[node_id]
    names = (node.op.strip("_"), plain_name(step.func))
    shapes = [tensor.shape for tensor in (*node.outputs[:1], *step.outputs[:1])]
    return min(names) != "" and max(names).startswith(min(names)) and len(shapes) == 2 and shapes[0] == shapes[1]
