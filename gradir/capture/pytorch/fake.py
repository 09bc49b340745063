"""Tensors that have a shape and no data."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.nn.parallel import DistributedDataParallel

__all__ = ["without_data"]

_MESHES: Final = "torch.distributed.device_mesh"


class _Mode(FakeTensorMode):  # type: ignore[no-untyped-call]
    """Makes tensors without data, but for those that say which process is where in a device mesh."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _in_mesh():
            with unset_fake_temporarily():
                return func(*args, **(kwargs or {}))
        return super().__torch_dispatch__(func, types, args, kwargs)


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


@contextmanager
def without_data() -> Iterator[None]:
    """Make every tensor without data meanwhile, and send none where a model is built that several processes train."""
    wrapper: Any = DistributedDataParallel
    build = wrapper.__init__

    def build_alone(self: object, *args: Any, **options: Any) -> None:
        build(self, *args, **{**options, "init_sync": False})

    wrapper.__init__ = build_alone
    try:
        with _Mode(allow_non_fake_inputs=True):
            yield
    finally:
        wrapper.__init__ = build
