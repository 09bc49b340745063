"""Follow the optimizers that a program makes, and the scaler of a loss in mixed precision."""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial, wraps
from types import FrameType
from typing import Any, Final
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
from gradir.frontends.pytorch.explaining.naming import add_place
from gradir.frontends.pytorch.reading.tensors import read_scalar, storage_of
from gradir.frontends.pytorch.recording.places import Place, Places
from gradir.frontends.pytorch.recording.removable_modes import FunctionMode
from gradir.frontends.pytorch.recording.steps import tensors_in
from gradir.frontends.walks import replace_function
from gradir.ir.text import pluralize

_CLIPPING: Final = ("clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_")
# Replaces the id() of an optimizer if a module clears gradients.
_MODULE: Final = 0
_SCHEDULERS: Final = (lr_scheduler.LRScheduler, lr_scheduler.ReduceLROnPlateau)


class Origin:
    """The line at which a program makes optimizers or schedulers, with counts of their steps."""

    def __init__(self, name: str, place: Place | None) -> None:
        self.name, self.place = name, place
        self.steps = self.cleared = 0
        # An optimizer of another library may have its own gradients.
        self.is_graded = False


_ASSUMED: Final = Origin("", None)


class _Origins:
    def __init__(self) -> None:
        self.by_object: WeakKeyDictionary[Any, Origin] = WeakKeyDictionary()
        self.by_line: dict[tuple[str, Place | None], Origin] = {}

    def add(self, made: object, place: Place | None) -> None:
        name = type(made).__name__
        self.by_object[made] = self.by_line.setdefault((name, place), Origin(name, place))


