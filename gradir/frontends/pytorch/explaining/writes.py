"""What became of tensors that a graph had saved: written to, or freed by a backward that ran before."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

import torch

from gradir.frontends.pytorch.private import sequence_number
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.reading.saved import saved_tensor
from gradir.frontends.pytorch.reading.tensors import storage_of
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.places import Place
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Step, Value
from gradir.ir import Saved

__all__ = ["Write", "writes_over_saved"]

Key: TypeAlias = "tuple[str, Place | None]"
"""What a step is called, and where."""

_MOST_LATER: Final = 3
"""How many later writes are told of."""


class Write(NamedTuple):
    """The first write to what ``savers`` had saved, these ``values``, and some writes that came later."""

    step: Step
    later: list[Step]
    savers: dict[Key, Step]
    values: dict[Value, None]


def writes_over_saved(flow: Flow, live: LiveGraph, made: Mapping[int, int]) -> list[Write]:
    """Of each place the first write that made a saved tensor stale, with some from other places that followed.

    ``made`` has the place of the step that made each grad_fn, by sequence number.
    """
    found: dict[Key, Write] = {}
    owners: dict[Value, Value] | None = None
    memories: dict[Key, set[Value]] = {}
    following = _Following(flow)
    for fn, node_id in live.grad_fns.items():
        for slot in live.graph.nodes[node_id].saved:
            if slot.state == "stale":
                saver = made.get(sequence_number(fn), FROM_OUTSIDE)
                writes = following.after(saver, saved_tensor(fn, slot.slot), slot)
                if writes:
                    (first, write_step), *others = writes.items()
                    write = found.setdefault(first, Write(write_step, [step for _, step in others], {}, {}))
                    if saver != FROM_OUTSIDE:
                        step = flow.steps[saver]
                        write.savers.setdefault((step.called, step.place), step)
                        if owners is None:
                            owners = _owners(flow)
                        if first not in memories:
                            memories[first] = _memories(owners, write.step)
                        write.values.update(dict.fromkeys(_written(flow, owners, saver, memories[first])))
    return list(found.values())


class _Following:
    """Finds the first writes to a memory after a step, as autograd sees them, one of each place."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        # By memory the numbers of the steps that write to it, and what is first from each of them on.
        self._known: dict[int | Value, tuple[list[int], list[dict[Key, Step]]]] = {}
        # By the value that first had a memory, which is looked for where torch does not show what is stale.
        self._writes: dict[Value, list[int]] | None = None
        self._owners: Mapping[Value, Value] = {}

    def after(self, saving: int, saved: torch.Tensor | None, slot: Saved) -> dict[Key, Step]:
        """The first writes after a step to what it saved."""
        storage: int | Value | None = self._only_written(saving, slot) if saved is None else storage_of(saved)
        if storage is None:
            return {}
        if storage not in self._known:
            writes = self._flow.writes(storage) if isinstance(storage, int) else (self._writes or {})[storage]
            self._known[storage] = self._look(writes)
        writes, firsts = self._known[storage]
        at = bisect_right(writes, saving)
        return firsts[at] if at < len(firsts) else {}

    def _only_written(self, saving: int, slot: Saved) -> Value | None:
        """The memory that a slot of a step may have saved, if later steps wrote to one such memory alone."""
        if saving == FROM_OUTSIDE:
            return None
        steps = self._flow.steps
        if self._writes is None:
            self._owners, self._writes = _owners(self._flow), {}
            for index, step in enumerate(steps):
                if "inplace" in step.kinds and not _is_unseen(self._flow, step):
                    for memory in _memories(self._owners, step):
                        self._writes.setdefault(memory, []).append(index)
        is_result = slot.slot.startswith("result")
        values = self._flow.made_by(saving) if is_result else [read.value for read in steps[saving].inputs]
        memories = {
            self._owners.get(value, value)
            for value in values
            if slot.shape is None or self._flow.meta_of(value).shape == slot.shape
        }
        written = [memory for memory in memories if self._writes.get(memory, [FROM_OUTSIDE])[-1] > saving]
        return written[0] if len(written) == 1 else None

    def _look(self, written: Sequence[int]) -> tuple[list[int], list[dict[Key, Step]]]:
        steps = self._flow.steps
        writes = [index for index in written if not _is_unseen(self._flow, steps[index])]
        firsts = list[dict[Key, Step]]()
        newest: dict[Key, Step] = {}
        for index in reversed(writes):
            step = steps[index]
            key = step.called, step.place
            others = ((other, later) for other, later in newest.items() if other != key)
            newest = {key: step, **dict(islice(others, _MOST_LATER))}
            firsts.append(newest)
        return writes, firsts[::-1]


def _memories(owners: Mapping[Value, Value], write: Step) -> set[Value]:
    """What a step writes to, by the value that first had it."""
    return {owners.get(read.value, read.value) for read in write.of_kind("inplace")}


def _written(flow: Flow, owners: Mapping[Value, Value], saver: int, memories: Set[Value]) -> Iterator[Value]:
    """What a step took or gave that has one of some memories; of views without a name, whose they are."""
    for value in (*(read.value for read in flow.steps[saver].inputs), *flow.made_by(saver)):
        owner = owners.get(value, value)
        if owner in memories:
            yield value if value in flow.variables else owner


def _owners(flow: Flow) -> dict[Value, Value]:
    """Of each view, and of what was written to, the value that first had the memory."""
    found: dict[Value, Value] = {}
    for index, step in enumerate(flow.steps):
        shared = step.lenders()
        if len(shared) == 1:
            found.update(dict.fromkeys(flow.made_by(index), found.get(shared[0], shared[0])))
    return found


def _is_unseen(flow: Flow, write: Step) -> bool:
    """Whether a step writes to the ``.data`` of a tensor, which autograd does not count."""
    return any(step.called == "data" for step in flow.views(write.of_kind("inplace")[0].value))
