"""Replacements for data, devices and processes that do not exist."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from importlib import import_module
from typing import Any, Final
from weakref import KeyedRef, getweakrefs

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from gradir.errors import CaptureError, SpecError, warn
from gradir.frontends.pytorch import private
from gradir.frontends.pytorch.reading.distributed import is_in_process_group
from gradir.frontends.walks import frames_from, replace_attribute

_NUMBERED: Final = "cuda"
# Replacements in torch.cuda: one object for each, since torch keeps a table of its functions.
_CUDA: Final[Mapping[str, Callable[..., object]]] = {
    "set_device": lambda device: None,  # noqa: ARG005
    "synchronize": lambda device=None: None,  # noqa: ARG005
    "current_device": lambda: 0,
}


class Absent:
    """The missing devices that a program asked for."""

    def __init__(self) -> None:
        self.asked: set[str] = set()

    def place(self, device: Any) -> Any:
        """Return the device, or the CPU if it is missing: torch's engine would fail, or end the process."""
        # A number is a CUDA device.
        kind = _NUMBERED if isinstance(device, int) else device and torch.device(device).type
        if kind is None or _is_there(kind):
            return device
        self.asked.add(kind)
        return torch.device("cpu")


@contextmanager
def replace_absent_devices() -> Iterator[Absent]:
    """Run a program for missing devices on the CPU, and warn at the end."""
    devices = Absent()
    with ExitStack() as entered:
        if not _is_there(_NUMBERED):
            for name, function in _CUDA.items():
                entered.enter_context(replace_attribute(torch.cuda, name, function))
            # Dynamo calls this one in place of torch.cuda.synchronize.
            accelerator = getattr(torch, "accelerator", None)
            entered.enter_context(replace_attribute(accelerator, "synchronize", lambda device=None: None))  # noqa: ARG005
            _move(entered, devices)
        if distributed.is_available():
            _distribute(entered, devices)
        yield devices
    if devices.asked:
        warn(f"there is no {' and no '.join(sorted(devices.asked))} device here: gradir uses cpu instead")


