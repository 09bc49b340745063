"""Why an operation of a forward raised, and what becomes of a backward whose saved tensors were written to or freed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import islice
from typing import Final, NamedTuple

import torch

from gradir.explanations.model import Cause
from gradir.frontends.pytorch.explaining.cuts import At, Flowing
from gradir.frontends.pytorch.explaining.naming import Words, few, name_of_step, user_name
from gradir.frontends.pytorch.explaining.step_kinds import DERIVING, updated_leaves
from gradir.frontends.pytorch.private import Operator, schema_of
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.reading.saved import saved_tensor
from gradir.frontends.pytorch.reading.tensors import storage_of
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Exit, Step, Value
from gradir.frontends.walks import grouped, reached
from gradir.ir import Saved

# How many later writes an error names beside the first.
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
        # Where torch does not show what is stale, its memory is known by the value that first had it.
        storage: int | Value | None = self._only_written(saving, slot) if saved is None else storage_of(saved)
        if storage is None:
            return {}
        if storage not in self._known:
            writes = self._flow.writes(storage) if isinstance(storage, int) else self._by_owner[storage]
            self._known[storage] = self._firsts_from(writes)
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
        written = ((index, step) for index, step in enumerate(self._flow.steps) if "inplace" in step.kinds)
        seen = ((index, step) for index, step in written if not self._is_unseen(step))
        return grouped((memory, index) for index, step in seen for memory in self._memories(step))

    def _memories(self, write: Step) -> set[Value]:
        return {self._owners.get(read.value, read.value) for read in write.of_kind("inplace")}

    def _only_written(self, saving: int, slot: Saved) -> Value | None:
        """Return the memory that a slot of a step may have saved, if later steps wrote to one such memory alone."""
        if saving == FROM_OUTSIDE:
            return None
        inputs = [read.value for read in self._flow.steps[saving].inputs]
        values = self._flow.made_by(saving) if slot.slot.startswith("result") else inputs
        fitting = (each for each in values if slot.shape is None or self._flow.meta_of(each).shape == slot.shape)
        memories = {self._owners.get(value, value) for value in fitting}
        written = [memory for memory in memories if self._by_owner.get(memory, [FROM_OUTSIDE])[-1] > saving]
        return written[0] if len(written) == 1 else None

    def _firsts_from(self, written: Sequence[int]) -> tuple[list[int], list[dict[At, Step]]]:
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
    is_other = flow.end is not None and (failed is None or failed.failed != error == flow.end.failed)
    if failed is None or is_other:
        kind, place = ("backward", None) if flow.end is None else ("raised", flow.end.place)
        yield words.cause(kind, "error", "", [], place, detail=error)
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
    freed, steps = [*_freed_steps(words.flow, live)], words.flow.steps
    if not freed:
        step = next((step for step in steps if _has_no_derivative(step, error)), None)
        return words.cause("raised", "error", "the backward", [], None if step is None else step.place, detail=error)
    operation, first = freed[0]
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
    # Of a gradient that is given nothing tells which tensor it is for.
    is_of_number = start.func.__name__.startswith("ones_like")
    behind = reached((read.value for read in start.inputs), partial(_gone_back_to, flow))
    return is_of_number and any(value.maker in freed for value in behind)


def _gone_back_to(flow: Flow, value: Value) -> list[Value]:
    """Return the values of which the graph of one was made."""
    step = flow.step_of(value)
    if step is None:
        return []
    inputs = (read for read in step.inputs if not read.is_leaf)
    # Inside a custom Function nothing carries a gradient.
    is_inside = step.inside is not None
    return [read.value for read in inputs if read.carries or (is_inside and read.value.maker != FROM_OUTSIDE)]


def find_carried_over(flow: Flow, ends: Iterable[Value], freed: Collection[int]) -> tuple[list[Value], int] | None:
    """Return the values from before a backward that the graph of ``ends`` uses, and the first step of that backward."""
    # These are the steps whose saved tensors are freed. Maybe no backward that was recorded has done that.
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
