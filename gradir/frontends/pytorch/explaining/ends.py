"""Both ends of a cut in the graph that was captured: whose value is cut, and where it enters again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gradir.frontends.pytorch.explaining.cuts import Flowing, Stop
from gradir.frontends.pytorch.private import sequence_number
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.operands import plain_name
from gradir.frontends.pytorch.recording.steps import Step, Value

__all__ = ["Ends", "Entry"]


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
            for number in range(len(step.outputs)):
                value = Value(index, number)
                if value in found and value not in self._flowing.carrying:
                    for read in self._flowing.sources(value):
                        if not read.carries:
                            found[read.value] = min(found[value], found.get(read.value, found[value]), key=_when)
        return found


def _when(entry: Entry) -> int:
    return entry.step


def _made(flow: Flow, flowing: Flowing, live: LiveGraph) -> Iterator[tuple[int, str]]:
    """The steps that made a node of the graph, with its id."""
    numbered: dict[int, str] = {}
    for fn, node_id in live.grad_fns.items():
        number = sequence_number(fn)
        numbered[number] = "" if number in numbered else node_id
    makers: dict[int, list[int]] = {}
    for index, step in enumerate(flow.steps):
        if step.mode == "grad" and any(Value(index, number) in flowing.carrying for number in range(len(step.outputs))):
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
