"""The scaler of a loss in mixed precision: what the loss is without its scale, and the steps that it leaves out."""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import wraps
from typing import Any, Final

import torch
from torch.amp import GradScaler

from gradir.explanations.model import Cause
from gradir.frontends.pytorch.explaining.arrivals import BROKEN
from gradir.frontends.pytorch.explaining.words import with_place
from gradir.frontends.pytorch.reading.tensors import number_of
from gradir.frontends.pytorch.recording.places import Place, Places
from gradir.frontends.substitution import replace_function
from gradir.ir.text import counted

# No search for a scale takes more steps: each halves it, and 16 make one of 65,536.
_MOST: Final = 20
_LEAST: Final = 5


class Scaling:
    """Knows what a `GradScaler` does, as long as it is entered."""

    def __init__(self, find: Callable[[Cause], None] = lambda _: None) -> None:
        self._find = find
        self._patches = ExitStack()
        self._places = Places()
        self._place: Place | None = None
        self._scaled: weakref.ref[torch.Tensor] | None = None
        self._plain: torch.Tensor | None = None
        self._left_out, self._steps = 0, 0

    def __enter__(self) -> Scaling:
        replace_function(self._patches, GradScaler, "scale", self._noting(GradScaler.scale))
        replace_function(self._patches, GradScaler, "step", self._counting(GradScaler.step))
        return self

    def close(self) -> None:
        """Put torch's own functions back."""
        self._patches.close()

    def unscaled(self, tensors: object) -> object:
        """Return the loss that a backward starts from, without its scale."""
        is_scaled = self._scaled is not None and isinstance(tensors, torch.Tensor) and self._scaled() is tensors
        plain, self._plain = self._plain, None
        return plain if is_scaled else tensors

    @property
    def leaves_out(self) -> bool:
        """Whether the last step was left out."""
        return bool(self._left_out)

    def excuses(self, tensors: object, plain: object) -> bool:
        """Return whether what is not finite behind a loss may be so by its scale: the ``plain`` one is finite."""
        value = number_of(plain)
        return plain is not tensors and (value is None or math.isfinite(value))

    def stepped(self) -> None:
        """Note that an optimizer stepped."""
        self._steps += 1
        self._left_out = 0

    def at_end(self) -> Iterator[Cause]:
        """Yield the fault that the end of a training proves."""
        if self._left_out >= _LEAST and not self._steps:
            yield self._cause()

    def _noting(self, scale: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(scale)
        def noted(scaler: GradScaler, outputs: Any) -> Any:
            scaled = scale(scaler, outputs)
            if isinstance(scaled, torch.Tensor):
                self._scaled, self._plain = weakref.ref(scaled), outputs.detach()
            return scaled

        return noted

    def _counting(self, step: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(step)
        def counted_step(scaler: GradScaler, *args: Any, **kwargs: Any) -> Any:
            before = self._steps
            result = step(scaler, *args, **kwargs)
            if self._steps == before:
                self._left_out += 1
                self._place = self._places(sys._getframe(1))
                if self._left_out == _MOST:
                    self._find(self._cause())
            return result

        return counted_step

    def _cause(self) -> Cause:
        return with_place(
            Cause("skipped_steps", "error", detail=f"{counted(self._left_out, 'step')} in a row"), self._place
        )


def may_be_scale(cause: Cause) -> bool:
    """Return whether what is not finite may be so by the scale of a loss alone, which the scaler takes care of."""
    return cause.kind in BROKEN and not (cause.detail and cause.kind in {"all_masked", "nonfinite", "where_trap"})