class Patches(ExitStack):
    """Patches functions of torch until the context ends."""

    def patch(self, owner: object, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Replace a function by its wrapper, which gets its name and docstring."""
        original = getattr(owner, name)
        replace_function(self, owner, name, wraps(original)(wrap(original)))


class Optimizers(Patches):
    """Follows the optimizers of a program while this context is entered."""

    def __init__(
        self,
        began: Callable[[Optimizer], None],
        ended: Callable[[Optimizer], None] = lambda _: None,
        pause: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Follow optimizers; enter ``pause`` while an optimizer runs without code of the program."""
        super().__init__()
        self._began, self._ended, self._places = began, ended, Places()
        self._pause, self._paused = pause, ExitStack()
        self._optimizers, self._schedulers = _Origins(), _Origins()
        self._running: list[Optimizer] = []
        self._cleared: list[weakref.ref[Optimizer]] = []
        self._clearing_places: dict[int, Place | None] = {}
        self._clipped: tuple[Place | None, Any] = (None, None)
        self.writing_place: Place | None = None
        self.scaling: Scaling | None = None

    def __enter__(self) -> Optimizers:
        self.patch(Optimizer, "__init__", partial(self._wrap_init, self._optimizers))
        for kind in _SCHEDULERS:
            self.patch(kind, "__init__", partial(self._wrap_init, self._schedulers))
        for owner in (Optimizer, nn.Module):
            replace_function(self, owner, "zero_grad", self._wrap_zero_grad(owner.zero_grad))
        for home in (utils, clip_grad):
            for name in filter(vars(home).__contains__, _CLIPPING):
                self.patch(home, name, self._wrap_clip)
        self.callback(register_optimizer_step_pre_hook(self._on_step_begin).remove)
        self.callback(register_optimizer_step_post_hook(self._on_step_end).remove)
        return self

    def add(self, optimizer: Optimizer) -> None:
        """Add an optimizer that existed before."""
        self._optimizers.add(optimizer, None)

    def assume(self, optimizer: Optimizer | None) -> None:
        """Replace the assumed optimizer of a program that makes none."""
        for each in [each for each, origin in self._optimizers.by_object.items() if origin is _ASSUMED]:
            del self._optimizers.by_object[each]
        if optimizer is not None:
            self._optimizers.by_object[optimizer] = _ASSUMED

    @property
    def alive(self) -> list[Optimizer]:
        """The live optimizers, in the order of their creation."""
        return [*self._optimizers.by_object]

    @property
    def stepping(self) -> Optimizer | None:
        """The optimizer whose step runs now."""
        return self._running[-1] if self._running else None

    @property
    def origins(self) -> Iterable[Origin]:
        """The lines at which the program made optimizers, even if it has deleted them."""
        return self._optimizers.by_line.values()

    def place_of(self, optimizer: Optimizer) -> Place | None:
        """Return the place at which the program made an optimizer."""
        return self._optimizers.by_object.get(optimizer, _ASSUMED).place

    def scheduler_place(self, optimizer: Optimizer) -> Place | None:
        """Return the place at which the program made the last learning-rate scheduler of an optimizer."""
        schedulers = self._schedulers.by_object.items()
        found = [origin.place for scheduler, origin in schedulers if scheduler.optimizer is optimizer]
        return found[-1] if found else None

    def forget_changes(self) -> None:
        """Forget who cleared or clipped gradients before a backward pass."""
        self._clearing_places, self._clipped = {}, (None, None)

    def clearing_place(self, optimizer: Optimizer) -> Place | None:
        """Return the place at which an optimizer or a module cleared gradients since the last backward pass."""
        return self._clearing_places.get(id(optimizer)) or self._clearing_places.get(_MODULE)

    @property
    def has_clipped(self) -> bool:
        """Whether the program clipped gradients since the last backward pass."""
        return self._clipped != (None, None)

    def clipping_place(self) -> Place | None:
        """Return the place at which the program clipped nonzero gradients since the last backward pass."""
        place, norm = self._clipped
        return place if norm is None or float(norm) else None

    def find_for_backward(self) -> Sequence[Optimizer]:
        """Return the optimizers of a backward pass: that which steps, those cleared, or all."""
        if self._running:
            return [self._running[-1]]
        return [each for each in (ref() for ref in self._cleared) if each is not None] or self.alive

    def _on_step_begin(self, optimizer: Optimizer, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        if all(each is not optimizer for each in self.alive):
            self.add(optimizer)
        self._running.append(optimizer)
        if (origin := self._optimizers.by_object.get(optimizer)) is not None and not origin.is_graded:
            tensors = (each for group in optimizer.param_groups for each in group["params"])
            is_own = type(optimizer).__module__.startswith("torch.optim.")
            origin.is_graded = not is_own or any(each.grad is not None for each in tensors)
        self._began(optimizer)
        self._paused.close()
        if not any(map(callable, (*args, *kwargs.values()))):
            self._paused.enter_context(self._pause())

    def _on_step_end(self, optimizer: Optimizer, *_: object) -> None:
        if self._running:
            self._running.pop()
        self._cleared = []
        if (origin := self._optimizers.by_object.get(optimizer)) is not None:
            origin.steps += 1
        self._ended(optimizer)
        self._paused.close()

    def _wrap_init(self, found: _Origins, init: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(made: Any, /, *args: Any, **kwargs: Any) -> None:
            init(made, *args, **kwargs)
            # A scheduler that contains others may run several __init__, or one twice.
            if made not in found.by_object:
                found.add(made, self._places(_find_making_frame(sys._getframe(1), made)))

        return wrapper

    def _wrap_zero_grad(self, zero_grad: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(zero_grad)
        def wrapper(owner: Any, *args: Any, **kwargs: Any) -> Any:
            is_optimizer = isinstance(owner, Optimizer)
            self._clearing_places[id(owner) if is_optimizer else _MODULE] = self._places(sys._getframe(1))
            if is_optimizer:
                if (origin := self._optimizers.by_object.get(owner)) is not None:
                    origin.cleared += 1
                if all(ref() is not owner for ref in self._cleared):
                    self._cleared.append(weakref.ref(owner))
            with self._pause():
                return zero_grad(owner, *args, **kwargs)

        # torch.compile must not trace into this, nor does it trace into torch's own function.
        disabled: Callable[..., Any] = torch.compiler.disable(wrapper)  # type: ignore[no-untyped-call]
        return disabled

    def follow_writes(self, tensors: Iterable[torch.Tensor]) -> None:
        """Record from now on where the program writes to tensors, or to their ``.data``."""
        followed = [*tensors]
        self.enter_context(_Writes(self, {*map(storage_of, followed)} - {None}, {*map(id, followed)}))

    def _wrap_clip(self, clip: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            norm = clip(*args, **kwargs)
            self._clipped = (self._places(sys._getframe(1)), norm)
            limit = kwargs.get("max_norm", *args[1:2])
            if self.scaling is not None and norm is not None and limit is not None:
                self.scaling.on_clipping(norm, limit, self._clipped[0])
            return norm

        return wrapper


class _Writes(FunctionMode):
    def __init__(self, optimizers: Optimizers, storages: Set[int | None], ids: Set[int]) -> None:
        super().__init__()
        self._optimizers, self._storages, self._ids, self._places = optimizers, storages, ids, Places()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        writes = name == "__setitem__" or (name.endswith("_") and not name.startswith(("__", "requires_grad")))
        is_data = name == "__set__" and getattr(func.__self__, "__name__", "") == "data"
        hits = is_data and id(args[0]) in self._ids
        hits = hits or (writes and not self._storages.isdisjoint(map(storage_of, tensors_in(args[:1]))))
        if hits and self._optimizers.stepping is None:
            self._optimizers.writing_place = self._places(sys._getframe(1))
        return func(*args, **(kwargs or {}))


def _find_making_frame(frame: FrameType | None, made: object) -> FrameType | None:
    """Return the frame that creates an object, outside of its ``__init__``."""
    while frame is not None and frame.f_code.co_name == "__init__":
        own = frame.f_code.co_varnames[:1]
        if not own or frame.f_locals.get(own[0]) is not made:
            break
        frame = frame.f_back
    return frame


# A search for a scale takes fewer steps: each step halves it, and 16 steps reduce 65,536 to one.
_MOST: Final = 20
_LEAST: Final = 5
# After this many steps with scaled gradients, they are no accident.
_LEAST_SCALED: Final = 2


class Scaling(Patches):
    """Follows `GradScaler` while this context is entered."""

    def __init__(self, report: Callable[[Cause], None] = lambda _: None) -> None:
        super().__init__()
        self._report = report
        self._places = Places()
        self._place: Place | None = None
        self._scaled: weakref.ref[torch.Tensor] | None = None
        self._plain: torch.Tensor | None = None
        # Whether the last backward pass was of a scaled loss, whose gradients nobody has unscaled yet.
        self._is_scaled = self._has_stepped = False
        self._unscaled_steps = self.skipped = 0
        """Number of steps that the scaler has skipped since the last step."""
        self._steps = 0

    def __enter__(self) -> Scaling:
        self.patch(GradScaler, "scale", self._wrap_scale)
        self.patch(GradScaler, "step", self._wrap_step)
        for name in ("get_scale", "unscale_"):
            self.patch(GradScaler, name, self._wrap_unscale)
        return self

    def remove_scale(self, tensors: object) -> object:
        """Return the roots of a backward pass, without the scale of a loss."""
        is_scaled = self._scaled is not None and isinstance(tensors, torch.Tensor) and self._scaled() is tensors
        plain, self._plain = self._plain, None
        # A scale of 1, as that of a disabled scaler, changes nothing.
        self._is_scaled = is_scaled and read_scalar(plain) != read_scalar(tensors)
        return plain if is_scaled else tensors

    def excuses(self, tensors: object, plain: object) -> bool:
        """Return whether the scale of a loss may cause infinity or NaN, since the ``plain`` loss is finite."""
        value = read_scalar(plain)
        return plain is not tensors and (value is None or math.isfinite(value))

    def on_step_begin(self, frame: FrameType) -> None:
        """Count the steps with scaled gradients, in a program that never lets the scaler step."""
        self._unscaled_steps = self._unscaled_steps + 1 if self._is_scaled and not self._has_stepped else 0
        if self._unscaled_steps == _LEAST_SCALED:
            self._report(add_place(Cause("still_scaled", "error", "step"), self._places(frame)))

    def on_clipping(self, norm: float | torch.Tensor, limit: float, place: Place | None) -> None:
        """Report a program that limits the norm of scaled gradients."""
        # A norm within the limit, such as an infinite one, leaves the gradients as they are.
        if self._is_scaled and limit < float(norm) < math.inf:
            self._report(add_place(Cause("still_scaled", "error", "clip_grad_norm_"), place))

    def note_step(self) -> None:
        """Record a step of an optimizer."""
        self._steps += 1
        self.skipped = 0

    def find_final_faults(self) -> list[Cause]:
        """Return the faults that are certain at the end of a training."""
        return [self._make_cause()] if self.skipped >= _LEAST and not self._steps else []

    def _wrap_scale(self, scale: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(scaler: GradScaler, outputs: Any) -> Any:
            scaled = scale(scaler, outputs)
            if isinstance(scaled, torch.Tensor):
                self._scaled, self._plain = weakref.ref(scaled), outputs.detach()
            return scaled

        return wrapper

    def _wrap_step(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(scaler: GradScaler, *args: Any, **kwargs: Any) -> Any:
            self._is_scaled, self._has_stepped = False, True
            before = self._steps
            result = step(scaler, *args, **kwargs)
            if self._steps == before:
                self.skipped += 1
                self._place = self._places(sys._getframe(1))
                if self.skipped == _MOST:
                    self._report(self._make_cause())
            return result

        return wrapper

    def _wrap_unscale(self, unscale: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(unscale)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            # A program that asks for the scale may divide by it.
            self._is_scaled = False
            return unscale(*args, **kwargs)

        return wrapper

    def _make_cause(self) -> Cause:
        detail = f"{pluralize(self.skipped, 'step')} in a row"
        return add_place(Cause("skipped_steps", "error", detail=detail), self._place)


def has_skipped(optimizer: Optimizer) -> bool:
    """Return whether a `GradScaler` skips a step."""
    return bool(float(getattr(optimizer, "found_inf", 0) or 0))


def may_be_scale(cause: Cause) -> bool:
    """Return whether the scale of a loss alone may cause infinity or NaN, which the scaler handles."""
    return cause.kind in BROKEN and not (cause.detail and cause.kind in {"all_masked", "nonfinite", "where_trap"})
