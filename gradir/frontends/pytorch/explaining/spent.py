"""Graphs of which a backward has freed what they had saved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import torch

from gradir.frontends.pytorch.explaining.cuts import DERIVING
from gradir.frontends.pytorch.private import sequence_number
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.recording.flow import Flow, Place
from gradir.ir import Node

__all__ = ["first_freed", "is_spent"]


def is_spent(flow: Flow, live: LiveGraph, made: Mapping[int, int], captured: Iterable[torch.Tensor]) -> bool:
    """Whether a backward from what was captured has freed the graph, as it should, and not one that ran before.

    ``made`` has the place of the step that made each grad_fn, by sequence number.
    """
    freed = [0 if index is None else index for _, index in _freed(live, made)]
    last = max(map(flow.value_of, captured)).maker
    between = flow.steps[min(freed) : last] if freed else ()
    return bool(freed) and not any(step.called in DERIVING for step in between)


def first_freed(flow: Flow, live: LiveGraph, made: Mapping[int, int]) -> tuple[str, Place | None] | None:
    """The first function of a graph whose saved tensors are freed: its operation and its place."""
    for node, index in _freed(live, made):
        return node.op, None if index is None else flow.steps[index].place
    return None


def _freed(live: LiveGraph, made: Mapping[int, int]) -> Iterator[tuple[Node, int | None]]:
    for fn, node_id in live.grad_fns.items():
        node = live.graph.nodes[node_id]
        if any(slot.state == "freed" for slot in node.saved):
            yield node, made.get(sequence_number(fn))
