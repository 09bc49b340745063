"""Why an operation of a forward raised, and what becomes of a backward whose saved tensors were written to or freed.

A write that torch has not noticed makes a gradient wrong. It is proved by two backwards, one as the program's would be,
and one in which every function finds what it had saved.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

import torch
from torch.autograd.function import BackwardCFunction
from torch.utils.hooks import RemovableHandle

from gradir.explanations.model import Cause
from gradir.frontends.pytorch.explaining.cuts import At, Flowing, updated_leaves
from gradir.frontends.pytorch.explaining.magnitudes import run_backward
from gradir.frontends.pytorch.explaining.words import DERIVING, Words, few, name_of_step, user_name
from gradir.frontends.pytorch.private import ACCUMULATOR, Operator, schema_of, without_dispatch_modes, without_overrides
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.reading.distributed import in_process_group
from gradir.frontends.pytorch.reading.saved import saved_tensor
from gradir.frontends.pytorch.reading.tensors import extent_of, storage_of
from gradir.frontends.pytorch.reading.walk import GradFn
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.places import Place
from gradir.frontends.pytorch.recording.steps import ARRAYS, FROM_OUTSIDE, Exit, Held, Step, Value
from gradir.frontends.walks import grouped, reached
from gradir.ir import Saved

_MOST_LATER: Final = 3


class Write(NamedTuple):
    """The first write to what ``savers`` had saved, these ``values``, and some writes that came later."""

    step: Step
    later: list[Step]
    savers: dict[At, Step]
    values: dict[Value, None]


def writes_over_saved(flow: Flow, live: LiveGraph) -> list[Write]:
    """Of each place the first write that made a saved tensor stale, with some from other places that followed."""
    found: dict[At, Write] = {}
    writes = _Writes(flow)
    for fn, node_id in live.grad_fns.items():
        for slot in live.graph.nodes[node_id].saved:
            saver = flow.maker_of(fn)
            later = writes.after(saver, saved_tensor(fn, slot.slot), slot) if slot.state == "stale" else {}
            if later:
                (first, write_step), *others = later.items()
                write = found.setdefault(first, Write(write_step, [step for _, step in others], {}, {}))
                if saver != FROM_OUTSIDE:
                    step = flow.steps[saver]
                    write.savers.setdefault((step.called, step.place), step)
                    write.values.update(dict.fromkeys(writes.written(saver, write.step)))
    return list(found.values())


class _Writes:
    """Knows the first writes to a memory after a step, as autograd sees them, one of each place."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        # By memory the numbers of the steps that write to it, and what is first from each of them on.
        self._known: dict[int | Value, tuple[list[int], list[dict[At, Step]]]] = {}

    def after(self, saving: int, saved: torch.Tensor | None, slot: Saved) -> dict[At, Step]:
        """Return the first writes after a step to what it saved."""
        # Where torch does not show what is stale, its memory is known by the value that first had it.
        storage: int | Value | None = self._only_written(saving, slot) if saved is None else storage_of(saved)
        if storage is None:
            return {}
        if storage not in self._known:
            writes = self._flow.writes(storage) if isinstance(storage, int) else self._by_owner[storage]
            self._known[storage] = self._look(writes)
        writes, firsts = self._known[storage]
        at = bisect_right(writes, saving)
        return firsts[at] if at < len(firsts) else {}

    def written(self, saver: int, write: Step) -> Iterator[Value]:
        """Yield the values of a step that another one writes to, or their owners for views without a name."""
        memories = self._memories(write)
        for value in (*(read.value for read in self._flow.steps[saver].inputs), *self._flow.made_by(saver)):
            owner = self._owners.get(value, value)
            if owner in memories:
                yield value if value in self._flow.variables else owner

    @cached_property
    def _owners(self) -> dict[Value, Value]:
        """Of each view, and of what was written to, the value that first had the memory."""
        found: dict[Value, Value] = {}
        for index, step in enumerate(self._flow.steps):
            shared = step.lenders()
            if len(shared) == 1:
                found.update(dict.fromkeys(self._flow.made_by(index), found.get(shared[0], shared[0])))
        return found

    @cached_property
    def _by_owner(self) -> dict[Value, list[int]]:
        return grouped(
            (memory, index)
            for index, step in enumerate(self._flow.steps)
            if "inplace" in step.kinds and not self._is_unseen(step)
            for memory in self._memories(step)
        )

    def _memories(self, write: Step) -> set[Value]:
        return {self._owners.get(read.value, read.value) for read in write.of_kind("inplace")}

    def _only_written(self, saving: int, slot: Saved) -> Value | None:
        """Return the memory that a slot of a step may have saved, if later steps wrote to one such memory alone."""
        if saving == FROM_OUTSIDE:
            return None
        is_result = slot.slot.startswith("result")
        inputs = [read.value for read in self._flow.steps[saving].inputs]
        memories = {
            self._owners.get(value, value)
            for value in (self._flow.made_by(saving) if is_result else inputs)
            if slot.shape is None or self._flow.meta_of(value).shape == slot.shape
        }
        written = [memory for memory in memories if self._by_owner.get(memory, [FROM_OUTSIDE])[-1] > saving]
        return written[0] if len(written) == 1 else None

    def _look(self, written: Sequence[int]) -> tuple[list[int], list[dict[At, Step]]]:
        writes = [index for index in written if not self._is_unseen(self._flow.steps[index])]
        firsts = list[dict[At, Step]]()
        newest: dict[At, Step] = {}
        for index in reversed(writes):
            step = self._flow.steps[index]
            key = step.called, step.place
            others = ((other, later) for other, later in newest.items() if other != key)
            newest = {key: step, **dict(islice(others, _MOST_LATER))}
            firsts.append(newest)
        return writes, firsts[::-1]

    def _is_unseen(self, write: Step) -> bool:
        """Return whether a step writes to the ``.data`` of a tensor, which autograd does not count."""
        return any(step.called == "data" for step in self._flow.views(write.of_kind("inplace")[0].value))


