"""The entry point of the PyTorch front-end; importing it does not import torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from gradir.errors import CaptureError

if TYPE_CHECKING:
    from gradir.capture.pytorch.recorder import Recorder
    from gradir.ir import Graph

__all__ = ["TorchFrontend"]


class TorchFrontend:
    """Captures PyTorch autograd graphs."""

    name: ClassVar[str] = "torch"

    def __init__(self) -> None:
        try:
            import torch  # noqa: F401
        except ImportError as error:
            raise CaptureError("capturing needs PyTorch: pip install 'gradir[torch]'") from error

    def capture(self, outputs: object, *, model: object = None, params: Mapping[str, Any] | None = None) -> Graph:
        """Capture the graph behind tensors; see `gradir.capture`."""
        from gradir.capture.pytorch.assemble import capture

        return capture(outputs, model=model, params=params)

    def record(self, model: object = None) -> Recorder:
        """Record which module runs which operation; see `gradir.record`."""
        from gradir.capture.pytorch.recorder import Recorder

        return Recorder(model)

    def capture_target(self, target: object, inputs: Sequence[str], *, seed: int = 0) -> Graph:
        """Run what a SPEC named and capture what comes out."""
        from gradir.capture.pytorch.target import capture_target

        return capture_target(target, inputs, seed)
