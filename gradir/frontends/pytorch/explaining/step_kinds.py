"""The kinds of cuts that recorded steps make, and other facts about single steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import NoneType
from typing import Final

import torch
from torch.autograd.function import BackwardCFunction

from gradir.frontends.pytorch.private import CHECKPOINT, READS_A_NUMBER, SCALE_UPDATE, base_of, sequence_number
from gradir.frontends.pytorch.recording.flow import COPYING, Flow
from gradir.frontends.pytorch.recording.modes import CompiledPart
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, SCALES, SUMS, Exit, Read, Step, Value, plain_name
from gradir.frontends.pytorch.recording.timelines import calls_from
from gradir.frontends.walks import find_reachable

EXPLICIT: Final = frozenset(
    {"copied", "data", "detach", "inference_mode", "new_leaf", "no_create_graph", "no_grad", "rebuilt", "sample"}
)
"""Kinds that a program asks for; the others follow from its operations."""

_DRAWING: Final = frozenset({"binomial", "multinomial", "normal", "poisson", "sample_dirichlet", "standard_gamma"})
_DETACHING: Final = frozenset({"data", "detach", "detach_"})
# The start of the names of operations that take only the shape and dtype of a tensor, or update a `GradScaler`.
_OF_SHAPE_ALONE: Final = (SCALE_UPDATE, "empty", "full", "new_", "ones", "rand", "zeros")
DERIVING: Final = frozenset({"backward", "grad"})


class Kinds:
    """The kinds of recorded steps, by their numbers."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        # The places at which torch itself samples under no_grad, as `Distribution.sample` does.
        self._drawing = {
            step.place for step in steps if step.mode == "no_grad" and plain_name(step.func) in _DRAWING and step.place
        }
        # The step, such as `.data`, that gave a step its storage without its graph.
        self._detaching: dict[int, Step] = {}
        for number, step in enumerate(steps):
            if step.func.__name__.startswith("detach"):
                self._detaching[number] = step
            elif (lenders := step.lenders()) and lenders[0].maker in self._detaching:
                self._detaching[number] = self._detaching[lenders[0].maker]

    def of(self, number: int) -> str:
        """Return the kind of a step, its custom Function or the `.data` that it writes."""
        step = self._steps[number]
        if step.inside is not None:
            return "checkpoint" if is_in_checkpoint(step) else "nondifferentiable"
        kind = kind_of(step)
        if kind == "no_grad" and step.place in self._drawing:
            return "sample"
        through = self._detaching.get(number) if kind == "nondifferentiable" and "inplace" in step.kinds else None
        return kind if through is None else kind_of(through)


def is_in_checkpoint(step: Step) -> bool:
    """Return whether a step ran inside a reentrant checkpoint."""
    return step.inside is not None and f"{step.inside.called}Backward" == CHECKPOINT


def kind_of(step: Step) -> str:
    """Return the kind of a step by itself."""
    # An operator that takes functions has no tags.
    if torch.Tag.nondeterministic_seeded in getattr(step.func, "tags", ()):
        return "sample"
    if step.called in COPYING:
        return "rebuilt"
    if step.mode != "grad":
        return "no_create_graph" if step.called in DERIVING else step.mode
    if step.func.__name__.startswith("detach"):
        return "data" if step.called == "data" else "detach"
    return "compiled" if isinstance(step.func, CompiledPart) else "nondifferentiable"


def find_unseen_ends(flow: Flow, captured: Sequence[torch.Tensor]) -> Iterator[Value]:
    """Yield the captured tensors that were computed outside the recording, or written to after it."""
    for tensor in [tensor for tensor in captured if tensor.requires_grad] or captured:
        read = flow.read(tensor)
        is_outside = read.value.maker == FROM_OUTSIDE and not read.is_leaf
        # A custom Function takes its number before its operations, and a view may take one on access.
        has_number = flow.steps and not isinstance(tensor.grad_fn, (NoneType, BackwardCFunction))
        is_numbered = has_number and base_of(tensor) is None
        # A write after the last step, such as ``loss += other``, has a later number.
        if is_outside or (is_numbered and sequence_number(tensor.grad_fn) >= flow.steps[-1].number):
            yield read.value