def _move(entered: ExitStack, devices: Absent) -> None:
    """Keep tensors that the program moves to a missing device on the CPU."""
    move: Callable[..., torch.Tensor] = torch.Tensor.to

    def to(tensor: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
        if "device" in options:
            options["device"] = devices.place(options["device"])
        if args and isinstance(args[0], (str, int, torch.device)):
            args = (devices.place(args[0]), *args[1:])
        return move(tensor, *args, **options)

    def cuda(tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
        return to(tensor, _NUMBERED)

    for name, function in {"to": to, "cuda": cuda, "pin_memory": lambda tensor, *_: tensor}.items():
        entered.enter_context(replace_attribute(torch.Tensor, name, function))


def _distribute(entered: ExitStack, devices: Absent) -> None:
    """Make distributed models and device meshes on the CPU."""
    meshes = import_module("torch.distributed.device_mesh").DeviceMesh
    build: Callable[..., None] = DistributedDataParallel.__init__
    make: Callable[..., None] = meshes.__init__

    def build_beside_none(self: object, module: object, *args: Any, **options: Any) -> None:
        # The first two options of DistributedDataParallel, in this order.
        rest = {name: value for name, value in options.items() if name not in ("device_ids", "output_device")}
        build(self, module, None, None, *args[2:], **rest)

    def make_beside(self: object, device_type: str, *args: Any, **options: Any) -> None:
        make(self, torch.device(devices.place(device_type)).type, *args, **options)

    if not _is_there(_NUMBERED):
        entered.enter_context(replace_attribute(DistributedDataParallel, "__init__", build_beside_none))
    entered.enter_context(replace_attribute(meshes, "__init__", make_beside))


@lru_cache(maxsize=64)
def _is_there(kind: str) -> bool:
    owners: Iterator[Any] = (getattr(place, kind, None) for place in (torch, torch.backends))
    asked = next((owner.is_available for owner in owners if hasattr(owner, "is_available")), None)
    return asked is None or bool(asked())


# Enough for a value per layer of a model.
_MOST: Final = 1_000
_UNSYNCED: Final = "init_sync"
_MESHES: Final = "torch.distributed.device_mesh"


class _Fakes(private.FakeTensorMode):  # type: ignore[misc]
    """Makes tensors without data, except for small constant tensors, which keep their values."""

    def __init__(self, devices: Absent) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self._devices = devices

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # A mesh reads the ranks in its tensor.
        frames = frames_from(sys._getframe(1)) if _MESHES in sys.modules else ()
        if any(frame.f_globals.get("__name__") == _MESHES for frame in frames):
            with private.unset_fake_temporarily():
                return func(*args, **(kwargs or {}))
        if kwargs and "device" in kwargs:
            kwargs = {**kwargs, "device": self._devices.place(kwargs["device"])}
        return super().__torch_dispatch__(func, types, args, kwargs)

    def may_turn_const(self, t: torch.Tensor) -> bool:
        """Return whether torch keeps the values of a result of constants."""
        return type(t) is torch.Tensor and _is_small(t)

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = super().dispatch(func, types, args, kwargs or {})
        is_fake = type(made) is private.FakeTensor and made.constant is None
        if not (is_fake and _makes_of_numbers(func) and _is_small(made)):
            return made
        # Models with stochastic depth do this: ``[rate.item() for rate in torch.linspace(0, 0.1, depth)]``.
        with private.no_dispatch():
            values = func(*args, **(kwargs or {}))
        return self.fake_tensor_converter.from_real_tensor(self, values, make_constant=True)

    def forget(self, tensor: torch.Tensor) -> None:
        """Drop torch's memo of a tensor, because of which torch refuses to swap the tensor for another one."""
        made = getattr(self.fake_tensor_converter.meta_converter, private.REMEMBERED, {})
        for reference in getweakrefs(tensor):
            if isinstance(reference, KeyedRef) and made.get(reference.key) is tensor:
                del made[reference.key]


@contextmanager
def without_data() -> Iterator[None]:
    """Make every tensor without data, and let DistributedDataParallel send none when it is built."""
    can_build = _UNSYNCED in inspect.signature(DistributedDataParallel.__init__).parameters

    def build_alone(self: object, *args: Any, **options: Any) -> None:
        if not can_build:
            why = f"torch {torch.__version__} cannot build a DistributedDataParallel without data"
            raise CaptureError(f"{why}: use a newer torch, or torchrun")
        build(self, *args, **{**options, _UNSYNCED: False})

    def draw_once(tensor: torch.Tensor, mean: float, std: float, *_: Any, **__: Any) -> torch.Tensor:
        # torch would read the values, and draw those outside of the bounds again.
        with torch.no_grad():
            return tensor.normal_(mean, std)

    with ExitStack() as entered:
        fakes = _Fakes(entered.enter_context(replace_absent_devices()))
        swap: Callable[..., None] = torch.utils.swap_tensors

        def swap_fakes(*tensors: torch.Tensor) -> None:
            for tensor in tensors:
                fakes.forget(tensor)
            swap(*tensors)

        build: Callable[..., None] = DistributedDataParallel.__init__
        entered.enter_context(replace_attribute(DistributedDataParallel, "__init__", build_alone))
        entered.enter_context(replace_attribute(nn.init, private.TRUNCATED_NORMAL, draw_once))
        entered.enter_context(replace_attribute(torch.utils, "swap_tensors", swap_fakes))
        entered.enter_context(fakes)
        yield


def _is_small(tensor: torch.Tensor) -> bool:
    return tensor.numel() <= _MOST and tensor.layout is torch.strided and tensor.device.type == "cpu"


@lru_cache(maxsize=1024)
def _makes_of_numbers(func: object) -> bool:
    """Return whether an operation takes no tensor and always returns the same values."""
    if not isinstance(func, private.Operator) or torch.Tag.nondeterministic_seeded in func.tags:
        return False
    schema = private.schema_of(func)
    takes_tensors = any("Tensor" in str(argument.type) for argument in schema.arguments)
    # A tensor of `empty` has no defined values.
    return not takes_tensors and not schema.name.startswith("aten::empty")


# Further variables of a launcher; nobody connects to this address.
_LAUNCHER: Final[Mapping[str, str]] = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "GROUP_RANK": "0"}
# torch would use the mesh of the first rank again for a second one.
_former_ranks: Final[list[int]] = []


@contextmanager
def stand_in(rank: int, world: int) -> Iterator[None]:
    """Run a program as one rank of many: the other ranks do not exist, and nothing is sent."""
    _expect_no_group(rank)
    try:
        # The import registers the backend.
        backend, store = private.NOT_SENDING, import_module(private.UNSENT_BACKEND).FakeStore
    except (ImportError, AttributeError) as error:
        raise CaptureError(f"--world needs the backend 'fake', which torch {torch.__version__} lacks") from error
    makers = [*map(import_module, private.MAKERS)]
    make, make_part = distributed.init_process_group, getattr(distributed.distributed_c10d, private.MAKE_GROUP)

    def init_process_group(*_: Any, **given: Any) -> None:
        for name, value in (("rank", rank), ("world_size", world)):
            if given.get(name, -1) not in (-1, None, value):
                raise SpecError(
                    f"the program calls init_process_group with {name}={given[name]}, and --rank {rank} --world "
                    f"{world} says {value}: leave it to the environment"
                )
        options = {name: given[name] for name in ("timeout", "group_name") if name in given}
        make(backend, store=store(), rank=rank, world_size=world, **options)

    def make_group(size: int, number: int, members: Any, _: Any, *rest: Any, **more: Any) -> Any:
        return make_part(size, number, members, backend, *rest, **more)

    local = {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": world}
    with ExitStack() as entered:
        variables = {name: str(value) for name, value in (*_LAUNCHER.items(), *local.items())}
        entered.callback(os.environ.update, {name: os.environ[name] for name in variables if name in os.environ})
        for name in variables:
            entered.callback(os.environ.pop, name, None)
        os.environ.update(variables)
        for maker in makers:
            entered.enter_context(replace_attribute(maker, make.__name__, init_process_group))
        entered.enter_context(replace_attribute(distributed.distributed_c10d, private.MAKE_GROUP, make_group))
        entered.callback(_destroy_group)
        _former_ranks.append(rank)
        yield
        if not distributed.is_initialized():
            raise CaptureError(
                f"--world {world}: the program has made no process group: it has to call "
                "torch.distributed.init_process_group or init_device_mesh"
            )


def _expect_no_group(rank: int) -> None:
    if not distributed.is_available():
        raise CaptureError("--world needs a torch built with distributed, and this one is not")
    if _former_ranks:
        former = _former_ranks[0]
        raise CaptureError(
            f"--rank {rank}: this process has been rank {former}, and torch remembers its mesh: use another process"
        )
    if distributed.is_initialized():
        raise CaptureError("--world creates a process group, and this process has one already; use another process")


def is_standing_in() -> bool:
    """Return whether the default process group is one that sends nothing."""
    return is_in_process_group() and distributed.get_backend() == private.NOT_SENDING


def _destroy_group() -> None:
    if distributed.is_initialized():
        distributed.destroy_process_group()