def explain_forward(words: Words, error: str) -> Iterator[Cause]:
    """Explain an error of the last failed operation, of the program, or else of the backward."""
    flow = words.flow
    failed = flow.failure
    # The program may have gone on after an operation failed, and have ended by another error.
    if flow.end is not None and (failed is None or failed.failed != error == flow.end.failed):
        yield words.cause("raised", "error", "", [], flow.end.place, detail=error)
        return
    if failed is None:
        yield words.cause("backward", "error", "", [], None, detail=error)
        return
    made = [read.value for read in failed.reads if read.value.maker != FROM_OUTSIDE]
    inferred = [value for value in made if flow.steps[value.maker].mode == "inference_mode"]
    for value in inferred:
        step = flow.steps[value.maker]
        behind = words.names_of(read.value for read in step.inputs if read.is_leaf)
        names = list(behind) or words.called([value])
        yield words.cause("inference_mode", "error", name_of_step(step), names, step.place, detail=error)
    off = None if inferred else _ran_without(flow, failed)
    if off is not None:
        yield words.cause("graphless", "error", name_of_step(off), [], off.place, detail=error)
    elif not inferred:
        yield words.cause("raised", "error", failed.called.strip("_"), [], failed.place, detail=error)


def _ran_without(flow: Flow, failed: Exit) -> Step | None:
    """Return the first step under no_grad that made what a derivative was to be taken of."""
    if failed.called not in DERIVING or not failed.reads or failed.reads[0].carries:
        return None

    def behind(value: Value) -> list[Value]:
        step = flow.step_of(value)
        return [read.value for read in step.inputs] if step is not None and step.mode == "no_grad" else []

    makers = {value.maker for value in reached([failed.reads[0].value], behind)} - {FROM_OUTSIDE}
    ran = (flow.steps[index] for index in sorted(makers))
    return next((step for step in ran if step.mode == "no_grad" and any(read.carries for read in step.inputs)), None)


