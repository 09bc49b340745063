"""What a backward changes beside gradients, and is put back: random numbers, and buffers of what it runs again."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import nn

from gradir.frontends.pytorch.private import own_buffers, without_dispatch_modes, without_overrides
from gradir.frontends.pytorch.reading.members import modules_in
from gradir.frontends.pytorch.reading.reach import hiding_functions

if TYPE_CHECKING:
    from gradir.frontends.pytorch.reading.assemble import LiveGraph

__all__ = ["buffers_and_random_numbers_kept"]


@contextmanager
def buffers_and_random_numbers_kept(live: LiveGraph) -> Iterator[None]:
    """Put back, after a backward on a graph, the states of random numbers and the buffers of modules that it may run.

    A checkpoint runs its modules once more, which moves the running statistics of a normalization.
    """
    # Before anything ran on it, a device has no random numbers, and asking would start it.
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices):
        if not _runs_modules(live):
            yield
            return
        kept = [(buffers, dict(buffers)) for buffers in map(own_buffers, _modules_behind(live)) if buffers]
        tensors = {id(tensor): tensor for _, before in kept for tensor in before.values() if tensor is not None}
        with torch.no_grad(), without_dispatch_modes(), without_overrides():
            copies = [(tensor, tensor.detach().clone()) for tensor in tensors.values() if not tensor.is_meta]
        try:
            yield
        finally:
            for buffers, before in kept:
                buffers.update(before)
            with torch.no_grad(), without_dispatch_modes(), without_overrides():
                for tensor, copy in copies:
                    # What the graph saved of it would be stale if its version changed.
                    tensor.data.copy_(copy)


def _runs_modules(live: LiveGraph) -> bool:
    """Whether a backward may run code of the program, as that of a checkpoint does."""
    return bool(hiding_functions(live.grad_fns)) or any(
        slot.state == "hooked" for node in live.graph.nodes.values() for slot in node.saved
    )


def _modules_behind(live: LiveGraph) -> list[nn.Module]:
    """The modules of a graph; all that live where it is not known which these are."""
    if live.roots:
        return [module for root in live.roots.values() for module in modules_in(root)]
    return [entry for entry in gc.get_objects() if issubclass(type(entry), nn.Module)]
