"""Ranks whose parameters were equal before the first step, and differ after one."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import torch
from torch import distributed

from gradir.explanations.model import Cause
from gradir.frontends.pytorch.private import STORE
from gradir.frontends.pytorch.recording.exchange import stages_around

_KEY: Final = "gradir-watch"


class Replicas:
    """Compares the parameters of ranks through their common store, without waiting for any of them."""

    def __init__(self) -> None:
        # The stages of a pipeline that this rank has: others are other parts of the model, even if they begin equal.
        self._stages: list[int] = []
        self._optimizer: int | None = None
        self._waiting: list[int] = []
        self._own: dict[int, str] = {}
        self._is_over = False

    def on_backward_begin(self, frame: FrameType) -> None:
        """Note the stages of this rank."""
        if self._optimizer is None:
            _, stages = stages_around(frame) or (0, ())
            self._stages = [stage.stage_index for stage in stages]

    def before_first(self, optimizer: int, sample: torch.Tensor | None) -> None:
        """Note what this rank begins with, of the first optimizer that steps."""
        if self._optimizer is None and sample is not None and _store() is not None:
            self._optimizer = optimizer
            self._note(0, sample)

    def after_step(self, optimizer: int, step: int, sample: Callable[[], torch.Tensor | None]) -> Cause | None:
        """Note what this rank has after a step; gives what is wrong with an earlier one, as the first rank sees it."""
        if optimizer != self._optimizer or self._is_over:
            return None
        taken = sample()
        if taken is None or not self._note(step, taken) or distributed.get_rank():
            return None
        while self._waiting and not self._is_over:
            others = self._others(self._waiting[0])
            if others is None:
                return None
            cause = self._compared(self._waiting.pop(0), others)
            if cause is not None:
                return cause
        return None

    def _note(self, step: int, sample: torch.Tensor) -> bool:
        store = _store()
        if store is None:
            return False
        # Bits, and no rounding: replicas do the same.
        told = f"{self._stages} {float(sample.double().sum()).hex()} {float(sample.double().abs().sum()).hex()}"
        self._own[step] = told
        self._waiting.append(step)
        if distributed.get_rank():
            store.set(f"{_KEY}/{step}/{distributed.get_rank()}", told)
        return True

    def _others(self, step: int) -> dict[int, str] | None:
        store = _store()
        keys = {rank: f"{_KEY}/{step}/{rank}" for rank in range(1, distributed.get_world_size())}
        if store is None or not store.check([*keys.values()]):
            return None
        found = {rank: store.get(key).decode() for rank, key in keys.items()}
        for key in keys.values():
            store.delete_key(key)
        return found

    def _compared(self, step: int, others: dict[int, str]) -> Cause | None:
        own = self._own.pop(step)
        apart = [rank for rank, told in others.items() if told != own]
        # Ranks that differ before the first step, as parts of a model do, are not compared.
        self._is_over = bool(apart)
        if step == 0 or not apart:
            return None
        ranks = ", ".join(map(str, apart[:3]))
        detail = f"they were equal before the first step, and after step {step} rank {ranks} differs from rank 0"
        return Cause("parted", "error", "the parameters", detail=detail)


def world_size() -> int:
    """Return the number of ranks."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def _store() -> Any:
    if world_size() == 1:
        return None
    try:
        return getattr(distributed.distributed_c10d, STORE)()
    except (AttributeError, RuntimeError, ValueError):
        # Ranks that found each other in another way have none.
        return None