def explain_backward(flowing: Flowing, live: LiveGraph, words: Words, error: str) -> Iterator[Cause]:
    """Explain an error of a backward by saved tensors that were written to, or freed."""
    writes = writes_over_saved(words.flow, live)
    for write in writes:
        leaves = updated_leaves(write.step)
        names = words.names_of(map(flowing.root, leaves)) if leaves else words.called(write.values)
        savers, later = (few(map(words.called_at, steps)) for steps in (write.savers.values(), write.later))
        detail = "; ".join([savers] * bool(savers) + [f"later writes: {later}"] * bool(later))
        kind, op = "updated" if leaves else "inplace", name_of_step(write.step)
        yield words.cause(kind, "error", op, names, write.step.place, detail=detail)
    if not writes:
        yield _of_freed(flowing, live, words, error)


def _of_freed(flowing: Flowing, live: LiveGraph, words: Words, error: str) -> Cause:
    freed = [*_freed_steps(words.flow, live)]
    if not freed:
        step = next((step for step in words.flow.steps if _has_no_derivative(step, error)), None)
        place = None if step is None else step.place
        return words.cause("raised", "error", "the backward", [], place, detail=error)
    operation, first = freed[0]
    steps = words.flow.steps
    operation = user_name(operation, None if first == FROM_OUTSIDE else steps[first])
    place = None if first == FROM_OUTSIDE else steps[first].place
    carried, border = find_carried_over(words.flow, flowing.ends, {index for _, index in freed}) or ([], FROM_OUTSIDE)
    by = "" if border == FROM_OUTSIDE else words.line(steps[border].place)
    if not carried:
        detail = "what is carried over from before that backward is not known"
    elif flowing.ends.isdisjoint(carried):
        verb = "are" if len(carried) > 1 else "is"
        users = (step for step in steps[border + 1 :] if any(read.value in carried for read in step.inputs))
        user = next((step for step in users if step.called not in DERIVING), None)
        again = "" if user is None else f", and {words.called_at(user)} uses {'them' if verb == 'are' else 'it'} again"
        detail = f"{few(map(words.made_as, carried))} {verb} carried over from before that backward{again}"
        place = steps[max(carried).maker].place or place
    else:
        carried, detail = [], "the loss was computed before that backward too"
    detail = f"{detail}; that backward ran {by}" if by else detail
    return words.cause("freed", "error", operation, words.called(carried), place, detail=detail)


def _has_no_derivative(step: Step, error: str) -> bool:
    """Return whether an error says that torch has no derivative of an operation that took what requires grad."""
    if not isinstance(step.func, Operator) or not any(read.carries for read in step.inputs):
        return False
    return f"derivative for {schema_of(step.func).name} is not implemented" in error


def is_spent(flow: Flow, live: LiveGraph, captured: Iterable[torch.Tensor]) -> bool:
    """Whether a backward from what was captured has freed the graph, as it should, and not one that ran before."""
    steps = {index for _, index in _freed_steps(flow, live)}
    if not steps:
        return False
    last = max(map(flow.value_of, captured)).maker
    before: Step | None = None
    for step in flow.steps[max(min(steps), 0) : last]:
        is_first = before is None or (before.called, before.place) != (step.called, step.place)
        if step.called in DERIVING and is_first and _may_free(flow, step, steps):
            return False
        before = step
    return True


def _may_free(flow: Flow, start: Step, freed: Collection[int]) -> bool:
    """Whether a backward that begins with a step goes through what is freed, as far as is known what it is of."""
    if FROM_OUTSIDE in freed:
        return True
    if not start.func.__name__.startswith("ones_like"):
        # Of a gradient that is given nothing tells which tensor it is for.
        return False
    behind = reached((read.value for read in start.inputs), partial(_gone_back_to, flow))
    return any(value.maker in freed for value in behind)


