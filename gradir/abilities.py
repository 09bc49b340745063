"""What a front-end can do beside capturing, each a small protocol that it may lack; `choosing.able` asks for one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from gradir.errors import SpecError
from gradir.ir import Graph
from gradir.protocols import LiveCapture, Recorder, Verification

if TYPE_CHECKING:
    from gradir.explanations.model import Explanation

__all__ = [
    "Differentiates",
    "Exchanges",
    "Explains",
    "Fakes",
    "Flows",
    "Records",
    "Releases",
    "Runs",
    "Seeds",
    "StandsIn",
    "StoppedError",
    "Verifies",
    "Watched",
    "Watches",
]


@runtime_checkable
class Verifies(Protocol):
    """A front-end that can check a graph against the engine of its framework."""

    def verify(self, live: Any, *, keep_graph: bool = True) -> Verification:
        """Run a real backward and compare it with the graph, which can run another one afterwards if it is kept.

        Raises:
            CaptureError: backward cannot run, or only once where the graph is to be kept.
        """
        ...


@runtime_checkable
class Records(Protocol):
    """A front-end that can watch what runs."""

    def record(self, model: object = None, *, sources: bool = False) -> Recorder:
        """Note the modules that run inside a context; with ``sources``, source lines and variables too.

        Raises:
            CaptureError: ``model`` is no module; raised when the context is entered.
        """
        ...


class StoppedError(SpecError):
    """What a PROGRAM names raised when a part of its forward had run, of which ``graph`` is the graph."""

    def __init__(self, message: str, graph: Graph) -> None:
        super().__init__(message)
        self.graph = graph


@runtime_checkable
class Flows(Records, Protocol):
    """A front-end that can note every operation of a forward, those without gradient too."""

    def record(self, model: object = None, *, sources: bool = False, flow: bool = False) -> Recorder:
        """As `Records.record`; with ``flow``, `Recorder.forward` gives the graph of the forward.

        Raises:
            CaptureError: ``model`` is no module; raised when the context is entered.
        """
        ...

    def capture_flow_target(
        self, target: object, inputs: Sequence[str], *, seed: int = 0, sources: bool = False, fake: bool = False
    ) -> LiveCapture:
        """As `Runs.capture_target`, or with ``fake`` `Fakes.capture_fake_target`, noting the flow.

        Raises:
            CaptureError: the target cannot be run or has no graph.
        """
        ...

    def forward_target(self, target: object, inputs: Sequence[str], *, seed: int = 0, fake: bool = False) -> Graph:
        """Run what a PROGRAM named, and give the graph of its forward; it needs no gradient.

        Raises:
            StoppedError: the target raised behind some operation, or an operation did; ``ext`` of the last function in
                its graph has the error under ``failed``.
            CaptureError: the target cannot be run.
        """
        ...


@runtime_checkable
class Exchanges(Records, Protocol):
    """A front-end that can note what a process exchanges with others that train with it."""

    def record(
        self, model: object = None, *, sources: bool = False, flow: bool = False, collectives: bool = False
    ) -> Recorder:
        """As `Records.record`; with ``collectives``, graphs have their rank and what was exchanged.

        Raises:
            CaptureError: ``model`` is no module; raised when the context is entered.
        """
        ...

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
    ) -> LiveCapture:
        """As `Runs.capture_target`, with what is exchanged, in a backward in which nothing is sent too.

        It is the call number ``step`` of the target that is captured; those before run with their backward.

        Raises:
            CaptureError: the target cannot be run, has no graph, or made no process group.
        """
        ...


@runtime_checkable
class StandsIn(Protocol):
    """A front-end that can make one of many processes that train together without the others."""

    def standing_in(self, rank: int, world: int) -> AbstractContextManager[None]:
        """Let the program inside find itself as that rank of so many, of which the others do not exist.

        Raises:
            CaptureError: the framework cannot, or, as the context ends, the program wanted no other process.
        """
        ...


@runtime_checkable
class Explains(Protocol):
    """A front-end that can explain why a gradient does not arrive."""

    def explain_target(
        self,
        target: object,
        inputs: Sequence[str],
        *,
        seed: int = 0,
        values: bool | None = None,
        graph: str = "autograd",
    ) -> Explanation:
        """Run what a PROGRAM named, as `Runs.capture_target` does, and explain what comes out, or the error.

        ``graph`` is the one that the explanation's overlay is for, ``autograd`` or ``forward``.

        Raises:
            CaptureError: the target cannot be run, or returns no tensor.
        """
        ...


@runtime_checkable
class Differentiates(Protocol):
    """A front-end that knows the gradient of a function from the function itself, which it traces."""

    def capture_gradient(
        self,
        target: object,
        inputs: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        argnums: int | Sequence[int] = 0,
        has_aux: bool = False,
    ) -> LiveCapture:
        """Capture what lies behind the gradient of a function by some of its arguments; see `gradir.capture`.

        Raises:
            CaptureError: nothing that the function returns has a gradient, or none comes to these arguments.
        """
        ...

    def explain_gradient(
        self,
        target: object,
        inputs: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        argnums: int | Sequence[int] = 0,
        has_aux: bool = False,
        values: bool | None = None,
    ) -> Explanation:
        """Explain which leaves of these arguments get a gradient; see `gradir.explain`.

        Raises:
            CaptureError: nothing that the function returns has a gradient.
        """
        ...


@runtime_checkable
class Runs(Protocol):
    """A front-end that can run what a PROGRAM names, on inputs that are described, and note source lines."""

    def capture_target(
        self, target: object, inputs: Sequence[str], *, seed: int = 0, sources: bool = False
    ) -> LiveCapture:
        """Run and capture what a PROGRAM named: a tensor, a callable, or a module to run on ``inputs``.

        With ``sources`` the nodes have their source lines, and the variables they were assigned to.

        Raises:
            CaptureError: the target cannot be run or has no graph.
        """
        ...


@runtime_checkable
class Fakes(Protocol):
    """A front-end that can run a model without its data."""

    def capture_fake_target(
        self, target: object, inputs: Sequence[str], *, seed: int = 0, sources: bool = False
    ) -> LiveCapture:
        """As `Runs.capture_target`, on tensors without data: the size of a model costs neither memory nor time.

        Raises:
            CaptureError: the target has data already, cannot be run, or has no graph.
        """
        ...


@runtime_checkable
class Seeds(Protocol):
    """A front-end whose framework draws random numbers."""

    def seed(self, number: int) -> None:
        """Set the seed of the framework's random numbers."""
        ...


@runtime_checkable
class Releases(Protocol):
    """A front-end whose captures hold something of a graph for longer than the program does."""

    def release(self) -> int:
        """Let go of what captures still hold of graphs that the program has dropped; returns how many functions."""
        ...


class Watched(Protocol):
    """A program whose backwards are counted."""

    @property
    def calls(self) -> int:
        """How often the program has called backward."""
        ...


@runtime_checkable
class Watches(Protocol):
    """A front-end that can capture the graph of a program that runs by itself, where that calls backward."""

    def watching(self, step: int, reached: Callable[[Callable[[], Graph]], None]) -> AbstractContextManager[Watched]:
        """Note the modules and lines of what runs inside the context, and count its calls of backward.

        At the call number ``step``, before it runs, ``reached`` is called once, with what captures its graph, which
        may raise a `CaptureError`. What ``reached`` raises goes through the program, from this call and any later one.
        Whatever was put in the framework's place is undone with the context.
        """
        ...
