"""The optimizers that a program makes, which of them a backward is for, and the scaler of a loss in mixed precision."""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import wraps
from types import FrameType
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.amp import GradScaler
from torch.nn import utils
from torch.nn.utils import clip_grad
from torch.optim import Optimizer, lr_scheduler
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from gradir.explanations.model import Cause
from gradir.frontends.pytorch.explaining.arrivals import BROKEN
from gradir.frontends.pytorch.explaining.naming import with_place
from gradir.frontends.pytorch.reading.tensors import number_of
from gradir.frontends.pytorch.recording.places import Place, Places
from gradir.frontends.walks import replace_function
from gradir.ir.text import counted

_CLIPPING: Final = ("clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_")
# In place of the id() of an optimizer.
_BY_A_MODULE: Final = 0
_SCHEDULERS: Final = (lr_scheduler.LRScheduler, lr_scheduler.ReduceLROnPlateau)


class Stepping(Protocol):
    """Gets each step of an optimizer."""

    def before_step(self, optimizer: Optimizer) -> None:
        """Look at an optimizer whose step begins."""

    def after_step(self, optimizer: Optimizer) -> None:
        """Look at an optimizer whose step has ended."""


class Origin:
    """The optimizers or schedulers that a program made at one line, and counts of their steps."""

    def __init__(self, name: str, place: Place | None) -> None:
        self.name, self.place = name, place
        self.steps = self.cleared = 0


_ASSUMED: Final = Origin("", None)


class _Origins:
    def __init__(self) -> None:
        self.of: WeakKeyDictionary[Any, Origin] = WeakKeyDictionary()
        self.lines: dict[tuple[str, Place | None], Origin] = {}

    def add(self, made: object, place: Place | None) -> None:
        name = type(made).__name__
        self.of[made] = self.lines.setdefault((name, place), Origin(name, place))


