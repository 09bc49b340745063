"""The entry point of the PyTorch front-end; importing it does not import torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from gradir.errors import CaptureError

if TYPE_CHECKING:
    from gradir.frontends.pytorch.reading.assemble import LiveGraph
    from gradir.frontends.pytorch.recorder import Recorder
    from gradir.protocols import Names

__all__ = ["TorchFrontend"]


class TorchFrontend:
    """Captures PyTorch autograd graphs."""

    name: ClassVar[str] = "torch"

    def __init__(self) -> None:
        try:
            import torch
        except ImportError as error:
            raise CaptureError("capturing needs PyTorch: pip install 'gradir[torch]'") from error
        if torch.__version__ < torch.torch_version.TorchVersion("2.5"):
            raise CaptureError(f"capturing needs torch 2.5 or later, and this is {torch.__version__}: update it")

    def capture(
        self,
        target: object,
        inputs: Sequence[object] = (),
        *,
        kwargs: Mapping[str, object] | None = None,
        model: object = None,
        params: Names | None = None,
    ) -> LiveGraph:
        """Capture tensors, or a module run on inputs; see `gradir.capture`."""
        from torch import nn

        from gradir.frontends.pytorch.reading.assemble import capture
        from gradir.frontends.pytorch.target import capture_module

        if isinstance(target, nn.Module):
            return capture_module(target, inputs, kwargs or {}, model=model, params=params)
        if inputs or kwargs:
            raise CaptureError(f"inputs are for a torch.nn.Module to run on, not for {type(target).__name__}")
        return capture(target, model=model, params=params)

    def seed(self, number: int) -> None:
        """Set the seed of torch's random numbers."""
        import torch

        torch.manual_seed(number)

    def release(self) -> int:
        """Let go of the nodes of deep graphs that nothing but their capture holds; see `gradir.release`."""
        from gradir.frontends.pytorch.reading.keepalive import release_dead

        return release_dead()

    def record(self, model: object = None, *, sources: bool = False, flow: bool = False) -> Recorder:
        """Record which module, and which line, runs which operation; see `gradir.record`."""
        from gradir.frontends.pytorch.recorder import Recorder

        return Recorder(model, sources=sources, flow=flow)

    def capture_target(
        self, target: object, inputs: Sequence[str], *, seed: int = 0, fake: bool = False, sources: bool = False
    ) -> LiveGraph:
        """Run what a SPEC named and capture what comes out."""
        from gradir.frontends.pytorch.target import capture_fake_target, capture_target

        run = capture_fake_target if fake else capture_target
        return run(target, inputs, seed, sources)
