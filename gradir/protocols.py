"""The protocols of plug-ins: exporters, renderers of diffs, passes and front-ends.

gradir finds them by entry point, its own too::

    [project.entry-points."gradir.exporters"]
    edges = "my_package.edges:EdgesExporter"
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeVar, runtime_checkable

from gradir.errors import CaptureError, SpecError
from gradir.ir import Graph
from gradir.options import NoOptions, Options
from gradir.request import CaptureRequest, Names
from gradir.run_protocols import BackwardCallback, ReachedBackward, RecordCallback, Running, Watching

if TYPE_CHECKING:
    from gradir.diffs.changes import Diff
    from gradir.explanations.model import Explanation
    from gradir.ir.marks import ListedChange

__all__ = [
    "Alike",
    "BackwardCallback",
    "CaptureRequest",
    "Distance",
    "Exporter",
    "Frontend",
    "ListsChanges",
    "LiveCapture",
    "Names",
    "NoOptions",
    "Options",
    "OtherFrontendError",
    "Pass",
    "ReachedBackward",
    "RecordCallback",
    "Recorder",
    "Renderer",
    "Reports",
    "Running",
    "StoppedError",
    "Verification",
    "Watching",
]


OptionsT_contra = TypeVar("OptionsT_contra", bound=Options, contravariant=True)


class Exporter(Protocol[OptionsT_contra]):
    """Turn a graph into text, as a pure function without I/O.

    ``gradir exporters`` shows the first line of the class's docstring. If options choose among formats, define
    ``suffix_for(options)``, which returns the suffix. Set ``shows_nodes = False`` to refuse overlays, and
    ``shows_channels = True`` to get the marks of all channels, see `gradir.ir.marks`.
    """

    suffix: ClassVar[str]
    """The file suffix of the format, with its dot."""

    options: ClassVar[type[Options]]
    """The type of the options that `export` takes."""

    def export(self, graph: Graph, options: OptionsT_contra) -> str:
        """Return the graph in the exporter's format, ending in a newline.

        Raises:
            ExportError: the format cannot represent this graph.
        """


@runtime_checkable
class ListsChanges(Protocol):
    """An exporter that lists changes beside the picture of a diff, for ``gradir diff --format html``."""

    def export_changes(
        self,
        graph: Graph,
        options: Any,
        changes: Sequence[ListedChange],
        had: Mapping[str, tuple[int, int]],
        sides: Sequence[tuple[str, Graph]] = (),
    ) -> str:
        """Export a graph whose nodes have marks for their changes, with the errors of `Exporter.export`.

        ``had`` maps the path of each module of the first graph to its number of parameter elements, with submodules,
        and its own saved bytes. ``sides`` are both graphs with their names.
        """


@runtime_checkable
class Reports(Protocol):
    """An exporter that puts graphs below a report, for ``gradir ranks --format html``."""

    def export_report(self, title: str, style: str, body: str, graphs: Sequence[tuple[str, Graph]]) -> str:
        """Return a page with the style, the escaped markup and the named graphs of a report."""


class Renderer(Protocol[OptionsT_contra]):
    """Turn a diff into text, as a pure function without I/O, for ``gradir diff --format`` and `gradir.Diff.to`."""

    suffix: ClassVar[str]
    """The file suffix of the format, with its dot."""

    options: ClassVar[type[Options]]
    """The type of the options that `render` takes."""

    def render(self, diff: Diff, options: OptionsT_contra) -> str:
        """Return the diff in the renderer's format, ending in a newline.

        ``diff.findings`` summarize the changes. ``diff.sides`` has both graphs, unless the diff was read from a file.

        Raises:
            ExportError: the format cannot represent this diff.
        """


class Pass(Protocol[OptionsT_contra]):
    """Turn a graph into a graph, for ``gradir export`` and keyword arguments of `gradir.export`.

    A pass runs if one of its options is given; a ``bool`` asks for it with true. An option without a default is
    required with the others. The ``title`` of an option's type names its value in the help text.
    """

    order: ClassVar[int]
    """Passes run by this number: gradir's own hide nodes (10, 20), choose a part (30 to 60), and fold (70, 80)."""

    options: ClassVar[type[Options]]
    """The type of the options of `run`; with ``chooses = False`` beside it, gradir still shrinks pictures."""

    def run(self, graph: Graph, options: OptionsT_contra) -> Graph:
        """Return the new graph, or the graph itself if nothing changes.

        Raises:
            PassError: the pass cannot do what the options ask for.
        """


