"""A backward for the gradients alone, which leaves distributed training as it was.

A gradient that is added to a leaf is also sent to the other processes: hooks behind the addition count it, and a
wrapper such as DistributedDataParallel takes each forward for one such backward. So in a process of a group the engine
is asked for the gradients, and adds up none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NoReturn

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from gradir.errors import CaptureError
from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.reading.distributed import sharding_groups
from gradir.frontends.pytorch.reading.members import modules_in
from gradir.frontends.pytorch.reading.reach import is_reentrant_checkpoint
from gradir.frontends.pytorch.reading.walk import GradFn
from gradir.frontends.pytorch.substitution import substituted

__all__ = ["in_process_group", "refuse_addition", "refuse_lasting", "undisturbed"]


def in_process_group() -> bool:
    """Whether this process trains together with others."""
    return distributed.is_available() and distributed.is_initialized()


def refuse_lasting(grad_fns: Iterable[GradFn], leaves: Sequence[torch.Tensor]) -> None:
    """Refuse a graph on which every backward leaves something behind.

    Raises:
        CaptureError: it has a reentrant checkpoint or a flat parameter, or a hook on a leaf communicates.
    """
    if any(is_reentrant_checkpoint(fn) for fn in grad_fns):
        raise CaptureError(
            "a reentrant checkpoint adds up gradients that a process group then sends, so verifying would change the "
            "next backward: use checkpoint(..., use_reentrant=False), or verify in a process without a group"
        )
    if any(getattr(leaf, private.FLAT_PARAMETER, False) for leaf in leaves):
        raise CaptureError(
            "FullyShardedDataParallel runs one backward for each forward, so verifying would break the next: "
            "verify the module without it, or under fully_shard"
        )
    delayed = getattr(DistributedDataParallel, private.DDP_DELAYED, None)
    hooks = [hook for leaf in leaves for hook in (private.hooks_of(leaf) or {}).values()]
    if delayed is not None and any(getattr(hook, "__func__", None) is delayed for hook in hooks):
        raise CaptureError(
            "DistributedDataParallel with delay_all_reduce_named_params reduces what it has in every backward, so "
            "verifying would change the next one: verify the module without it"
        )


def refuse_addition(_: torch.Tensor) -> NoReturn:
    """The hook of a leaf to which nothing may be added; what comes behind the addition is not reached.

    Raises:
        CaptureError: always.
    """
    raise CaptureError(
        "a function of the graph runs a backward of its own, whose gradients a process group would send: "
        "verify in a process without a group"
    )


@contextmanager
def undisturbed(grad_fns: Iterable[GradFn], roots: Iterable[nn.Module]) -> Iterator[None]:
    """Let nothing be reduced meanwhile, neither gradients that wait for a later backward nor a first one's all at once.

    A graph that DistributedDataParallel calls static is reduced by a function on top of it at first; what `fully_shard`
    has added up already, by the functions that end a module's backward.
    """
    grad_fns = list(grad_fns)
    parts: dict[int, tuple[Any, str, object]] = {}
    for fn in grad_fns:
        if type(fn).__name__ == private.DDP_SINK:
            wrapper = fn.ddp_weakref()
            if getattr(wrapper, "static_graph", False):
                parts[id(wrapper)] = wrapper, private.DDP_ENQUEUED, True
    for group in _sharded_groups(grad_fns, roots):
        parts[id(group)] = group, "reduce_grads", False
    with ExitStack() as changed:
        for part in parts.values():
            changed.enter_context(substituted(*part))
        yield


def _sharded_groups(grad_fns: Iterable[GradFn], roots: Iterable[nn.Module]) -> Iterator[object]:
    """What reduces the parameters of each module that `fully_shard` was applied to."""
    for fn in grad_fns:
        if type(fn).__name__ == private.FSDP_FUNCTION:
            yield fn.param_group
    for root in roots:
        yield from sharding_groups(modules_in(root))
