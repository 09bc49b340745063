"""Find writes unseen by torch that make a gradient wrong, by comparing two backward passes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

import torch
from torch.autograd.function import BackwardCFunction
from torch.utils.hooks import RemovableHandle

from gradir.frontends.pytorch.explaining.cuts import At, Flowing
from gradir.frontends.pytorch.explaining.magnitudes import LeafGradient, run_backward
from gradir.frontends.pytorch.explaining.naming import operation_name
from gradir.frontends.pytorch.explaining.step_kinds import DERIVING
from gradir.frontends.pytorch.private import ACCUMULATOR, without_dispatch_modes, without_overrides
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.reading.distributed import is_in_process_group
from gradir.frontends.pytorch.reading.saved import read_saved_tensor
from gradir.frontends.pytorch.reading.tensors import extent_of, storage_of
from gradir.frontends.pytorch.reading.walk import GradFn
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.places import Place
from gradir.frontends.pytorch.recording.steps import ARRAYS, FROM_OUTSIDE, Held, Step
from gradir.frontends.walks import find_reachable
from gradir.ir.memo import group_by_key

# A gradient must differ by the precision of its dtype, raised to this power, times its largest value.
_CLEAR: Final = 0.5


class Overwrite(NamedTuple):
    """The first write at a place to tensors that ``savers`` saved, and the ids of leaves with a wrong gradient."""

    op: str
    place: Place | None
    savers: list[Step]
    leaves: set[int]
    how: tuple[str, ...]


def find_overwrites(flow: Flow, flowing: Flowing, live: LiveGraph) -> list[Overwrite]:
    """Return, by place, the unseen writes that make a gradient wrong."""
    changed = dict(_find_changed(flow, flowing, live))
    if not changed:
        return []
    # The first backward pass runs as the program's would; in the second, every function gets the tensors that it saved.
    pairs = zip(run_backward(live, list), _run_with_saved_values(live, changed), strict=True)
    wrong = {id(leaf) for (leaf, one), (_, other) in pairs if _differ(one, other)}
    groups: dict[At, tuple[Held, list[GradFn]]] = {}
    for fn, parts in changed.items():
        first = next(part.former for part in parts if not torch.equal(part.now, part.former.numbers))
        groups.setdefault((first.called, first.place), (first, []))[1].append(fn)
    found = []
    for former, fns in groups.values():
        upstream = find_reachable(fns, lambda fn: (child for child, _ in fn.next_functions if child is not None))
        leaves = wrong & {id(fn.variable) for fn in upstream if type(fn).__name__ == ACCUMULATOR}
        if leaves:
            is_array = former.called in ARRAYS
            op = former.called.strip("_") if is_array else operation_name(flow.steps[former.before])
            savers = [flow.steps[flow.maker_of(fn)] for fn in fns]
            how = ("the array that it gave has the same memory, and was written to",) if is_array else ()
            found.append(Overwrite(op, former.place, savers, leaves, how))
    return found


def may_communicate(live: LiveGraph) -> bool:
    """Return whether a backward pass may communicate, since one process alone must not start it."""
    kinds = map(type, live.grad_fns)
    return is_in_process_group() and any(
        issubclass(kind, BackwardCFunction) or "c10d" in kind.__name__ for kind in kinds
    )


class _Part(NamedTuple):
    """A part of a saved tensor as it is now, with its former values."""

    now: torch.Tensor
    former: Held


def _find_changed(flow: Flow, flowing: Flowing, live: LiveGraph) -> Iterator[tuple[GradFn, list[_Part]]]:
    """Yield the functions whose saved tensors were overwritten, with the former values, oldest first."""
    copies = flow.overwritten.held
    if not copies:
        return
    parts = group_by_key(((each.memory, each.offset, each.numbers.shape, each.strides), each) for each in copies)
    by_storage = group_by_key((storage, writes) for (storage, *_), writes in parts.items())
    backwards = list(_find_backwards(flow, flowing))
    for fn, node_id in live.grad_fns.items():
        saver = flow.maker_of(fn)
        if saver == FROM_OUTSIDE:
            continue
        later = bisect_right(backwards, saver)
        next_backward = backwards[later] if later < len(backwards) else len(flow.steps)
        found: dict[int, _Part] = {}
        for slot in live.graph.nodes[node_id].saved:
            saved = read_saved_tensor(fn, slot.slot) if slot.state == "held" else None
            storage = None if saved is None else storage_of(saved)
            if saved is None or storage not in by_storage or saver < flow.overwritten.lost.get(storage, 0):
                continue
            for writes in by_storage[storage]:
                # The oldest copy of a part is the saved one. A write after the backward pass does no harm.
                place = bisect_right(writes, saver, key=attrgetter("before"))
                for former in writes[place : place + 1]:
                    now = former.part_of(saved.untyped_storage()) if former.before <= next_backward else None
                    (first, last), (start, end) = extent_of(saved), extent_of(saved if now is None else now)
                    # The two parts of the storage may overlap.
                    if now is not None and first < end and start < last:
                        found[id(former)] = _Part(now, former)
        ordered = sorted(found.values(), key=lambda part: part.former.before)
        if not all(torch.equal(part.now, part.former.numbers) for part in ordered):
            yield fn, ordered


def _find_backwards(flow: Flow, flowing: Flowing) -> Iterator[int]:
    """Yield the steps at which a backward pass may have run through the graph of the captured tensors."""
    previous: Step | None = None
    related, is_ours = set(flowing.ends), True
    for index, step in enumerate(flow.steps):
        reads = {read.value for read in step.inputs}
        if not related.isdisjoint(reads):
            related.update(flow.values_of_step(index))
        if step.called in DERIVING:
            starts = step.mode == "grad" and step.func.__name__.startswith("ones_like")
            if starts or previous is None or (previous.called, previous.place) != (step.called, step.place):
                is_ours = not starts or not reads.isdisjoint(related | flowing.wanted)
            if is_ours:
                yield index
        previous = step


def _run_with_saved_values(live: LiveGraph, changed: Mapping[GradFn, Sequence[_Part]]) -> list[LeafGradient]:
    """Run a backward pass in which every function gets the tensors that it saved, and restore all storages."""
    current: dict[GradFn, list[torch.Tensor]] = {}

    def restore_saved(fn: GradFn) -> None:
        with torch.no_grad(), without_dispatch_modes(), without_overrides():
            current[fn] = [part.now.clone() for part in changed[fn]]
            for part in reversed(changed[fn]):
                part.now.copy_(part.former.numbers)

    def restore_current(fn: GradFn) -> None:
        with torch.no_grad(), without_dispatch_modes(), without_overrides():
            for part, values in zip(changed[fn], current.pop(fn), strict=True):
                part.now.copy_(values)

    def register() -> Iterator[RemovableHandle]:
        for fn in changed:
            yield fn.register_prehook(lambda _, fn=fn: restore_saved(fn))
            yield fn.register_hook(lambda *_, fn=fn: restore_current(fn))

    try:
        return run_backward(live, register)
    finally:
        # A function that raised an error has not restored its tensors.
        for fn in [*current]:
            restore_current(fn)


def _differ(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None or one.layout is not torch.strided or one.shape != other.shape or not one.numel():
        return False
    with torch.no_grad():
        largest = torch.maximum(one.abs().max(), other.abs().max())
        tolerance = largest * torch.finfo(one.dtype).eps ** _CLEAR
        # Gradients that are not finite prove nothing.
        return bool(torch.isfinite(largest)) and bool(((one - other).abs() > tolerance).any())
