"""The entry point of the PyTorch front-end; importing it does not import torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, ClassVar

from gradir.errors import CaptureError

if TYPE_CHECKING:
    from gradir.explanations.model import Explanation
    from gradir.frontends.pytorch.reading.assemble import LiveGraph
    from gradir.frontends.pytorch.recorder import Recorder
    from gradir.frontends.pytorch.watching import Watch
    from gradir.ir import Graph
    from gradir.protocols import Names, Verification

__all__ = ["TorchFrontend"]


class TorchFrontend:
    """Captures PyTorch autograd graphs."""

    framework: ClassVar[str] = "torch"
    takes: ClassVar[str] = "tensors with a graph in any containers and objects, or a torch.nn.Module and its inputs"
    install: ClassVar[str] = "pip install 'gradir[torch]'"
    files: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            (".pt", ".pth", ".ckpt", ".bin"),
            "a PyTorch checkpoint, which holds weights and no graph; capture the model, "
            "e.g. gradir capture net.py:Net --input 'float32[1,3]' -o net.gir",
        ),
        ".pt2": "a torch.export program; return torch.export.load('...').module() from a function, and capture that, "
        "e.g. gradir capture load.py:model --input 'float32[1,3]' -o net.gir",
    }

    def __init__(self) -> None:
        try:
            import torch
        except ImportError as error:
            raise CaptureError(f"capturing needs PyTorch: {self.install}") from error
        if torch.__version__ < torch.torch_version.TorchVersion("2.5"):
            raise CaptureError(f"capturing needs torch 2.5 or later, and this is {torch.__version__}: update it")

    @classmethod
    def claims(cls, value: object) -> bool:
        """Whether a value is a tensor, a module or a class of modules, or has a tensor in it."""
        import torch

        from gradir.frontends.pytorch.reading.leaves import tensors_of

        if isinstance(value, type):
            return issubclass(value, torch.nn.Module)
        if isinstance(value, (torch.Tensor, torch.nn.Module)):
            return True
        return not isinstance(value, (tuple, list, dict)) and bool(tensors_of(value))

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

    def record(
        self, model: object = None, *, sources: bool = False, flow: bool = False, collectives: bool = False
    ) -> Recorder:
        """Record which module, and which line, runs which operation; see `gradir.record`."""
        from gradir.frontends.pytorch.recorder import Recorder

        return Recorder(model, sources=sources, flow=flow, collectives=collectives)

    def verify(self, live: LiveGraph, *, keep_graph: bool = True) -> Verification:
        """Run a real backward and compare it with the graph; see `gradir.verify`."""
        return live.verify(keep_graph=keep_graph)

    def capture_target(
        self, target: object, inputs: Sequence[str], *, seed: int = 0, sources: bool = False
    ) -> LiveGraph:
        """Run what a PROGRAM named and capture what comes out."""
        from gradir.frontends.pytorch.target import capture_target

        return capture_target(target, inputs, seed, sources)

    def capture_flow_target(
        self, target: object, inputs: Sequence[str], *, seed: int = 0, sources: bool = False, fake: bool = False
    ) -> LiveGraph:
        """The same, noting every operation, on tensors with or without data."""
        from gradir.frontends.pytorch.target import capture_fake_target, capture_target

        return (capture_fake_target if fake else capture_target)(target, inputs, seed, sources, flow=True)

    def capture_exchange_target(
        self,
        target: object,
        inputs: Sequence[str],
        *,
        seed: int = 0,
        sources: bool = False,
        flow: bool = False,
        fake: bool = False,
        step: int = 1,
    ) -> LiveGraph:
        """The same, noting what is exchanged with other processes."""
        from gradir.frontends.pytorch.target import capture_exchange_target

        return capture_exchange_target(target, inputs, seed, sources, flow=flow, fake=fake, step=step)

    def forward_target(self, target: object, inputs: Sequence[str], *, seed: int = 0, fake: bool = False) -> Graph:
        """Run what a PROGRAM named and give the graph of its forward."""
        from gradir.frontends.pytorch.target import forward_of_target

        return forward_of_target(target, inputs, seed, fake=fake)

    def explain_target(
        self,
        target: object,
        inputs: Sequence[str],
        *,
        seed: int = 0,
        values: bool | None = None,
        graph: str = "autograd",
    ) -> Explanation:
        """Run what a PROGRAM named and explain what comes out."""
        from gradir.frontends.pytorch.target import explain_target

        return explain_target(target, inputs, seed, values, graph)

    def capture_fake_target(
        self, target: object, inputs: Sequence[str], *, seed: int = 0, sources: bool = False
    ) -> LiveGraph:
        """The same on tensors without data."""
        from gradir.frontends.pytorch.target import capture_fake_target

        return capture_fake_target(target, inputs, seed, sources)

    def standing_in(self, rank: int, world: int) -> AbstractContextManager[None]:
        """Let the program inside find itself as one of many processes; see `standing_in`."""
        from gradir.frontends.pytorch.alone import standing_in

        return standing_in(rank, world)

    def watching(self, step: int, reached: Callable[[Callable[[], Graph]], None]) -> Watch:
        """Count the calls of backward of the program that runs inside the context, and capture at one of them."""
        from gradir.frontends.pytorch.watching import Watch

        return Watch(step, reached)
