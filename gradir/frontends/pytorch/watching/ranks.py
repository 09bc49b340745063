"""Find ranks whose parameters were equal before the first step, and differ after a later one."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import torch
from torch import distributed

from gradir.explanations.model import Cause
from gradir.frontends.pytorch.private import STORE
from gradir.frontends.pytorch.recording.exchange import find_stages

_KEY: Final = "gradir-watch"


class Replicas:
    """Compares the parameters of ranks through their common store, without waiting for other ranks."""

    def __init__(self) -> None:
        # The pipeline stages of this rank. Others are other parts of the model, even if equal at first.
        self._stages: list[int] = []
        self._optimizer: int | None = None
        # Checksums of steps that rank 0 has not compared yet.
        self._own: dict[int, str] = {}
        self._is_over = False

    def on_backward_begin(self, frame: FrameType) -> None:
        """Record the stages of this rank."""
        if self._optimizer is None:
            _, stages = find_stages(frame) or (0, ())
            self._stages = [stage.stage_index for stage in stages]

    def note_first(self, optimizer: int, sample: torch.Tensor | None) -> None:
        """Record the initial parameters of the first optimizer that steps."""
        if self._optimizer is None and sample is not None and (store := _store()) is not None:
            self._optimizer = optimizer
            self._note(store, 0, sample)

    def on_step_end(self, optimizer: int, step: int, sample: Callable[[], torch.Tensor | None]) -> Cause | None:
        """Record this rank's parameters after a step; on rank 0, return a fault found so far."""
        if optimizer != self._optimizer or self._is_over:
            return None
        numbers, store = sample(), _store()
        if numbers is None or store is None:
            return None
        self._note(store, step, numbers)
        while self._own and not self._is_over:
            first, own = next(iter(self._own.items()))
            others = _take_others(store, first)
            if others is None:
                break
            del self._own[first]
            different = [rank for rank, text in others.items() if text != own]
            # Parts of one model differ before the first step, and are not compared.
            self._is_over = bool(different)
            if first and different:
                ranks = ", ".join(map(str, different[:3]))
                how = f"they were equal before the first step, and after step {first} rank {ranks} differs from rank 0"
                return Cause("parted", "error", "the parameters", detail=how)
        return None

    def _note(self, store: Any, step: int, sample: torch.Tensor) -> None:
        # Exact sums, since replicas compute the same.
        text = f"{self._stages} {float(sample.double().sum()).hex()} {float(sample.double().abs().sum()).hex()}"
        if distributed.get_rank():
            store.set(f"{_KEY}/{step}/{distributed.get_rank()}", text)
        else:
            self._own[step] = text


def _take_others(store: Any, step: int) -> dict[int, str] | None:
    """Return the texts of all other ranks for a step, and delete them, or ``None`` while some are missing."""
    keys = {rank: f"{_KEY}/{step}/{rank}" for rank in range(1, distributed.get_world_size())}
    if not store.check([*keys.values()]):
        return None
    found = {rank: store.get(key).decode() for rank, key in keys.items()}
    for key in keys.values():
        store.delete_key(key)
    return found


def world_size() -> int:
    """Return the number of ranks."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def _store() -> Any:
    if world_size() == 1:
        return None
    try:
        return getattr(distributed.distributed_c10d, STORE)()
    except (AttributeError, RuntimeError, ValueError):
        # Process groups may be initialized without a store.
        return None
