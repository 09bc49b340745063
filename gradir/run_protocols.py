"""The protocols of running programs: the results of `Frontend.running` and `Frontend.watching`, and their callbacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from gradir.explanations.model import Explanation
    from gradir.ir import Graph
    from gradir.watches.model import Finding, Modules, Step

__all__ = ["BackwardCallback", "ReachedBackward", "RecordCallback", "Running", "Watching"]


class ReachedBackward(Protocol):
    """A call of backward in a program, before it runs."""

    @property
    def loss(self) -> float | None:
        """Return the loss as a number, or None if it is not one."""
        return None

    @property
    def is_piped(self) -> bool:
        """Return whether the call belongs to a pipeline's schedule, which runs unchanged up to the optimizer's step."""

    def capture(self) -> Graph:
        """Capture the graph of the loss.

        Raises:
            CaptureError: it cannot be captured.
        """

    def go_on(self, stepped: Callable[[Graph], None]) -> bool:
        """Continue the program up to the optimizer's step, without its backward and without sending.

        ``stepped`` gets the captured graph with all exchanges up to there, or up to the next forward or backward. It
        must raise. Return false if the front-end cannot do this.
        """

    def explain(self) -> Explanation:
        """Explain the loss with the program's optimizers.

        Raises:
            CaptureError: it cannot be explained, or the flow is not recorded.
        """


BackwardCallback = Callable[[ReachedBackward], "bool | None"]
"""A callback at a backward of a program; return true to be called at the next one too."""


class Running(Protocol):
    """A running program whose calls of backward are counted. Methods that return None may be inherited."""

    @property
    def calls(self) -> int:
        """Return the number of calls of backward so far."""

    def explain(self, outputs: object) -> Explanation:
        """Explain outputs of the program, as if it called backward on them.

        Raises:
            CaptureError: they cannot be explained, or the flow is not recorded.
        """

    @property
    def waiting(self) -> int | None:
        """Return how many operations ran so far if the program waits for other processes, else None."""
        return None

    def capture_stopped(self, why: str, error: BaseException | None = None) -> Graph | None:  # noqa: ARG002
        """Return a graph without nodes, with the exchanges of a step that did not reach its backward.

        ``why`` is that of `Rank.stopped`, and ``error`` ended the program. Return None if there is no process
        group.
        """
        return None

    def finish(self) -> Graph | None:
        """Return the captured graph with all exchanges of the program; None if a step ended it before."""
        return None

    def explain_failure(self, error: BaseException) -> Explanation | None:  # noqa: ARG002
        """Explain an error before the first backward; return None if no operation raised it."""
        return None


RecordCallback = Callable[["Modules | Step | Finding"], None]
"""A callback for each record of a watched training."""


class Watching(Protocol):
    """A watched program."""

    @property
    def steps(self) -> int:
        """Return the number of optimizer steps so far."""

    @property
    def backwards(self) -> int:
        """Return the number of calls of backward so far."""

    def finish(self) -> None:
        """Find the problems that only the end of a training shows."""

    def explain_failure(self, error: BaseException) -> Explanation | None:
        """Explain an error before the first backward; return None if no operation raised it."""
