"""Tensors without data, except those few whose values a model looks at while it is built."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from types import FrameType
from typing import Any, Final
from weakref import KeyedRef, getweakrefs

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gradir.errors import CaptureError
from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.absent import Absent, absent
from gradir.frontends.pytorch.substitution import substituted

__all__ = ["without_data"]

_MOST: Final = 1_000
"""The elements of the largest tensor with values: as many as a model has layers, not as one has channels."""

_UNSYNCED: Final = "init_sync"
_ELSE: Final = "use a newer torch, or torchrun"

_MESHES: Final = "torch.distributed.device_mesh"


class _Fakes(private.FakeTensorMode):  # type: ignore[misc]
    """While entered, tensors have no data, but small ones made of numbers alone know their values.

    So ``[rate.item() for rate in torch.linspace(0, 0.1, depth)]`` works, as models say how much each layer drops. The
    tensors by which a device mesh says which process is where are real.
    """

    def __init__(self, devices: Absent) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self._devices = devices

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _in_mesh():
            with private.unset_fake_temporarily():
                return func(*args, **(kwargs or {}))
        if kwargs and "device" in kwargs:
            kwargs = {**kwargs, "device": self._devices.place(kwargs["device"])}
        return super().__torch_dispatch__(func, types, args, kwargs)

    def may_turn_const(self, t: torch.Tensor) -> bool:
        """Whether torch keeps the values of what it computed of values only."""
        return t.numel() <= _MOST and t.layout is torch.strided and type(t) is torch.Tensor and t.device.type == "cpu"

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation."""
        made = super().dispatch(func, types, args, kwargs or {})
        if type(made) is not private.FakeTensor or made.constant is not None or not _makes_of_numbers(func):
            return made
        if made.numel() > _MOST or made.device.type != "cpu" or made.layout is not torch.strided:
            return made
        with private.no_dispatch():
            values = func(*args, **(kwargs or {}))
        return self.fake_tensor_converter.from_real_tensor(self, values, make_constant=True)

    def forget(self, tensor: torch.Tensor) -> None:
        """Let go of what torch remembers a tensor by, for which it would not put another in its place."""
        made = private.remembered(self)
        for reference in getweakrefs(tensor):
            if isinstance(reference, KeyedRef) and made.get(reference.key) is tensor:
                del made[reference.key]


@contextmanager
def without_data() -> Iterator[None]:
    """Make every tensor without data meanwhile, and send none where a model is built that several processes train."""
    can_build = _UNSYNCED in inspect.signature(DistributedDataParallel.__init__).parameters

    def build_alone(self: object, *args: Any, **options: Any) -> None:
        if not can_build:
            raise CaptureError(
                f"torch {torch.__version__} cannot build a DistributedDataParallel without data: {_ELSE}"
            )
        build(self, *args, **{**options, _UNSYNCED: False})

    def draw_once(tensor: torch.Tensor, mean: float, std: float, *_: Any, **__: Any) -> torch.Tensor:
        # torch looks at what it drew, to draw again what fell outside.
        with torch.no_grad():
            return tensor.normal_(mean, std)

    with ExitStack() as entered:
        fakes = _Fakes(entered.enter_context(absent()))
        swap: Callable[..., None] = torch.utils.swap_tensors

        def swap_fakes(*tensors: torch.Tensor) -> None:
            for tensor in tensors:
                fakes.forget(tensor)
            swap(*tensors)

        build: Callable[..., None] = DistributedDataParallel.__init__
        entered.enter_context(substituted(DistributedDataParallel, "__init__", build_alone))
        entered.enter_context(substituted(nn.init, private.TRUNCATED_NORMAL, draw_once))
        entered.enter_context(substituted(torch.utils, "swap_tensors", swap_fakes))
        entered.enter_context(fakes)
        yield


def _in_mesh() -> bool:
    """Whether the running operation is one of a device mesh's own."""
    if _MESHES not in sys.modules:
        return False
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__") == _MESHES:
            return True
        frame = frame.f_back
    return False


@lru_cache(maxsize=1024)
def _makes_of_numbers(func: object) -> bool:
    """Whether an operation makes a tensor of numbers alone, and the same each time."""
    if not isinstance(func, private.Operator) or torch.Tag.nondeterministic_seeded in func.tags:
        return False
    schema = private.schema_of(func)
    takes_tensors = any("Tensor" in str(argument.type) for argument in schema.arguments)
    # What is not initialised has no values to know.
    return not takes_tensors and not schema.name.startswith("aten::empty")