class Verification(NamedTuple):
    """The comparison of a graph with the framework's engine, which is true without mismatches.

    ``nodes`` and ``edges`` count the functions of the graph and the edges into them, ``executed`` those that the engine
    ran. ``mismatches`` has a line for each difference. ``skipped`` says why no engine ran, if none did.

    >>> bool(Verification(1, 1, 1, ())), bool(Verification(1, 1, 0, ("exp:1 did not run",)))
    (True, False)
    """

    nodes: int
    edges: int
    executed: int
    mismatches: tuple[str, ...]
    skipped: str = ""

    def __bool__(self) -> bool:
        return not self.mismatches


class Distance(NamedTuple):
    """The largest difference of two tensors, absolute and relative to the largest value of the first."""

    absolute: float
    relative: float


class Alike(NamedTuple):
    """The results of a program beside those of another one with equal weights and inputs.

    Attributes:
        paired: number of parameters that got the values of the other program.
        left: parameters of the other program without a counterpart.
        own: parameters of this program without one.
        outputs: distances of outputs; none if sizes differ.
        gradients: distances by parameter, if both have gradients of equal sizes.
        lost: paired parameters with a gradient in the other program only.
        gained: paired parameters with a gradient in this program only.
    """

    paired: int
    left: tuple[str, ...]
    own: tuple[str, ...]
    outputs: tuple[Distance | None, ...]
    gradients: Mapping[str, Distance]
    lost: tuple[str, ...] = ()
    gained: tuple[str, ...] = ()


class LiveCapture(Protocol):
    """A graph with the live objects that it was made of.

    With the feature ``flow`` and ``graph="both"``, ``forward`` is the forward graph or the reason why there is none.
    """

    @property
    def graph(self) -> Graph:
        """Return the graph."""


class Recorder(Protocol):
    """A context manager that records which module runs which operation, and captures the result."""

    def __enter__(self) -> Recorder: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def capture(self, outputs: object, *, model: object = None, params: Names | None = None) -> Graph:
        """Capture tensors that were computed inside the context; see `gradir.capture`.

        Raises:
            CaptureError: no tensor among the outputs has a graph.
        """

    def forward(self, *, model: object = None, params: Names | None = None) -> Graph:
        """Return the graph of every operation that ran inside the context, recorded with ``flow=True``.

        Operations are in order of execution, after the parameters, buffers, leaves and inputs that they use. The kind
        of an edge is ``data`` (read), ``view`` or ``inplace`` (written). An operation that raised is the last one, with
        the error in ``ext``. Unused results are outputs.

        Raises:
            CaptureError: the flow was not recorded.
        """

    def with_collectives(self, graph: Graph) -> Graph:
        """Return a graph of this recording with its rank and all collectives until now.

        Raises:
            CaptureError: the recorder was not made with ``collectives=True``, or the process group is gone.
        """

    def verify(
        self, outputs: object, *, model: object = None, params: Names | None = None, keep_graph: bool = True
    ) -> Verification:
        """Capture a graph and compare it with the engine; see `gradir.verify`.

        Raises:
            CaptureError: there is no graph, or its backward cannot run, or runs only once.
        """

    def explain(
        self,
        subject: object,
        *,
        model: object = None,
        params: Names | None = None,
        optimizer: Any = None,
        values: bool | None = None,
    ) -> Explanation:
        """Explain which parameters get a gradient from a loss, and why the others get none.

        Args:
            subject: the loss, nested tensors, or an error that an operation inside the context raised.
            model: the module whose parameters to explain (default: the recorder's).
            params: further tensors to explain, by name.
            optimizer: one or a list of several; parameters outside of them may lack a gradient.
            values: also run a backward pass, without adding to ``.grad``, to find zero and non-finite gradients and
                in-place errors (default: if the graph is small).

        Raises:
            CaptureError: the flow was not recorded, nothing ran, or the subject has no tensor.
        """


