"""A device that the machine lacks: what a program puts on it is on the CPU, since there are no data anyway."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from gradir.errors import warn
from gradir.frontends.pytorch.substitution import substituted

__all__ = ["Absent", "absent"]

_CPU: Final = "cpu"
_NUMBERED: Final = "cuda"
_ON_DEVICES: Final = ("device_ids", "output_device")
"""The first options of a wrapper, in this order."""


class Absent:
    """Knows which devices a program asked for in vain."""

    def __init__(self) -> None:
        self._asked: set[str] = set()

    def place(self, device: Any) -> Any:
        """The device, or the CPU where there is none: torch's engine would fail, or end the process."""
        # A number is one of CUDA's devices.
        kind = _NUMBERED if isinstance(device, int) else device and torch.device(device).type
        if kind is None or _is_there(kind):
            return device
        self._asked.add(kind)
        return torch.device(_CPU)

    def tell(self) -> None:
        """Warn that a program has other devices than it asked for."""
        if self._asked:
            warn(f"there is no {' and no '.join(sorted(self._asked))} device here: cpu stands in its place")


@contextmanager
def absent() -> Iterator[Absent]:
    """Let a program that was written for such a device say so to torch meanwhile, and warn in the end."""
    devices = Absent()
    with ExitStack() as entered:
        if not _is_there(_NUMBERED):
            # One function for each, since torch keeps a table of its functions by what they are.
            for function in (set_device, synchronize, current_device):
                entered.enter_context(substituted(torch.cuda, function.__name__, function))
            _move(entered, devices)
        if distributed.is_available():
            _distribute(entered, devices)
        yield devices
    devices.tell()


def set_device(device: object) -> None:
    """Choose none, in place of torch's own."""


def synchronize(device: object = None) -> None:
    """Wait for nothing, in place of torch's own."""


def current_device() -> int:
    """The number of the first, in place of torch's own."""
    return 0


def _move(entered: ExitStack, devices: Absent) -> None:
    """Leave tensors that are moved to such a device where they are."""
    move: Callable[..., torch.Tensor] = torch.Tensor.to

    def to(tensor: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        if "device" in options:
            options["device"] = devices.place(options["device"])
        if args and isinstance(args[0], (str, int, torch.device)):
            args = (devices.place(args[0]), *args[1:])
        return move(tensor, *args, **options)

    def cuda(tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        return to(tensor, _NUMBERED)

    def pin_memory(tensor: torch.Tensor, *_: Any) -> torch.Tensor:
        return tensor

    for function in (to, cuda, pin_memory):
        entered.enter_context(substituted(torch.Tensor, function.__name__, function))


def _distribute(entered: ExitStack, devices: Absent) -> None:
    """Make what several processes train, and their meshes, on the CPU."""
    meshes = import_module("torch.distributed.device_mesh").DeviceMesh
    build: Callable[..., None] = DistributedDataParallel.__init__
    make: Callable[..., None] = meshes.__init__

    def build_beside_none(self: object, module: object, *args: Any, **options: Any) -> None:
        rest = {name: value for name, value in options.items() if name not in _ON_DEVICES}
        build(self, module, None, None, *args[len(_ON_DEVICES) :], **rest)

    def make_beside(self: object, device_type: str, *args: Any, **options: Any) -> None:
        make(self, torch.device(devices.place(device_type)).type, *args, **options)

    if not _is_there(_NUMBERED):
        entered.enter_context(substituted(DistributedDataParallel, "__init__", build_beside_none))
    entered.enter_context(substituted(meshes, "__init__", make_beside))


@lru_cache(maxsize=64)
def _is_there(kind: str) -> bool:
    owners: Iterator[Any] = (getattr(place, kind, None) for place in (torch, torch.backends))
    asked = next((owner.is_available for owner in owners if hasattr(owner, "is_available")), None)
    return asked is None or bool(asked())
