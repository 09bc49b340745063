"""Why an operation of a forward raised, or its backward does: what it saved was written to, or freed by another one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

import torch

from gradir.explanations.model import Cause
from gradir.frontends.pytorch.explaining.cuts import Flowing, updated_leaves
from gradir.frontends.pytorch.explaining.kinds import DERIVING
from gradir.frontends.pytorch.explaining.words import Words, called, few, plainly
from gradir.frontends.pytorch.private import Operator, schema_of, sequence_number
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.reading.saved import saved_tensor
from gradir.frontends.pytorch.reading.tensors import storage_of
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.places import Place
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Exit, Step, Value
from gradir.ir import Saved

__all__ = ["Write", "is_spent", "of_backward", "of_forward", "writes_over_saved"]

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


def of_forward(words: Words, error: str) -> Iterator[Cause]:
    """Why the operation that failed last, or the program itself, raised an error; without either, the backward did."""
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
        yield words.cause("inference_mode", "error", called(step), names, step.place, detail=error)
    off = None if inferred else _ran_without(flow, failed)
    if off is not None:
        yield words.cause("graphless", "error", called(off), [], off.place, detail=error)
    elif not inferred:
        yield words.cause("raised", "error", failed.called.strip("_"), [], failed.place, detail=error)


def _ran_without(flow: Flow, failed: Exit) -> Step | None:
    """The first step under no_grad that made what a derivative was to be taken of."""
    if failed.called not in DERIVING or not failed.reads or failed.reads[0].carries:
        return None
    found, waiting, seen = None, [failed.reads[0].value], set[Value]()
    while waiting:
        value = waiting.pop()
        step = flow.step_of(value)
        if value in seen or step is None or step.mode != "no_grad":
            continue
        seen.add(value)
        waiting.extend(read.value for read in step.inputs)
        if any(read.carries for read in step.inputs) and (found is None or value.maker < found.maker):
            found = value
    return None if found is None else flow.step_of(found)


def of_backward(
    flowing: Flowing, live: LiveGraph, made: Mapping[int, int], words: Words, error: str
) -> Iterator[Cause]:
    """Why a backward through a graph raised an error: what it saved was written to, or freed.

    ``made`` has the place of the step that made each grad_fn, by sequence number.
    """
    writes = writes_over_saved(words.flow, live, made)
    for write in writes:
        leaves = updated_leaves(write.step)
        names = words.names_of(map(flowing.root, leaves)) if leaves else words.called(write.values)
        savers, later = (few(map(words.called_at, steps)) for steps in (write.savers.values(), write.later))
        detail = "; ".join([savers] * bool(savers) + [f"later writes: {later}"] * bool(later))
        kind, op = "updated" if leaves else "inplace", called(write.step)
        yield words.cause(kind, "error", op, names, write.step.place, detail=detail)
    if not writes:
        yield _of_freed(flowing, live, made, words, error)


def _of_freed(flowing: Flowing, live: LiveGraph, made: Mapping[int, int], words: Words, error: str) -> Cause:
    freed = [*_freed_steps(live, made)]
    if not freed:
        step = next((step for step in words.flow.steps if _has_no_derivative(step, error)), None)
        place = None if step is None else step.place
        return words.cause("raised", "error", "the backward", [], place, detail=error)
    operation, first = freed[0]
    steps = words.flow.steps
    operation = plainly(operation, None if first == FROM_OUTSIDE else steps[first])
    place = None if first == FROM_OUTSIDE else steps[first].place
    carried, border = carried_over(words.flow, flowing.ends, {index for _, index in freed}) or ([], FROM_OUTSIDE)
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
    """Whether an error says that torch has no derivative of an operation that took what requires grad."""
    if not isinstance(step.func, Operator) or not any(read.carries for read in step.inputs):
        return False
    return f"derivative for {schema_of(step.func).name} is not implemented" in error


def is_spent(flow: Flow, live: LiveGraph, made: Mapping[int, int], captured: Iterable[torch.Tensor]) -> bool:
    """Whether a backward from what was captured has freed the graph, as it should, and not one that ran before.

    ``made`` has the place of the step that made each grad_fn, by sequence number.
    """
    steps = {index for _, index in _freed_steps(live, made)}
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
    waiting = [read.value for read in start.inputs]
    seen = set(waiting)
    while waiting:
        maker = waiting.pop().maker
        if maker in freed:
            return True
        if maker == FROM_OUTSIDE:
            continue
        step = flow.steps[maker]
        for read in step.inputs:
            # Inside a custom Function nothing carries a gradient.
            if read.value not in seen and not read.is_leaf and (read.carries or step.inside is not None):
                seen.add(read.value)
                waiting.append(read.value)
    return False


def carried_over(flow: Flow, ends: Iterable[Value], freed: Collection[int]) -> tuple[list[Value], int] | None:
    """The values from before a backward, through its freed steps, to which the graph of ``ends`` goes back.

    The number is that of the first step of that backward.

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
    return sorted(value for value in seen if value.maker <= border and value.maker in spent), border


def _freed_steps(live: LiveGraph, made: Mapping[int, int]) -> Iterator[tuple[str, int]]:
    """The functions of a graph whose saved tensors are freed: the operation of each and the place of its step."""
    for fn, node_id in live.grad_fns.items():
        node = live.graph.nodes[node_id]
        if any(slot.state == "freed" for slot in node.saved):
            yield node.op, made.get(sequence_number(fn), FROM_OUTSIDE)