def find_data_leaves(flow: Flow) -> dict[int, Value]:
    """Return, by step, the leaf whose ``.data`` it gives or shares."""
    found: dict[int, Value] = {}
    for number, step in enumerate(flow.steps):
        lent = step.inputs_of_kind("view", "inplace")
        if len(lent) != 1:
            continue
        # An embedding writes to its weight for ``max_norm``.
        if lent[0].is_leaf and step.called in {"data", "embedding", "embedding_bag"}:
            found[number] = lent[0].value
        elif not lent[0].is_leaf and lent[0].value.maker in found:
            found[number] = found[lent[0].value.maker]
    return found


def find_read_indices(flow: Flow) -> Iterator[tuple[int, tuple[Read, ...]]]:
    """Yield the steps that take an entry such as ``x[i]``, with the tensors that torch read as the index."""
    waiting: tuple[Read, ...] = ()
    previous: Step | None = None
    for number, step in enumerate(flow.steps):
        if waiting and previous is not None and (step.called, step.place) != (previous.called, previous.place):
            waiting = ()
        if step.called and step.func.__name__.startswith(READS_A_NUMBER):
            waiting += step.inputs
        elif waiting:
            yield number, waiting
            waiting = ()
        previous = step


def find_results_saved_by_torch(flow: Flow) -> Iterator[Value]:
    """Yield the results that torch detaches to save them, right after the operation whose derivative needs them."""
    maker = FROM_OUTSIDE
    for number, step in enumerate(flow.steps):
        if not step.func.__name__.startswith("detach"):
            maker = number
        elif (
            maker != FROM_OUTSIDE
            and step.called not in _DETACHING
            and step.called == flow.steps[maker].called
            and step.inputs[0].carries
            and step.inputs[0].value.maker == maker
        ):
            yield Value(number, 0)


def takes_shape_alone(step: Step) -> bool:
    """Return whether a step takes only the shape and dtype of its inputs."""
    name: str = step.func.__name__
    return name.startswith(_OF_SHAPE_ALONE) or name.partition(".")[0].rpartition("_")[2] == "like"


def find_updated_leaves(step: Step) -> list[Value]:
    """Return the leaves that a step writes to, as an optimizer does; they stay leaves."""
    return [read.value for read in step.inputs_of_kind("inplace") if read.is_leaf]


def find_last_updates(steps: Sequence[Step], root: Callable[[Value], Value]) -> dict[Value, int]:
    """Return, by ``root``, the last step of an optimizer that writes to it."""
    moving = ((index, step) for index, step in enumerate(steps) if step.called == "step")
    return {root(leaf): index for index, step in moving for leaf in find_updated_leaves(step)}


# Operations that copy the values of their input, or have no values yet.
_MOVING: Final = frozenset[str]().union(
    ("alias", "clone", "contiguous", "copy", "detach", "empty", "empty_like", "empty_strided", "lift_fresh"),
    ("to_copy", "view"),
)


def is_computed(flow: Flow, root: Callable[[Value], Value], value: Value, target: Value) -> bool:
    """Return whether an operation computed a value, instead of copying the target or other existing values."""
    step = flow.step_of(value)
    while step is not None and root(value) != target and plain_name(step.func) in _MOVING and step.inputs:
        value = step.inputs[0].value
        step = flow.step_of(value)
    return step is not None and root(value) != target and plain_name(step.func) not in _MOVING


def undo_detach(flow: Flow, departure: Exit | None) -> Iterator[Read]:
    """Yield the values that left torch, before the ``detach()`` that leaving takes."""
    for read in departure.reads if departure is not None else ():
        step = flow.step_of(read.value)
        yield step.inputs[0] if step is not None and plain_name(step.func) == "detach" else read


def replace_by_function_call(step: Step) -> Step:
    """Return the call of the custom Function that ran a step, or the step itself."""
    if step.inside is None:
        return step
    call = next((call for call in calls_from(step.call) if not call.inside), None)
    return step._replace(called=step.inside.called, place=step.inside.place, call=call)


def find_terms(flow: Flow, values: Iterable[Value]) -> Iterator[Value]:
    """Yield the terms of sums, each once, in program order; another value is its own term."""

    def summands(value: Value) -> tuple[Read, ...]:
        step = flow.step_of(value)
        name = "" if step is None else plain_name(step.func)
        is_sum = step is not None and (name in SUMS or (name in SCALES and len(step.inputs) == 1))
        return step.inputs if step is not None and is_sum else ()

    found = find_reachable(values, lambda value: (read.value for read in summands(value)))
    return (value for value in found if not summands(value))
