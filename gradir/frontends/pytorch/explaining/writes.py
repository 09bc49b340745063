"""What was written to tensors that a graph had saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import torch

from gradir.frontends.pytorch.private import sequence_number
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.reading.saved import saved_tensor
from gradir.frontends.pytorch.reading.tensors import storage_of
from gradir.frontends.pytorch.recording.flow import FROM_OUTSIDE, Flow, Place, Step

__all__ = ["writes_over_saved"]

_MOST_LATER: Final = 3
"""How many later writes are told of."""


def writes_over_saved(flow: Flow, live: LiveGraph, made: Mapping[int, int]) -> list[tuple[Step, list[Step]]]:
    """Of each place the first write that made a saved tensor stale, with some from other places that followed.

    ``made`` has the place of the step that made each grad_fn, by sequence number.
    """
    found: dict[tuple[str, Place | None], tuple[Step, list[Step]]] = {}
    for fn, node_id in live.grad_fns.items():
        for slot in live.graph.nodes[node_id].saved:
            if slot.state == "stale":
                saved = saved_tensor(fn, slot.slot)
                writes: dict[tuple[str, Place | None], Step] = {}
                for step in _writes_after(flow, made.get(sequence_number(fn), FROM_OUTSIDE), saved):
                    writes.setdefault((step.called, step.place), step)
                if writes:
                    first, *others = writes
                    found.setdefault(first, (writes[first], [writes[other] for other in others[:_MOST_LATER]]))
    return list(found.values())


def _writes_after(flow: Flow, saving: int, saved: torch.Tensor | None) -> Iterator[Step]:
    """The steps after one that wrote to what it saved, as autograd sees it."""
    storage = None if saved is None else storage_of(saved)
    for index in () if storage is None else flow.writes(storage):
        if index > saving and not _is_unseen(flow, flow.steps[index]):
            yield flow.steps[index]


def _is_unseen(flow: Flow, write: Step) -> bool:
    """Whether a step writes to the ``.data`` of a tensor, which autograd does not count."""
    value = write.inputs[write.kinds.index("inplace")].value
    while value.maker != FROM_OUTSIDE and "view" in (step := flow.steps[value.maker]).kinds:
        if step.called == "data":
            return True
        value = step.inputs[step.kinds.index("view")].value
    return False