def _gone_back_to(flow: Flow, value: Value) -> list[Value]:
    """Return the values of which the graph of one was made; inside a custom Function nothing carries a gradient."""
    step = flow.step_of(value)
    return [
        read.value
        for read in (() if step is None else step.inputs)
        if not read.is_leaf
        and (read.carries or (step is not None and step.inside is not None and read.value.maker != FROM_OUTSIDE))
    ]


def find_carried_over(flow: Flow, ends: Iterable[Value], freed: Collection[int]) -> tuple[list[Value], int] | None:
    """Return the values from before a backward that the graph of ``ends`` uses, and the first step of that backward.

    ``freed`` are the steps whose saved tensors are freed, `FROM_OUTSIDE` for steps that were not recorded. Return
    ``None`` if no recorded backward may have freed them.
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
    seen = reached(ends, lambda value: _gone_back_to(flow, value) if value.maker > border else ())
    return sorted(value for value in seen if value.maker <= border and value.maker in spent), border


def _freed_steps(flow: Flow, live: LiveGraph) -> Iterator[tuple[str, int]]:
    """Yield the functions of a graph whose saved tensors are freed: the operation of each and the place of its step."""
    for fn, node_id in live.grad_fns.items():
        node = live.graph.nodes[node_id]
        if any(slot.state == "freed" for slot in node.saved):
            yield node.op, flow.maker_of(fn)


_Brought: TypeAlias = "tuple[torch.Tensor, torch.Tensor | None]"

# A gradient must differ by the precision of its dtype, raised to this power, times its largest number.
_CLEAR: Final = 0.5


class Overwrite(NamedTuple):
    """The first write at a place to what ``savers`` had saved, and the leaves whose gradient is wrong for it."""

    op: str
    place: Place | None
    savers: list[Step]
    leaves: set[int]
    how: tuple[str, ...]


def find_overwrites(flow: Flow, flowing: Flowing, live: LiveGraph) -> list[Overwrite]:
    """Return by place the unseen writes that make a gradient wrong, with the ids of the leaves."""
    changed = dict(_changed(flow, flowing, live))
    if not changed:
        return []
    pairs = zip(run_backward(live, list), _as_saved(live, changed), strict=True)
    wrong = {id(leaf) for (leaf, one), (_, other) in pairs if _differ(one, other)}
    groups: dict[tuple[str, Place | None], tuple[Held, list[GradFn]]] = {}
    for fn, parts in changed.items():
        first = next(part.held for part in parts if not torch.equal(part.now, part.held.numbers))
        groups.setdefault((first.called, first.place), (first, []))[1].append(fn)
    found = []
    for held, fns in groups.values():
        behind = reached(fns, lambda fn: (child for child, _ in fn.next_functions if child is not None))
        leaves = wrong & {id(fn.variable) for fn in behind if type(fn).__name__ == ACCUMULATOR}
        if leaves:
            is_array = held.called in ARRAYS
            op = held.called.strip("_") if is_array else name_of_step(flow.steps[held.before])
            savers = [flow.steps[flow.maker_of(fn)] for fn in fns]
            how = ("the array that it gave has the same memory, and was written to",) if is_array else ()
            found.append(Overwrite(op, held.place, savers, leaves, how))
    return found


def communicates(live: LiveGraph) -> bool:
    """Return whether a backward may exchange something with other processes, which one of them alone must not start."""
    return in_process_group() and any(
        isinstance(fn, BackwardCFunction) or "c10d" in type(fn).__name__ for fn in live.grad_fns
    )


class _Part(NamedTuple):
    now: torch.Tensor
    held: Held


def _changed(flow: Flow, flowing: Flowing, live: LiveGraph) -> Iterator[tuple[GradFn, list[_Part]]]:
    """Yield the functions of which something saved is not what it was, with what it was, the oldest first."""
    by_memory = grouped((held.memory, held) for held in flow.overwritten.held)
    backwards = list(_backwards(flow, flowing)) if by_memory else []
    for fn, node_id in live.grad_fns.items() if by_memory else ():
        saver = flow.maker_of(fn)
        if saver == FROM_OUTSIDE:
            continue
        later = bisect_right(backwards, saver)
        next_backward = backwards[later] if later < len(backwards) else len(flow.steps)
        parts = []
        for slot in live.graph.nodes[node_id].saved:
            saved = saved_tensor(fn, slot.slot) if slot.state == "held" else None
            memory = None if saved is None else storage_of(saved)
            if saved is None or memory not in by_memory or saver < flow.overwritten.lost.get(memory, 0):
                continue
            for held in by_memory[memory]:
                # What a backward has gone through may be written over.
                if saver < held.before <= next_backward:
                    now = held.part_of(saved.untyped_storage())
                    (first, last), (start, end) = extent_of(saved), extent_of(saved if now is None else now)
                    # Both parts of the memory may have an entry in common.
                    parts += [_Part(now, held)] if now is not None and first < end and start < last else []
        # Of the same part the oldest is what was saved.
        oldest = {(part.held.memory, part.held.offset, part.now.shape, part.held.strides): part for part in parts[::-1]}
        found = sorted(oldest.values(), key=lambda part: part.held.before)
        if not all(torch.equal(part.now, part.held.numbers) for part in found):
            yield fn, found


def _backwards(flow: Flow, flowing: Flowing) -> Iterator[int]:
    """Yield the steps at which a backward may have run from what is or becomes part of the captured tensors."""
    before: Step | None = None
    related, is_ours = set(flowing.ends), True
    for index, step in enumerate(flow.steps):
        reads = {read.value for read in step.inputs}
        if not related.isdisjoint(reads):
            related.update(flow.made_by(index))
        if step.called in DERIVING:
            starts = step.mode == "grad" and step.func.__name__.startswith("ones_like")
            if starts or before is None or (before.called, before.place) != (step.called, step.place):
                is_ours = not starts or not reads.isdisjoint(related | flowing.wanted)
            if is_ours:
                yield index
        before = step


def _as_saved(live: LiveGraph, changed: Mapping[GradFn, Sequence[_Part]]) -> list[_Brought]:
    """Run a backward in which every function finds what it had saved, and restore everything."""
    put_aside: dict[GradFn, list[torch.Tensor]] = {}

    def before(fn: GradFn) -> None:
        with torch.no_grad(), without_dispatch_modes(), without_overrides():
            put_aside[fn] = [part.now.clone() for part in changed[fn]]
            for part in reversed(changed[fn]):
                part.now.copy_(part.held.numbers)

    def after(fn: GradFn) -> None:
        with torch.no_grad(), without_dispatch_modes(), without_overrides():
            for part, numbers in zip(changed[fn], put_aside.pop(fn), strict=True):
                part.now.copy_(numbers)

    def register() -> Iterator[RemovableHandle]:
        for fn in changed:
            yield fn.register_prehook(lambda _, fn=fn: before(fn))
            yield fn.register_hook(lambda *_, fn=fn: after(fn))

    try:
        return run_backward(live, register)
    finally:
        # The function that raised has not put it back.
        for fn in [*put_aside]:
            after(fn)


def _differ(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None or one.layout is not torch.strided or one.shape != other.shape:
        return False
    with torch.no_grad():
        largest = torch.maximum(one.abs().max(), other.abs().max()) if one.numel() else torch.zeros(())
        clear = largest * torch.finfo(one.dtype).eps ** _CLEAR
        # Nothing is clear of what is not finite.
        return bool(torch.isfinite(largest)) and one.numel() > 0 and bool(((one - other).abs() > clear).any())
