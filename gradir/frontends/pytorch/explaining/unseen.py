"""What was computed outside a recording: it may depend on anything, and lose its gradient anywhere.

Data and leaves come from outside in every program. Only what has a grad_fn was computed, and so was a loss.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch.autograd.function import BackwardCFunction

from gradir.frontends.pytorch.private import base_of, sequence_number
from gradir.frontends.pytorch.recording.flow import Flow
from gradir.frontends.pytorch.recording.steps import FROM_OUTSIDE, Value

__all__ = ["is_unseen", "unseen_ends"]


def is_unseen(flow: Flow, computed: Value) -> bool:
    """Whether no step made a value that has a grad_fn, nor anything else in its memory."""
    return computed.maker == FROM_OUTSIDE and flow.outside[computed.number].shared is None


def unseen_ends(flow: Flow, captured: Sequence[torch.Tensor]) -> Iterator[Value]:
    """The captured tensors that were computed outside, or written to afterwards."""
    for tensor in [tensor for tensor in captured if tensor.requires_grad] or captured:
        read = flow.read(tensor)
        is_outside = read.value.maker == FROM_OUTSIDE and not read.is_leaf
        if is_outside or _is_written_to_since(flow, tensor):
            yield read.value


def _is_written_to_since(flow: Flow, tensor: torch.Tensor) -> bool:
    """Whether the grad_fn of a tensor is newer than all steps, as after ``loss += other`` outside.

    The number of a custom Function may be taken after its steps, and torch renews the grad_fn of a view by itself.
    """
    fn: object = tensor.grad_fn
    if fn is None or not flow.steps or isinstance(fn, BackwardCFunction) or base_of(tensor) is not None:
        return False
    return sequence_number(fn) >= flow.steps[-1].number
