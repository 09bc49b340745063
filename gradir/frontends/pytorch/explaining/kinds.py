"""What kind of stop an operation is, and what was computed outside a recording, which may depend on anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import torch
from torch.autograd.function import BackwardCFunction

from gradir.frontends.pytorch.private import CHECKPOINT, base_of, sequence_number
from gradir.frontends.pytorch.recording.flow import COPYING, Flow
from gradir.frontends.pytorch.recording.modes import CompiledPart
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Step, Value, plain_name

EXPLICIT: Final = frozenset(
    {"copied", "data", "detach", "inference_mode", "new_leaf", "no_create_graph", "no_grad", "rebuilt", "sample"}
)
"""Kinds that a program asks for; the others follow from what its operations are."""

_DRAWING: Final = frozenset({"binomial", "multinomial", "normal", "poisson", "sample_dirichlet", "standard_gamma"})
DERIVING: Final = frozenset({"backward", "grad"})


class Kinds:
    """Of steps in a row the kind of each, known by its place."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        # Where torch draws under a no_grad of its own, as `Distribution.sample` does.
        self._drawing = {
            step.place for step in steps if step.mode == "no_grad" and plain_name(step.func) in _DRAWING and step.place
        }
        # What gave a step its memory without its graph, such as `.data`.
        self._detaching: dict[int, Step] = {}
        for number, step in enumerate(steps):
            if step.func.__name__.startswith("detach"):
                self._detaching[number] = step
            elif (lenders := step.lenders()) and lenders[0].maker in self._detaching:
                self._detaching[number] = self._detaching[lenders[0].maker]

    def of(self, number: int) -> str:
        """Return the kind of a step, or of the custom Function that ran it; of a write that of what gave the memory."""
        step = self._steps[number]
        if step.inside is not None:
            return "checkpoint" if f"{step.inside.called}Backward" == CHECKPOINT else "nondifferentiable"
        kind = kind_of(step)
        if kind == "no_grad" and step.place in self._drawing:
            return "sample"
        through = self._detaching.get(number) if kind == "nondifferentiable" and "inplace" in step.kinds else None
        return kind if through is None else kind_of(through)


def kind_of(step: Step) -> str:
    """Return the kind of a step by itself."""
    # What takes functions has no tags.
    if torch.Tag.nondeterministic_seeded in getattr(step.func, "tags", ()):
        return "sample"
    if step.called in COPYING:
        return "rebuilt"
    if step.mode != "grad":
        return "no_create_graph" if step.called in DERIVING else step.mode
    if step.func.__name__.startswith("detach"):
        return "data" if step.called == "data" else "detach"
    return "compiled" if isinstance(step.func, CompiledPart) else "nondifferentiable"


def is_unseen(flow: Flow, computed: Value) -> bool:
    """Return whether no step made a value that has a grad_fn, nor anything else in its memory."""
    return computed.maker == FROM_OUTSIDE and flow.outside[computed.number].shared is None


def unseen_ends(flow: Flow, captured: Sequence[torch.Tensor]) -> Iterator[Value]:
    """Yield the captured tensors that were computed outside, or written to afterwards."""
    for tensor in [tensor for tensor in captured if tensor.requires_grad] or captured:
        read = flow.read(tensor)
        is_outside = read.value.maker == FROM_OUTSIDE and not read.is_leaf
        if is_outside or _is_written_to_since(flow, tensor):
            yield read.value


def _is_written_to_since(flow: Flow, tensor: torch.Tensor) -> bool:
    """Return whether a tensor was written to after the last step, as by ``loss += other`` outside."""
    fn: object = tensor.grad_fn
    if fn is None or not flow.steps or isinstance(fn, BackwardCFunction) or base_of(tensor) is not None:
        return False
    return sequence_number(fn) >= flow.steps[-1].number
