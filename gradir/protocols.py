"""What gradir asks of a plug-in: an exporter, a renderer of a diff, a pass or a front-end.

All are found by entry point, the built-in ones too. An exporter is one class in one file, registered by one line::

    [project.entry-points."gradir.exporters"]
    edges = "my_package.edges:EdgesExporter"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeVar, runtime_checkable

from gradir.errors import CaptureError, SpecError
from gradir.ir import Graph
from gradir.options import NoOptions, Options
from gradir.request import CaptureRequest, Names

if TYPE_CHECKING:
    from gradir.diffs.changes import Diff
    from gradir.explanations.model import Explanation
    from gradir.ir.marks import ListedChange
    from gradir.watches.model import Finding, Modules, Step

__all__ = [
    "Alike",
    "CaptureRequest",
    "Distance",
    "Exporter",
    "Frontend",
    "ListsChanges",
    "LiveCapture",
    "MadeOtherError",
    "Names",
    "NoOptions",
    "Options",
    "Pass",
    "Reached",
    "ReachedBackward",
    "Recorder",
    "Renderer",
    "Reports",
    "Running",
    "StoppedError",
    "Told",
    "Verification",
    "Watching",
]


OptionsT_contra = TypeVar("OptionsT_contra", bound=Options, contravariant=True)


class Exporter(Protocol[OptionsT_contra]):
    """Turns a graph into text: a pure function with a name, no I/O, no clock, no globals.

    The first line of the class's docstring is its summary in ``gradir exporters``. A class whose options choose among
    formats may have a method ``suffix_for(options)`` too, the suffix of what ``export`` gives for them; one that shows
    modules and no nodes may say ``shows_nodes = False``, and an overlay is refused for it; one that shows all channels
    of an overlay says ``shows_channels = True``, and gets the marks of all of them, see `gradir.ir.marks`.
    """

    suffix: ClassVar[str]
    """The file suffix of the format, with its dot."""

    options: ClassVar[type[Options]]
    """The type of the options that `export` takes."""

    def export(self, graph: Graph, options: OptionsT_contra) -> str:
        """The graph in the exporter's format, ending in a newline.

        Raises:
            ExportError: the format cannot hold this graph.
        """
        ...


@runtime_checkable
class ListsChanges(Protocol):
    """An exporter that can list what changed beside the picture of a diff, as ``gradir diff --format html`` asks."""

    def export_changes(
        self,
        graph: Graph,
        options: Any,
        changes: Sequence[ListedChange],
        had: Mapping[str, tuple[int, int]],
        sides: Sequence[tuple[str, Graph]] = (),
    ) -> str:
        """As `Exporter.export`, with its errors, of a graph whose nodes are marked with what became of them.

        ``had`` has by the path of each module of the first graph, as ``graph`` calls it, how many elements its
        parameters had there with those of the modules below, and how many bytes it saved itself. ``sides`` are both
        graphs, each with what it is called.
        """
        ...


@runtime_checkable
class Reports(Protocol):
    """An exporter that can put graphs below a report, as ``gradir ranks --format html`` asks."""

    def export_report(self, title: str, style: str, body: str, graphs: Sequence[tuple[str, Graph]]) -> str:
        """One page of a report: its style and its markup, in which all text of others is escaped, and named graphs."""
        ...


class Renderer(Protocol[OptionsT_contra]):
    """Turns a diff of two graphs into text: a pure function with a name, no I/O, no clock, no globals.

    ``gradir diff --format`` and `gradir.Diff.to` take its name. The first line of the class's docstring is its summary
    in ``gradir diff --format NAME --help``.
    """

    suffix: ClassVar[str]
    """The file suffix of the format, with its dot."""

    options: ClassVar[type[Options]]
    """The type of the options that `render` takes."""

    def render(self, diff: Diff, options: OptionsT_contra) -> str:
        """What changed, in the renderer's format, ending in a newline.

        ``diff.findings`` say what the changes come to, and ``diff.sides`` has both graphs, unless it was read from a
        file.

        Raises:
            ExportError: the format cannot hold this diff.
        """
        ...


class Pass(Protocol[OptionsT_contra]):
    """Makes a graph of a graph, for the command line and for keyword arguments of `gradir.export`.

    It runs where one of its options is given, which are options of ``gradir export`` and keywords too. One without a
    default has to be given with any other; of a ``bool``, true asks for the pass. The ``title`` of an option's type is
    what the help text calls its value.
    """

    order: ClassVar[int]
    """Passes run by this number. What is not to be seen goes first (gradir's own: 10 and 20), then a part is chosen (30
    to 60), and what makes one node of many comes last (70 and 80)."""

    options: ClassVar[type[Options]]
    """The type of the options that `run` takes. A pass after which a large picture is still to be made small enough to
    read has ``chooses = False`` beside it."""

    def run(self, graph: Graph, options: OptionsT_contra) -> Graph:
        """The graph that is left; the graph itself where there is nothing to do.

        Raises:
            PassError: the pass cannot do what the options ask for.
        """
        ...


class Verification(NamedTuple):
    """What a framework's engine did in a backward, beside what the graph says.

    ``nodes`` and ``edges`` count the functions of the graph and the edges into them, ``fired`` the functions that the
    engine ran. ``mismatches`` has a line for everything on which the two disagree; without one it is true.

    >>> bool(Verification(1, 1, 1, ())), bool(Verification(1, 1, 0, ("exp:1 did not run",)))
    (True, False)
    """

    nodes: int
    edges: int
    fired: int
    mismatches: tuple[str, ...]

    def __bool__(self) -> bool:
        return not self.mismatches


class Distance(NamedTuple):
    """The largest difference of two tensors, and its share of the largest number of the first."""

    absolute: float
    relative: float


class Alike(NamedTuple):
    """What a program computes beside another one with equal weights and inputs.

    Attributes:
        paired: how many parameters had the values of the other program's.
        left: the parameters of the other program that have no counterpart.
        own: those of this program, which kept their own values.
        outputs: of each output; none where the sizes differ.
        gradients: by parameter, where both programs have a gradient of the same sizes.
        lost: the paired parameters that get a gradient in the other program alone.
        gained: those that get one in this program alone.
    """

    paired: int
    left: tuple[str, ...]
    own: tuple[str, ...]
    outputs: tuple[Distance | None, ...]
    gradients: Mapping[str, Distance]
    lost: tuple[str, ...] = ()
    gained: tuple[str, ...] = ()


class LiveCapture(Protocol):
    """A graph together with the live objects it was made of.

    A front-end with the feature ``flow`` that is asked for ``both`` graphs also has a ``forward``: the graph of the
    forward that ran, or why there is none.
    """

    @property
    def graph(self) -> Graph:
        """The graph."""
        ...


class Recorder(Protocol):
    """A context manager that notes which module runs which operation inside it, and captures what was run."""

    def __enter__(self) -> Recorder: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def capture(self, outputs: object, *, model: object = None, params: Names | None = None) -> Graph:
        """Capture tensors that were made inside the context; see `gradir.capture`.

        Raises:
            CaptureError: no tensor among the outputs has a graph.
        """
        ...

    def forward(self, *, model: object = None, params: Names | None = None) -> Graph:
        """The graph of every operation that ran inside the context, where the recorder was asked to note the flow.

        Operations stand in the order in which they ran, behind the tensors from outside that they take: parameters,
        buffers, leaves and inputs. The kind of an edge says whether the operation reads a value (``data``), gives a
        view of it (``view``) or writes to it (``inplace``). One that raised is the last, and ``ext`` has its error.
        What no operation takes is an output.

        Raises:
            CaptureError: the flow was not noted.
        """
        ...

    def with_collectives(self, graph: Graph) -> Graph:
        """A graph that was captured of this recording, with its rank and all that was exchanged until now.

        Raises:
            CaptureError: the recorder was not made with ``collectives=True``, or the process group is gone.
        """
        ...

    def verify(
        self, outputs: object, *, model: object = None, params: Names | None = None, keep_graph: bool = True
    ) -> Verification:
        """Capture, and check the graph against the engine; see `gradir.verify`.

        Raises:
            CaptureError: there is no graph, or backward cannot run on it, or only once where the graph is to be kept.
        """
        ...

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
            subject: the loss, or tensors in any nesting, with a graph or without one; or the error that an operation
                inside the context raised.
            model: the module whose parameters are told of, in place of the recorder's.
            params: further tensors to tell of, by name.
            optimizer: with one, or a list of several, a parameter that none has may go without a gradient.
            values: run a backward too, which adds nothing to ``.grad``, to find gradients that are zero or not finite,
                and what an operation in place has spoiled; without a word only where the graph is small.

        Raises:
            CaptureError: the recorder was not made with ``flow=True``, nothing ran in it, or there is no tensor.
        """
        ...


