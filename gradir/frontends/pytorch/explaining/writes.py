"""What became of tensors that a graph had saved: written to, or freed by a backward that ran before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import torch

from gradir.frontends.pytorch.private import sequence_number
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.reading.saved import saved_tensor
from gradir.frontends.pytorch.reading.tensors import storage_of
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.places import Place
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Step, Value

__all__ = ["Write", "writes_over_saved"]

_MOST_LATER: Final = 3
"""How many later writes are told of."""


class Write(NamedTuple):
    """The first write to what ``savers`` had saved, these ``values``, and some writes that came later."""

    step: Step
    later: list[Step]
    savers: dict[tuple[str, Place | None], Step]
    values: dict[Value, None]


def writes_over_saved(flow: Flow, live: LiveGraph, made: Mapping[int, int]) -> list[Write]:
    """Of each place the first write that made a saved tensor stale, with some from other places that followed.

    ``made`` has the place of the step that made each grad_fn, by sequence number.
    """
    found: dict[tuple[str, Place | None], Write] = {}
    owners: dict[Value, Value] = {}
    for fn, node_id in live.grad_fns.items():
        for slot in live.graph.nodes[node_id].saved:
            if slot.state == "stale":
                saved = saved_tensor(fn, slot.slot)
                saver = made.get(sequence_number(fn), FROM_OUTSIDE)
                writes: dict[tuple[str, Place | None], Step] = {}
                for step in _writes_after(flow, saver, saved):
                    writes.setdefault((step.called, step.place), step)
                if writes:
                    first, *others = writes
                    later = [writes[other] for other in others[:_MOST_LATER]]
                    write = found.setdefault(first, Write(writes[first], later, {}, {}))
                    if saver != FROM_OUTSIDE:
                        step = flow.steps[saver]
                        write.savers.setdefault((step.called, step.place), step)
                        owners = owners or _owners(flow)
                        write.values.update(dict.fromkeys(_written(flow, owners, saver, write.step)))
    return list(found.values())


def _writes_after(flow: Flow, saving: int, saved: torch.Tensor | None) -> Iterator[Step]:
    """The steps after one that wrote to what it saved, as autograd sees it."""
    storage = None if saved is None else storage_of(saved)
    for index in () if storage is None else flow.writes(storage):
        if index > saving and not _is_unseen(flow, flow.steps[index]):
            yield flow.steps[index]


def _written(flow: Flow, owners: Mapping[Value, Value], saver: int, write: Step) -> Iterator[Value]:
    """What a step took or gave that has the memory to which another writes; of views without a name, whose they are."""
    reads = (read.value for kind, read in zip(write.kinds, write.inputs, strict=False) if kind == "inplace")
    memories = {owners.get(value, value) for value in reads}
    step = flow.steps[saver]
    given = (Value(saver, number) for number in range(len(step.outputs)))
    for value in (*(read.value for read in step.inputs), *given):
        owner = owners.get(value, value)
        if owner in memories:
            yield value if value in flow.variables else owner


def _owners(flow: Flow) -> dict[Value, Value]:
    """Of each view, and of what was written to, the value that first had the memory."""
    found: dict[Value, Value] = {}
    for index, step in enumerate(flow.steps):
        shared = [
            read.value for kind, read in zip(step.kinds, step.inputs, strict=False) if kind in {"inplace", "view"}
        ]
        if len(shared) == 1:
            owner = found.get(shared[0], shared[0])
            found.update((Value(index, number), owner) for number in range(len(step.outputs)))
    return found


def _is_unseen(flow: Flow, write: Step) -> bool:
    """Whether a step writes to the ``.data`` of a tensor, which autograd does not count."""
    value = write.inputs[write.kinds.index("inplace")].value
    while value.maker != FROM_OUTSIDE and "view" in (step := flow.steps[value.maker]).kinds:
        if step.called == "data":
            return True
        value = step.inputs[step.kinds.index("view")].value
    return False
