"""Graphs of which a backward has freed what they had saved."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import torch

from gradir.frontends.pytorch.explaining.kinds import DERIVING
from gradir.frontends.pytorch.private import sequence_number
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Value
from gradir.ir import Node

__all__ = ["carried_over", "freed_steps", "is_spent"]


def is_spent(flow: Flow, live: LiveGraph, made: Mapping[int, int], captured: Iterable[torch.Tensor]) -> bool:
    """Whether a backward from what was captured has freed the graph, as it should, and not one that ran before.

    ``made`` has the place of the step that made each grad_fn, by sequence number.
    """
    freed = [0 if index is None else index for _, index in _freed(live, made)]
    last = max(map(flow.value_of, captured)).maker
    between = flow.steps[min(freed) : last] if freed else ()
    return bool(freed) and not any(step.called in DERIVING for step in between)


def freed_steps(live: LiveGraph, made: Mapping[int, int]) -> list[tuple[str, int]]:
    """The functions of a graph whose saved tensors are freed: the operation of each and the place of its step."""
    return [(node.op, FROM_OUTSIDE if index is None else index) for node, index in _freed(live, made)]


def carried_over(flow: Flow, ends: Iterable[Value], freed: Collection[int]) -> list[Value] | None:
    """The values from before a backward, through its freed steps, to which the graph of ``ends`` goes back.

    ``freed`` are the steps whose saved tensors are freed, `FROM_OUTSIDE` for what was not recorded. Nothing is known,
    and ``None`` is given, where no backward was recorded that may have freed them.
    """
    newest = max(freed)
    deriving = (index for index in range(newest + 1, len(flow.steps)) if flow.steps[index].called in DERIVING)
    border = FROM_OUTSIDE if newest == FROM_OUTSIDE else next(deriving, None)
    if border is None:
        return None
    spent = set[int](freed)
    for index, step in enumerate(flow.steps[: border + 1]):
        if any(read.carries and not read.is_leaf and read.value.maker in spent for read in step.inputs):
            spent.add(index)
    waiting, seen = [*ends], set[Value]()
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        if value.maker > border:
            step = flow.steps[value.maker]
            # Inside a custom Function nothing carries a gradient.
            passes = step.inside is not None
            waiting.extend(
                read.value
                for read in step.inputs
                if not read.is_leaf and (read.carries or (passes and read.value.maker != FROM_OUTSIDE))
            )
    return sorted(value for value in seen if value.maker <= border and value.maker in spent)


def _freed(live: LiveGraph, made: Mapping[int, int]) -> Iterator[tuple[Node, int | None]]:
    for fn, node_id in live.grad_fns.items():
        node = live.graph.nodes[node_id]
        if any(slot.state == "freed" for slot in node.saved):
            yield node, made.get(sequence_number(fn))