class StoppedError(SpecError):
    """What a PROGRAM names raised when a part of its forward had run, of which ``graph`` is the graph."""

    def __init__(self, message: str, graph: Graph) -> None:
        super().__init__(message)
        self.graph = graph


class MadeOtherError(CaptureError):
    """A PROGRAM that a front-end ran made something for another front-end, which is ``made``."""

    def __init__(self, made: object) -> None:
        super().__init__(f"another front-end captures an object of type {type(made).__name__}")
        self.made = made


class ReachedBackward(Protocol):
    """A call of backward of a program, which has not run yet."""

    @property
    def loss(self) -> float | None:
        """The number that the call starts from, if it is one."""
        ...

    def capture(self) -> Graph:
        """Capture the graph of what the call starts from.

        Raises:
            CaptureError: it cannot be captured.
        """
        ...

    def explain(self) -> Explanation:
        """Explain what the call starts from, with the optimizers that the program has for it.

        Raises:
            CaptureError: it cannot be explained, or the request does not note the flow.
        """
        ...


Reached = Callable[[ReachedBackward], "bool | None"]
"""What is called at a backward of a program; true asks for the next one too."""


class Running(Protocol):
    """A program that runs, whose backwards are counted."""

    @property
    def calls(self) -> int:
        """How often the program has called backward."""
        ...

    def explained(self, outputs: object) -> Explanation:
        """Explain what the program has made, as if it called backward of it.

        Raises:
            CaptureError: it cannot be explained, or the request does not note the flow.
        """
        ...

    def explained_failure(self, error: BaseException) -> Explanation | None:
        """Explain an error that the program raised before its backward; nothing where no operation raised it."""
        ...


