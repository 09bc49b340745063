"""Explain errors of a forward pass, and of a backward pass with changed or freed saved tensors."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import islice
from typing import Final, NamedTuple

import torch

from gradir.explanations.model import Cause
from gradir.frontends.pytorch.explaining.cuts import At, Flowing
from gradir.frontends.pytorch.explaining.naming import Namer, list_first, name_in_program, operation_name
from gradir.frontends.pytorch.explaining.step_kinds import (
    DERIVING,
    find_updated_leaves,
    replace_by_function_call,
)
from gradir.frontends.pytorch.private import Operator, schema_of, sequence_number
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.frontends.pytorch.reading.saved import read_saved_tensor
from gradir.frontends.pytorch.reading.tensors import storage_of
from gradir.frontends.pytorch.reading.walk import GradFn
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.places import Place
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Exit, Step, Value
from gradir.frontends.walks import find_reachable
from gradir.ir import Saved
from gradir.ir.memo import group_by_key

# The number of later writes that an error names besides the first.
_MOST_LATER: Final = 3
_RETURNED: Final = re.compile(r"[Ff]unction '?(\w+?)Backward'? returned ")


class Write(NamedTuple):
    """The first write to ``values`` that ``savers`` had saved, and some later writes."""

    step: Step
    later: list[Step]
    savers: dict[At, Step]
    values: dict[Value, None]


def find_stale_writes(flow: Flow, live: LiveGraph) -> list[Write]:
    """Return by place the first write that made a saved tensor stale, with some later writes from other places."""
    found: dict[At, Write] = {}
    writes = _Writes(flow)
    for fn, node_id in live.grad_fns.items():
        for slot in (slot for slot in live.graph.nodes[node_id].saved if slot.state == "stale"):
            saved = read_saved_tensor(fn, slot.slot)
            found_by = ((saver, writes.find_after(saver, saved, slot)) for saver in _find_savers(flow, fn))
            saver, later = next((each for each in found_by if each[1]), (FROM_OUTSIDE, {}))
            if later:
                (first, write_step), *others = later.items()
                write = found.setdefault(first, Write(write_step, [step for _, step in others], {}, {}))
                if saver != FROM_OUTSIDE:
                    step = replace_by_function_call(flow.steps[saver])
                    write.savers.setdefault((step.called, step.place), step)
                    write.values.update(dict.fromkeys(writes.find_values(saver, write.step)))
    return list(found.values())


def _find_savers(flow: Flow, fn: GradFn) -> list[int]:
    """Return the step that made a function, or the steps inside a custom Function, newest first."""
    made, number = flow.maker_of(fn), sequence_number(fn) + 1
    inside = (at for at, step in enumerate(flow.steps) if step.inside is not None and step.number == number)
    return [made] if made != FROM_OUTSIDE else [*inside][::-1] or [made]


class _Writes:
    """Finds the first writes to a storage after a step that autograd counts, one of each place."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        # The numbers of the steps that write to each storage, and the first writes from each of them on.
        self._known: dict[int | Value, tuple[list[int], list[dict[At, Step]]]] = {}

    def find_after(self, saving: int, saved: torch.Tensor | None, slot: Saved) -> dict[At, Step]:
        # If torch does not show a stale tensor, the first value in its storage identifies the storage.
        storage: int | Value | None = self._find_only_written(saving, slot) if saved is None else storage_of(saved)
        if storage is None:
            return {}
        if storage not in self._known:
            writes = self._flow.writes(storage) if isinstance(storage, int) else self._by_owner[storage]
            self._known[storage] = self._firsts_from(writes)
        writes, firsts = self._known[storage]
        at = bisect_right(writes, saving)
        return firsts[at] if at < len(firsts) else {}

    def find_values(self, saver: int, write: Step) -> Iterator[Value]:
        """Yield the values of a step that another one writes to, or the bases of views without a name."""
        owners = self._find_owners(write)
        for value in (*(read.value for read in self._flow.steps[saver].inputs), *self._flow.values_of_step(saver)):
            owner = self._owners.get(value, value)
            if owner in owners:
                yield value if value in self._flow.variables else owner

    @cached_property
    def _owners(self) -> dict[Value, Value]:
        """The first value in the storage of each view and of each value that was written to."""
        found: dict[Value, Value] = {}
        for index, step in enumerate(self._flow.steps):
            shared = step.lenders()
            if len(shared) == 1:
                found.update(dict.fromkeys(self._flow.values_of_step(index), found.get(shared[0], shared[0])))
        return found

    @cached_property
    def _by_owner(self) -> dict[Value, list[int]]:
        writes = ((index, step) for index, step in enumerate(self._flow.steps) if "inplace" in step.kinds)
        seen = ((index, step) for index, step in writes if not self._is_unseen(step))
        return group_by_key((owner, index) for index, step in seen for owner in self._find_owners(step))

    def _find_owners(self, write: Step) -> set[Value]:
        return {self._owners.get(read.value, read.value) for read in write.inputs_of_kind("inplace")}

    def _find_only_written(self, saving: int, slot: Saved) -> Value | None:
        """Return the owner of the only later written storage that a slot may have saved."""
        if saving == FROM_OUTSIDE:
            return None
        inputs = [read.value for read in self._flow.steps[saving].inputs]
        values = self._flow.values_of_step(saving) if slot.slot.startswith("result") else inputs
        fitting = (each for each in values if slot.shape is None or self._flow.meta_of(each).shape == slot.shape)
        owners = {self._owners.get(value, value) for value in fitting}
        written = [owner for owner in owners if self._by_owner.get(owner, [FROM_OUTSIDE])[-1] > saving]
        return written[0] if len(written) == 1 else None

    def _firsts_from(self, indices: Sequence[int]) -> tuple[list[int], list[dict[At, Step]]]:
        writes = [index for index in indices if not self._is_unseen(self._flow.steps[index])]
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
        return any(step.called == "data" for step in self._flow.views(write.inputs_of_kind("inplace")[0].value))