class Patches(ExitStack):
    """Functions of torch that are replaced until this is left."""

    def patch(self, owner: object, name: str, change: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Put what ``change`` makes of a function in its place."""
        replace_function(self, owner, name, change(getattr(owner, name)))


class Optimizers(Patches):
    """Knows the optimizers of a program, as long as it is entered."""

    def __init__(
        self, told: Stepping | None = None, aside: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        """``aside`` is entered while an optimizer works that calls nothing of the program's."""
        super().__init__()
        self._told, self._places = told, Places()
        self._aside, self._working = aside, ExitStack()
        self._made, self._schedulers = _Origins(), _Origins()
        self._inside: list[Optimizer] = []
        self._cleared: list[weakref.ref[Optimizer]] = []
        self._cleared_at: dict[int, Place | None] = {}
        self._clipped: tuple[Place | None, Any] = (None, None)

    def __enter__(self) -> Optimizers:
        self.patch(Optimizer, "__init__", self._noting(self._made))
        for kind in _SCHEDULERS:
            self.patch(kind, "__init__", self._noting(self._schedulers))
        self.patch(Optimizer, "zero_grad", self._clearing)
        self.patch(nn.Module, "zero_grad", self._clearing)
        for home in (utils, clip_grad):
            for name in filter(vars(home).__contains__, _CLIPPING):
                self.patch(home, name, self._clipping)
        self.callback(register_optimizer_step_pre_hook(self._before_step).remove)
        self.callback(register_optimizer_step_post_hook(self._after_step).remove)
        return self

    def add(self, optimizer: Optimizer) -> None:
        """Know an optimizer that was made before."""
        self._made.add(optimizer, None)

    def assume(self, optimizer: Optimizer | None) -> None:
        """Take this for the optimizer of a program that makes none."""
        for each in [each for each, made in self._made.of.items() if made is _ASSUMED]:
            del self._made.of[each]
        if optimizer is not None:
            self._made.of[optimizer] = _ASSUMED

    @property
    def alive(self) -> list[Optimizer]:
        """The optimizers that the program still has, in the order in which it made them."""
        return [*self._made.of]

    @property
    def stepping(self) -> Optimizer | None:
        """The optimizer whose step runs now."""
        return self._inside[-1] if self._inside else None

    @property
    def made(self) -> Iterable[Origin]:
        """The optimizers that the program made at each line, which may be gone."""
        return self._made.lines.values()

    def place_of(self, optimizer: Optimizer) -> Place | None:
        """Return the place where an optimizer was made."""
        made = self._made.of.get(optimizer)
        return None if made is None else made.place

    def scheduler_place(self, optimizer: Optimizer) -> Place | None:
        """Return the place where the last learning-rate scheduler of an optimizer was made."""
        found = [made.place for scheduler, made in self._schedulers.of.items() if scheduler.optimizer is optimizer]
        return found[-1] if found else None

    def forget_changes(self) -> None:
        """Forget what became of the gradients before a backward."""
        self._cleared_at, self._clipped = {}, (None, None)

    def cleared_at(self, optimizer: Optimizer) -> Place | None:
        """Return the place where an optimizer or a module cleared gradients since the last backward."""
        return self._cleared_at.get(id(optimizer)) or self._cleared_at.get(_BY_A_MODULE)

    @property
    def has_clipped(self) -> bool:
        """Whether gradients were clipped since the last backward."""
        return self._clipped != (None, None)

    def clipped_at(self) -> Place | None:
        """Return the place where gradients that were not zero were clipped since the last backward."""
        place, norm = self._clipped
        return place if norm is None or float(norm) else None

    def of_backward(self) -> Sequence[Optimizer]:
        """The optimizers that a backward is for: that whose step calls it, or those cleared before it, or all."""
        if self._inside:
            return [self._inside[-1]]
        return [each for each in (ref() for ref in self._cleared) if each is not None] or self.alive

    def _before_step(self, optimizer: Optimizer, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        if all(each is not optimizer for each in self.alive):
            self.add(optimizer)
        self._inside.append(optimizer)
        if self._told is not None:
            self._told.before_step(optimizer)
        self._working.close()
        if not any(map(callable, (*args, *kwargs.values()))):
            self._working.enter_context(self._aside())

    def _after_step(self, optimizer: Optimizer, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:  # noqa: ARG002
        if self._inside:
            self._inside.pop()
        self._cleared = []
        if (made := self._made.of.get(optimizer)) is not None:
            made.steps += 1
        if self._told is not None:
            self._told.after_step(optimizer)
        self._working.close()

    def _noting(self, found: _Origins) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def change(init: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(init)
            def made(optimizer: Any, *args: Any, **kwargs: Any) -> None:
                init(optimizer, *args, **kwargs)
                # A scheduler that wraps others initialises itself in its own way, and may do so twice.
                if optimizer not in found.of:
                    found.add(optimizer, self._places(_find_making_frame(sys._getframe(1), optimizer)))

            return made

        return change

    def _clearing(self, zero_grad: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(zero_grad)
        def cleared(whole: Any, *args: Any, **kwargs: Any) -> Any:
            place = self._places(sys._getframe(1))
            if isinstance(whole, Optimizer):
                self._cleared_at[id(whole)] = place
                if (made := self._made.of.get(whole)) is not None:
                    made.cleared += 1
                if all(ref() is not whole for ref in self._cleared):
                    self._cleared.append(weakref.ref(whole))
            else:
                self._cleared_at[_BY_A_MODULE] = place
            with self._aside():
                return zero_grad(whole, *args, **kwargs)

        # As torch's own is, which a compiled step must not look into.
        disabled: Callable[..., Any] = torch.compiler.disable(cleared)  # type: ignore[no-untyped-call]
        return disabled

    def _clipping(self, clip: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(clip)
        def clipped(*args: Any, **kwargs: Any) -> Any:
            norm = clip(*args, **kwargs)
            self._clipped = (self._places(sys._getframe(1)), norm)
            return norm

        return clipped


def _find_making_frame(frame: FrameType | None, made: object) -> FrameType | None:
    """Return the frame that makes an object, outside of the functions that initialise it."""
    while frame is not None and frame.f_code.co_name == "__init__":
        own = frame.f_code.co_varnames[:1]
        if not own or frame.f_locals.get(own[0]) is not made:
            break
        frame = frame.f_back
    return frame


# No search for a scale takes more steps: each halves it, and 16 make one of 65,536.
_MOST: Final = 20
_LEAST: Final = 5


class Scaling(Patches):
    """Knows what a `GradScaler` does, as long as it is entered."""

    def __init__(self, find: Callable[[Cause], None] = lambda _: None) -> None:
        super().__init__()
        self._find = find
        self._places = Places()
        self._place: Place | None = None
        self._scaled: weakref.ref[torch.Tensor] | None = None
        self._plain: torch.Tensor | None = None
        self._left_out, self._steps = 0, 0

    def __enter__(self) -> Scaling:
        self.patch(GradScaler, "scale", self._noting)
        self.patch(GradScaler, "step", self._counting)
        return self

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
        detail = f"{counted(self._left_out, 'step')} in a row"
        return with_place(Cause("skipped_steps", "error", detail=detail), self._place)


def may_be_scale(cause: Cause) -> bool:
    """Return whether what is not finite may be so by the scale of a loss alone, which the scaler takes care of."""
    return cause.kind in BROKEN and not (cause.detail and cause.kind in {"all_masked", "nonfinite", "where_trap"})