Told = Callable[["Modules | Step | Finding"], None]
"""What is given each record of a watched training as it is known."""


class Watching(Protocol):
    """A program that is watched."""

    @property
    def steps(self) -> int:
        """How many steps its optimizers have done."""
        ...

    @property
    def backwards(self) -> int:
        """How often it has called backward."""
        ...

    def ended(self) -> None:
        """Judge what only the end of a training shows."""
        ...

    def explained_failure(self, error: BaseException) -> Explanation | None:
        """Explain an error that the program raised before its first backward; nothing where no operation raised it."""
        ...


class Frontend(Protocol):
    """Makes a graph from live objects of one framework. Importing a front-end's module is cheap.

    Its class is asked whether it claims an object, so that the one that does is made and no other. Of the methods,
    `claims` and `capture` have to be there. Each other one belongs to the feature of its name, and is called only where
    ``features`` has that.
    """

    framework: ClassVar[str]
    """The name by which a program imports the framework. A front-end whose framework is not loaded is asked nothing."""

    takes: ClassVar[str]
    """What it captures, in words, for an error."""

    install: ClassVar[str]
    """How to get the framework, in words, for an error.

    A front-end may also have ``files``: by suffix, files of its framework that gradir does not read, each with what it
    is and the command that works instead; and ``reads``, by suffix, what the files are that its method ``read`` makes a
    graph of, given their bytes. It may have ``before``, names of others: what one of these claims too is
    left to it, where it can do what is asked.
    """

    features: ClassVar[Set[str]]
    """What it can do beside capturing: names of `gradir.request.FEATURES`, and of options of a `CaptureRequest`.

    A request with an option that needs another feature is refused before the front-end gets it.
    """

    @classmethod
    def claims(cls, value: object) -> bool:
        """Whether a value is the framework's, told by its type alone.

        It is asked of what is to be captured, and where nobody claims that of what is inside, which is not one of
        Python's own tuples, lists and dicts. A program may name a class too.
        """
        ...

    def capture(self, request: CaptureRequest) -> LiveCapture:
        """Capture tensors in any containers and objects, or what a module or function gives for its inputs.

        With the feature ``program`` it runs the target of a program, which without it is called before.

        Raises:
            MadeOtherError: what the target returned is another front-end's.
            StoppedError: the graph of a forward was asked for, and the target raised behind some operation; ``ext`` of
                the last function in its graph has the error under ``failed``.
            CaptureError: the target cannot be run, or has no graph.
        """
        ...

    def verify(self, live: Any, *, keep_graph: bool = True) -> Verification:
        """Run a real backward and compare it with what was captured; another can run afterwards if the graph is kept.

        Raises:
            CaptureError: backward cannot run, or only once where the graph is to be kept.
        """
        ...

    def explain(self, request: CaptureRequest) -> Explanation:
        """Run a target and explain what comes out, or the error: which parameters or arguments get a gradient, and why.

        ``graph`` is the one that the explanation's overlay is for.

        Raises:
            CaptureError: the target cannot be run, or returns no tensor.
        """
        ...

    def record(self, request: CaptureRequest) -> Recorder:
        """A recorder of the modules that run inside a context, and of what else is asked for; see `gradir.record`.

        Raises:
            CaptureError: the model is no module; raised when the context is entered.
        """
        ...

    def run_alike(self, request: CaptureRequest, path: str, pairs: Mapping[str, str] | None = None) -> Alike | None:
        """Run a program, and write its weights, inputs, outputs and gradients to a file for another one.

        With ``pairs``, from its parameters to those of the program that wrote the file, run it with what that has.

        Raises:
            CaptureError: the program cannot be run, or returns nothing with a gradient.
        """
        ...

    def seed(self, number: int) -> None:
        """Set the seed of the framework's random numbers."""
        ...

    def release(self) -> int:
        """Let go of what captures still hold of graphs that the program has dropped; returns how many functions."""
        ...

    def standing_in(self, rank: int, world: int) -> AbstractContextManager[None]:
        """Let the program inside find itself as that rank of so many, of which the others do not exist.

        Raises:
            CaptureError: the framework cannot, or, as the context ends, the program wanted no other process.
        """
        ...

    def watching(self, told: Told, *, model: object = None, optimizers: Any = ()) -> AbstractContextManager[Watching]:
        """Watch the steps of a training that runs inside the context, which stays as it is without.

        ``told`` gets each record, and what it raises goes through the program. ``model`` and ``optimizers`` are those
        that were made before.
        """
        ...

    def running(self, request: CaptureRequest, reached: Reached) -> AbstractContextManager[Running]:
        """Note the modules and lines of what runs inside the context, and count its calls of backward.

        At the call number ``step``, before it runs, ``reached`` is called. What it raises goes through the program,
        from this call and any later one. Whatever was put in the framework's place is undone with the context.
        """
        ...