def explain_forward(words: Namer, error: str) -> Iterator[Cause]:
    """Explain an error of the last failed operation, of the program, or else of the backward."""
    flow = words.flow
    failed = flow.failure
    # The program may continue after an operation failed, and end with another error.
    is_other = flow.end is not None and (failed is None or failed.failed != error == flow.end.failed)
    if failed is None or is_other:
        kind, place = ("backward", None) if flow.end is None else ("raised", flow.end.place)
        yield words.cause(kind, "error", "", [], place, detail=error)
        return
    made = [read.value for read in failed.reads if read.value.maker != FROM_OUTSIDE]
    inferred = [value for value in made if flow.steps[value.maker].mode == "inference_mode"]
    for value in inferred:
        step = flow.steps[value.maker]
        names = [*words.names_of(read.value for read in step.inputs if read.is_leaf)] or words.list_names([value])
        yield words.cause("inference_mode", "error", operation_name(step), names, step.place, detail=error)
    off = None if inferred else _find_without_graph(flow, failed)
    if off is not None:
        yield words.cause("graphless", "error", operation_name(off), [], off.place, detail=error)
    elif not inferred:
        yield words.cause("raised", "error", failed.called.strip("_"), [], failed.place, detail=error)


def _find_without_graph(flow: Flow, failed: Exit) -> Step | None:
    """Return the first step under no_grad that computed the tensor of a failed derivative."""
    if failed.called not in DERIVING or not failed.reads or failed.reads[0].carries:
        return None

    def find_sources(value: Value) -> list[Value]:
        step = flow.step_of(value)
        return [read.value for read in step.inputs] if step is not None and step.mode == "no_grad" else []

    makers = {value.maker for value in find_reachable([failed.reads[0].value], find_sources)} - {FROM_OUTSIDE}
    ran = (flow.steps[index] for index in sorted(makers))
    return next((step for step in ran if step.mode == "no_grad" and any(read.carries for read in step.inputs)), None)


def explain_backward(
    flowing: Flowing, live: LiveGraph, words: Namer, error: str, failed_at: Place | None
) -> Iterator[Cause]:
    """Explain an error of a backward by changed or freed saved tensors, or by its line."""
    writes = find_stale_writes(words.flow, live)
    for write in writes:
        leaves = find_updated_leaves(write.step)
        names = words.names_of(map(flowing.root, leaves)) if leaves else words.list_names(write.values)
        savers, later = (list_first(map(words.describe_step, steps)) for steps in (write.savers.values(), write.later))
        detail = "; ".join([savers] * bool(savers) + [f"later writes: {later}"] * bool(later))
        kind, op = "updated" if leaves else "inplace", operation_name(write.step)
        yield words.cause(kind, "error", op, names, write.step.place, detail=detail)
    if not writes:
        yield _explain_freed(flowing, live, words, error, failed_at)


