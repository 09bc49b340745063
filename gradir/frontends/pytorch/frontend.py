"""The entry point of the PyTorch front-end; importing it does not import torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, ClassVar

from gradir.errors import CaptureError

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from gradir.explanations.model import Explanation
    from gradir.frontends.pytorch.reading.assemble import LiveGraph
    from gradir.frontends.pytorch.recorder import Recorder
    from gradir.frontends.pytorch.watching.programs import Running
    from gradir.frontends.pytorch.watching.watch import Watching
    from gradir.protocols import Alike, BackwardCallback, LiveCapture, RecordCallback, Verification
    from gradir.request import CaptureRequest


class TorchFrontend:
    """Captures PyTorch autograd graphs."""

    framework: ClassVar[str] = "torch"
    takes: ClassVar[str] = "tensors with a graph in any containers and objects, or a torch.nn.Module and its inputs"
    install: ClassVar[str] = "pip install 'gradir[torch]'"
    features: ClassVar[Set[str]] = frozenset(
        {"collectives", "cost", "explain", "fake", "flow", "forward", "inputs", "joint", "names", "program", "record"}
        | {"release", "run_alike", "seed", "sources", "running", "simulate_rank", "verify", "watching"}
    )
    files: ClassVar[Mapping[str, str]] = dict.fromkeys(
        (".pt", ".pth", ".ckpt", ".bin"),
        "a PyTorch checkpoint, which contains weights and no graph; capture the model, "
        "e.g. gradir capture net.py:Net --input 'float32[1,3]' -o net.gir",
    )

    def __init__(self) -> None:
        try:
            import torch
        except ImportError as error:
            raise CaptureError(f"capturing needs PyTorch: {self.install}") from error
        if torch.__version__ < torch.torch_version.TorchVersion("2.5"):
            raise CaptureError(f"capturing needs torch 2.5 or later, and this is {torch.__version__}: update it")

    @classmethod
    def claims(cls, value: object) -> bool:
        """Return whether a value is a tensor, a module, a class of modules, or an object that contains a tensor."""
        import torch

        from gradir.frontends.pytorch.reading.outputs import tensors_of

        if isinstance(value, type):
            return issubclass(value, torch.nn.Module)
        if isinstance(value, (torch.Tensor, torch.nn.Module)):
            return True
        return not isinstance(value, (tuple, list, dict)) and bool(tensors_of(value))

    def capture(self, request: CaptureRequest) -> LiveCapture:
        """Capture tensors, or the result of a module or a program."""
        from gradir.frontends.pytorch.target import capture_target

        return capture_target(request)

    def verify(self, live: LiveGraph, *, keep_graph: bool = True) -> Verification:
        """Run a real backward and compare it with the graph; see `gradir.verify`."""
        return live.verify(keep_graph=keep_graph)

    def explain(self, request: CaptureRequest) -> Explanation:
        """Run a module or a program and explain its gradients."""
        from gradir.frontends.pytorch.target import explain_target

        return explain_target(request)

    def record(self, request: CaptureRequest) -> Recorder:
        """Record the module and the line of each operation; see `gradir.record`."""
        from gradir.frontends.pytorch.recorder import Recorder

        return Recorder(request)

    def run_alike(self, request: CaptureRequest, path: str, pairs: Mapping[str, str] | None = None) -> Alike | None:
        """Run a program with the weights and inputs of another one; see `run_alike`."""
        from gradir.frontends.pytorch.diff_run import run_alike

        return run_alike(request, path, pairs)

    def seed(self, number: int) -> None:
        """Set the seed of torch's random numbers."""
        import torch

        torch.manual_seed(number)

    def release(self) -> int:
        """Free the nodes of deep graphs that only gradir owns; see `gradir.release`."""
        from gradir.frontends.pytorch.reading.keepalive import release_dead
        from gradir.frontends.pytorch.recording.removable_modes import release_dropped

        release_dropped()
        return release_dead()

    def simulate_rank(self, rank: int, world: int) -> AbstractContextManager[None]:
        """Run the program inside as one rank of many; see `stand_in`."""
        from gradir.frontends.pytorch.fake import stand_in

        return stand_in(rank, world)

    def watching(
        self, callback: RecordCallback, *, model: object = None, optimizers: Sequence[Optimizer] = ()
    ) -> Watching:
        """Watch the steps of the optimizers of the program that runs inside the context."""
        from gradir.frontends.pytorch.watching.watch import Watching

        return Watching(callback, model=model, optimizers=optimizers)

    def running(self, request: CaptureRequest, reached: BackwardCallback) -> Running:
        """Count the backward calls of the program that runs inside the context, and report one of them."""
        from gradir.frontends.pytorch.watching.programs import Running

        return Running(request, reached)