class StoppedError(SpecError):
    """A PROGRAM raised during its forward pass; ``graph`` is the forward graph up to there."""

    def __init__(self, message: str, graph: Graph) -> None:
        super().__init__(message)
        self.graph = graph


class OtherFrontendError(CaptureError):
    """A PROGRAM that a front-end ran returned ``made``, an object for another front-end."""

    def __init__(self, made: object) -> None:
        super().__init__(f"another front-end captures an object of type {type(made).__name__}")
        self.made = made


class Frontend(Protocol):
    """Make graphs from live objects of a framework.

    Importing the module must be cheap. `claims` and `capture` are required. Every other method belongs to the feature
    of its name in ``features``.
    """

    framework: ClassVar[str]
    """The module name of the framework. gradir does not call a front-end whose framework is not loaded."""

    takes: ClassVar[str]
    """A phrase for errors, such as "a tensor or module"."""

    install: ClassVar[str]
    """How to install the framework, for errors.

    Four members are optional. ``files`` maps suffixes of the framework's own files to a description and the command
    that works. ``reads`` maps suffixes to descriptions of files, which the method ``read`` gets open and turns into a
    graph. ``before`` names front-ends that get an object first if they claim it too and can do the task. The method
    ``tensor(dtype, shape)`` makes an input such as ``float32[1,3]`` (default: a number or nested lists).
    """

    features: ClassVar[Set[str]]
    """Names of `gradir.request.FEATURES` and of options; gradir refuses options that need others."""

    @classmethod
    def claims(cls, value: object) -> bool:
        """Return whether a value is the framework's, by its type alone.

        gradir asks about the target, and if nobody claims it about the contents of its tuples, lists and dicts.
        """

    def capture(self, request: CaptureRequest) -> LiveCapture:
        """Capture nested tensors, or the outputs of a module or function for its inputs.

        With the feature ``program`` it runs the target of a program itself.

        Raises:
            StoppedError: the target raised during a forward graph; ``ext`` of the last function has ``failed``.
            OtherFrontendError: the program made something for another front-end.
            CaptureError: the target cannot be run, or has no graph.
        """

    def verify(self, live: Any, *, keep_graph: bool = True) -> Verification:
        """Run a real backward pass and compare it with the capture.

        Raises:
            CaptureError: backward cannot run, or runs only once and the graph is kept.
        """

    def explain(self, request: CaptureRequest) -> Explanation:
        """Run a target and explain its outputs or its error.

        ``request.graph`` is the one that the explanation's overlay is for.

        Raises:
            CaptureError: the target cannot be run, or returns no tensor.
        """

    def record(self, request: CaptureRequest) -> Recorder:
        """Return a recorder; see `gradir.record`.

        Raises:
            CaptureError: the model is no module (raised on entering).
        """

    def run_alike(self, request: CaptureRequest, path: str, pairs: Mapping[str, str] | None = None) -> Alike | None:
        """Run a program and write its weights, inputs, outputs and gradients to a file.

        With ``pairs``, a mapping from its parameters to those in the file, run it with the weights in the file.

        Raises:
            CaptureError: the program cannot be run, or returns nothing with a gradient.
        """

    def seed(self, number: int) -> None:
        """Set the seed of the framework's random numbers."""

    def release(self) -> int:
        """Free captured graphs that the program has dropped, and return the number of functions."""

    def simulate_rank(self, rank: int, world: int) -> AbstractContextManager[None]:
        """Run the program inside as one rank of a world whose other ranks do not exist.

        Raises:
            CaptureError: the framework cannot, or the program made no process group (raised on leaving).
        """

    def watching(
        self, callback: RecordCallback, *, model: object = None, optimizers: Any = ()
    ) -> AbstractContextManager[Watching]:
        """Watch the steps of a training inside the context, without changing it.

        ``callback`` gets each record, and its errors pass through the program. ``model`` and ``optimizers`` exist.
        """

    def running(self, request: CaptureRequest, reached: BackwardCallback) -> AbstractContextManager[Running]:
        """Record modules and lines inside the context, and count the calls of backward.

        ``reached`` is called before the call number ``step`` runs, and its errors pass through the program. Leaving the
        context undoes all patches of the framework.
        """