def _explain_freed(flowing: Flowing, live: LiveGraph, words: Namer, error: str, failed_at: Place | None) -> Cause:
    freed, steps = [*_freed_steps(words.flow, live)], words.flow.steps
    if not freed:
        underived = (step for step in steps if _has_no_derivative(step, error))
        returned = _RETURNED.search(error)
        step = next(underived, None) or (find_function_call(steps, returned[1]) if returned else None)
        place = failed_at if step is None else step.place
        return words.cause("raised", "error", "the backward", [], place, detail=error)
    operation, first = freed[0]
    operation = name_in_program(operation, None if first == FROM_OUTSIDE else steps[first])
    place = None if first == FROM_OUTSIDE else steps[first].place
    carried, border = find_carried_over(words.flow, flowing.ends, {index for _, index in freed}) or ([], FROM_OUTSIDE)
    by = "" if border == FROM_OUTSIDE else words.line(steps[border].place)
    if not carried:
        detail = "gradir does not know which values come from before that backward"
    elif flowing.ends.isdisjoint(carried):
        origins = [*dict.fromkeys(map(words.describe_origin, carried))]
        verb, them = ("are", "them") if len(origins) > 1 else ("is", "it")
        users = (step for step in steps[border + 1 :] if any(read.value in carried for read in step.inputs))
        user = next((step for step in users if step.called not in DERIVING), None)
        again = "" if user is None else f", and {words.describe_step(user)} uses {them} again"
        detail = f"{list_first(origins)} {verb} carried over from before that backward{again}"
        place = steps[max(carried).maker].place or place
    else:
        carried, detail = [], "the loss was computed before that backward too"
    detail = f"{detail}; that backward ran {by}" if by else detail
    return words.cause("freed", "error", operation, words.list_names(carried), place, detail=detail)


def find_function_call(steps: Sequence[Step], name: str) -> Step | None:
    """Return the last call of a custom Function of this name that ran any operation."""
    ran = (replace_by_function_call(step) for step in reversed(steps) if step.inside is not None)
    return next((step for step in ran if step.called == name), None)


def _has_no_derivative(step: Step, error: str) -> bool:
    """Return whether an error says that torch has no derivative of a step whose inputs require grad."""
    if not isinstance(step.func, Operator) or not any(read.carries for read in step.inputs):
        return False
    return f"derivative for {schema_of(step.func).name} is not implemented" in error


def is_spent(flow: Flow, live: LiveGraph, captured: Iterable[torch.Tensor]) -> bool:
    """Return whether a backward of the captured tensors freed the graph, and not one that ran before."""
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
    """Return whether a backward that begins with a step may go through freed steps."""
    if FROM_OUTSIDE in freed:
        return True
    # The tensor of a gradient that the program passes is unknown.
    is_of_number = start.func.__name__.startswith("ones_like")
    sources = find_reachable((read.value for read in start.inputs), partial(_inputs_with_graph, flow))
    return is_of_number and any(value.maker in freed for value in sources)


def _inputs_with_graph(flow: Flow, value: Value) -> list[Value]:
    """Return the inputs through which the graph of a value continues."""
    step = flow.step_of(value)
    if step is None:
        return []
    inputs = (read for read in step.inputs if not read.is_leaf)
    # Inside a custom Function, no value carries a gradient.
    is_inside = step.inside is not None
    return [read.value for read in inputs if read.carries or (is_inside and read.value.maker != FROM_OUTSIDE)]


def find_carried_over(flow: Flow, ends: Iterable[Value], freed: Collection[int]) -> tuple[list[Value], int] | None:
    """Return the values from before a backward that ``ends`` use, and its first step."""
    # The recording may not have the backward that freed the saved tensors of these steps.
    newest = max(freed)
    deriving = (index for index in range(newest + 1, len(flow.steps)) if flow.steps[index].called in DERIVING)
    border = FROM_OUTSIDE if newest == FROM_OUTSIDE else next(deriving, None)
    if border is None:
        return None
    spent = set[int](freed)
    for index, step in enumerate(flow.steps[: border + 1]):
        if any(read.carries and not read.is_leaf and read.value.maker in spent for read in step.inputs):
            spent.add(index)
    seen = find_reachable(ends, lambda value: _inputs_with_graph(flow, value) if value.maker > border else ())
    return sorted(value for value in seen if value.maker <= border and value.maker in spent), border


def _freed_steps(flow: Flow, live: LiveGraph) -> Iterator[tuple[str, int]]:
    """Yield the operation and the step number of each function of a graph with freed saved tensors."""
    for fn, node_id in live.grad_fns.items():
        node = live.graph.nodes[node_id]
        if any(slot.state == "freed" for slot in node.saved):
            yield node.op, flow.maker_of(fn)
