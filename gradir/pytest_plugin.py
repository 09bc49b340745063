"""A pytest plugin for graphs as snapshots, for missing gradients and for watched trainings.

The fixture ``graph_snapshot`` compares a graph with a ``.gir`` file beside the test. ``gradient_flow`` fails if a
parameter gets no gradient, ``gradir_watch`` if a training goes wrong. See docs/ci.md for examples.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec
import pytest

import gradir
from gradir import api
from gradir.errors import GradirError, GradirWarning
from gradir.forwards import IGNORED, forward_name, has_forward
from gradir.request import make_request

if TYPE_CHECKING:
    from gradir import snapshots
    from gradir.capturing import Both
    from gradir.diffs.changes import Diff
    from gradir.explanations.model import Explanation
    from gradir.ir import Graph
    from gradir.protocols import Names, Recorder
    from gradir.watcher import Watcher

__all__ = ["FOLDER", "GradientFlow", "GraphSnapshot"]

FOLDER: Final = "__graphs__"
"""The folder of the files beside the test modules, with a folder for each module."""

_UPDATE: Final = "--gradir-update"
_ADVICE: Final = f"pytest {_UPDATE}"
_LONGEST_NAME: Final = 100
# The fields of `_Run` that a worker of pytest-xdist sends to the main process.
_SENT: Final = ("used", "mended", "uncompared", "collected", "seen")


class GraphSnapshot:
    """The snapshots of one test."""

    def __init__(self, folder: Path, test: str, *, update: bool, run: _Run) -> None:
        self._folder, self._test, self._update, self._run = folder, test, update, run
        self._count = 0
        self._names: set[str] = set()

    def check(
        self,
        target: object,
        *inputs: object,
        kwargs: Mapping[str, object] | None = None,
        model: object = None,
        params: Mapping[str, Any] | None = None,
        frontend: str | None = None,
        forward: Graph | None = None,
        name: str = "",
        ignore: Sequence[str] = (),
        normalize: bool = False,
    ) -> None:
        """Compare a graph with its file; the test fails with the difference, or if the file cannot be read.

        ``target`` is a `gradir.Graph`, or a target of `gradir.capture` with its arguments. The forward graph of a
        module that runs on inputs is compared too, with a file beside the other one. Pass that of a recorded graph as
        in ``check(rec.capture(loss), forward=rec.forward())``. Files are numbered within a test, unless you name them.
        ``ignore`` and ``normalize`` are those of `gradir.diff`: an update leaves a file without other differences.

        Raises:
            CaptureError: there is no graph.
            GradirError: a field to ignore is unknown.
        """
        __tracebackhide__ = True
        from gradir import snapshots
        from gradir.diffs.ignoring import check_names

        # A comparison would check too, but a new file has none.
        check_names(ignore)
        path = self._next_path(name)
        beside = Path(forward_name(str(path)))
        self._run.used.update((str(path), str(beside)))
        with _plain_failures():
            before = snapshots.Found(str(path))
            if self._update:
                before = snapshots.read_to_update(path)
            elif path.exists():
                before = snapshots.Found(str(path), snapshots.read(path, _ADVICE))
        is_pair = before.graph is None or has_forward(before.graph)
        options = {"kwargs": kwargs, "model": model, "params": params, "frontend": frontend}
        capture = partial(_capture_or_take, target, inputs, options, forward, is_pair=is_pair)
        now = capture()
        if before.graph is None and not self._update:
            pytest.fail(f"missing {path.name} beside the test; run pytest {_UPDATE} and review the file")
        changed = None
        if before.graph is not None:
            compare = partial(gradir.diff, normalize=normalize)
            changed = self._find_change(before.graph, beside, capture=capture, now=now, compare=compare, ignore=ignore)
        if self._update and (changed is not None or before.graph is None):
            self._write(now, path, beside, before)
        elif changed is not None:
            pytest.fail(f"{changed[0]}; if it should be, run pytest {_UPDATE}\n{changed[1].to('text')}")

    def _find_change(
        self,
        expected: Graph,
        beside: Path,
        *,
        now: Both,
        capture: Callable[[], Both],
        compare: Callable[..., Diff],
        ignore: Sequence[str],
    ) -> tuple[str, Diff] | None:
        """Return the change as text and as a diff; ignore a forward graph that differs in every run."""
        __tracebackhide__ = True
        from gradir import snapshots

        place = f"{FOLDER}/{beside.parent.name}"
        if change := compare(expected, now.graph, ignore=ignore):
            return f"the graph is not that of {place}/{beside.name.replace('.forward.gir', '.gir')}", change
        if not has_forward(expected) or not beside.exists():
            return None
        with _plain_failures():
            forward = snapshots.read(beside, _ADVICE)
        ignored = (*ignore, *IGNORED)
        if now.forward is None:
            self._run.uncompared.add((str(beside), now.missing))
            return None
        change = compare(forward, now.forward, ignore=ignored)
        if not change:
            return None
        again = capture().forward
        if again is None or compare(now.forward, again, ignore=ignored):
            self._run.uncompared.add((str(beside), "it is another in every run"))
            return None
        return f"the graph of the forward is not that of {place}/{beside.name}", change

    def _write(self, now: Both, path: Path, beside: Path, before: snapshots.Found) -> None:
        __tracebackhide__ = True
        from gradir import snapshots

        path.parent.mkdir(parents=True, exist_ok=True)
        with _plain_failures():
            snapshots.write(now.graph, path, before)
            if now.forward is not None:
                snapshots.write(now.forward, beside, before)
        if before.fault:
            self._run.mended.add((str(path), before.fault))

    def _next_path(self, name: str) -> Path:
        self._count += 1
        suffix = f"-{name}" if name else f"-{self._count}" if self._count > 1 else ""
        if suffix in self._names:
            pytest.fail(f"two graphs of this test have the file {suffix.lstrip('-')!r}; give each its own name")
        self._names.add(suffix)
        return self._folder / f"{_file_name(self._test + suffix)}.gir"


class GradientFlow:
    """Check where gradient flows in a test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._recorder: Recorder | None = None

    def record(self, model: object = None, *, frontend: str | None = None) -> Recorder:
        """Record a forward pass with ``flow=True`` for the next `check`; see `gradir.record`."""
        self._recorder = gradir.record(model, flow=True, frontend=frontend)
        return self._recorder

    def check(
        self,
        loss: object,
        *,
        model: object = None,
        params: Names | None = None,
        optimizer: Any = None,
        allow: Sequence[str] = (),
        values: bool | None = None,
    ) -> Explanation:
        """Explain a loss; the test fails if a parameter that should learn does not, or if no parameter is reached.

        If the loss was not recorded, the test fails without reasons on parameters outside the graph. ``allow`` adds to
        the patterns of pyproject.toml; the other arguments are those of a recorder's ``explain``. The test also fails
        if there is nothing to explain.
        """
        __tracebackhide__ = True
        from gradir import claims
        from gradir.project import project

        try:
            own = project(self._folder)
            recorder = self._recorder
            if recorder is None:
                # An empty recording explains the graph alone.
                frontend = claims.find_claimant(loss, model, params)
                with gradir.record(model, flow=True, frontend=frontend) as recorder:
                    pass
            found = recorder.explain(loss, model=model, params=params, optimizer=optimizer, values=values)
        except GradirError as error:
            raise pytest.fail.Exception(str(error)) from None
        found = found.allow(own.allow, own.where).allow(allow, "allow=")
        if not found.statuses:
            pytest.fail("no parameter to check; pass model= or params=")
        if problem := _describe_failure(found):
            pytest.fail(problem)
        return found


def _describe_failure(found: Explanation) -> str:
    unknown = [cause for cause in found.causes if cause.kind == "unrecorded" and cause.level == "info"]
    causes = [cause for cause in found.causes if cause.level == "error"] + unknown
    if not causes and {"reached", "hidden"}.intersection(found.statuses.values()):
        return ""
    advice = "with gradient_flow.record(model): around the forward and the loss finds the line\n" if unknown else ""
    # Other causes would hide the reasons of the failure.
    text = msgspec.structs.replace(found, causes=tuple(causes) or found.causes, terms=()).to("text")
    return f"{text}\n{advice}to allow intended cuts, pass allow=[...] or write [tool.gradir] into pyproject.toml"


@contextlib.contextmanager
def _plain_failures() -> Iterator[None]:
    """Fail the test with one line for an error about a file, since a traceback would lead into gradir."""
    try:
        yield
    except GradirError as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None


def _file_name(text: str) -> str:
    """Return a short ASCII name for a file, unique to the test."""
    safe = quote(text, safe="[]=,+").replace("~", "%7E")
    if len(safe) <= _LONGEST_NAME:
        return safe
    import hashlib

    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return f"{safe[:_LONGEST_NAME]}~{digest}"


def _capture_or_take(
    target: object, inputs: Sequence[object], options: Mapping[str, Any], forward: Graph | None, *, is_pair: bool
) -> Both:
    """Return a given graph or a new capture, with its forward graph if wanted."""
    from gradir.capturing import Both, capture_both

    if isinstance(target, gradir.Graph):
        if forward is None:
            return Both(target, None, "the test gives none")
        producer = msgspec.structs.replace(target.producer, options={**target.producer.options, "graph": "both"})
        return Both(msgspec.structs.replace(target, producer=producer), forward)
    if not is_pair:
        return Both(gradir.capture(target, *inputs, **options))
    return capture_both(make_request("capture", target, inputs, {**options, "graph": "both"}))


@pytest.fixture
def graph_snapshot(request: pytest.FixtureRequest) -> GraphSnapshot:
    """Compares captured graphs with the .gir files beside the test; see `GraphSnapshot.check`."""
    module = request.path
    test = request.node.name if request.cls is None else f"{request.cls.__qualname__}.{request.node.name}"
    folder, update = module.parent / FOLDER / module.stem, request.config.getoption(_UPDATE)
    return GraphSnapshot(folder, test, update=update, run=request.config.stash[_RUN])


@pytest.fixture
def gradient_flow(request: pytest.FixtureRequest) -> GradientFlow:
    """Fails a test where a parameter gets no gradient, with the line that loses it; see `GradientFlow.check`."""
    return GradientFlow(request.path.parent)


@pytest.fixture
def gradir_watch() -> Callable[..., contextlib.AbstractContextManager[Watcher]]:
    """Watches a training as `gradir.watch` does, with its arguments, and fails the test where something is wrong."""

    @contextlib.contextmanager
    def watch(model: object = None, optimizer: object = None) -> Iterator[Watcher]:
        with warnings.catch_warnings():
            # The test fails with all findings at its end.
            warnings.simplefilter("ignore", GradirWarning)
            with api.watch(model, optimizer) as watcher:
                yield watcher
        if found := watcher.report():
            pytest.fail(str(found), pytrace=False)

    return watch


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("gradir", "graph snapshots")
    group.addoption(_UPDATE, action="store_true", help="write the graph snapshots that are missing, broken or differ")
    for option in ("frontend", "program", "exporter", "renderer", "pass"):
        group.addoption(f"--gradir-{option}", metavar="NAME", help=f"the {option} that gradir.testing tests")
    group.addoption("--gradir-option", metavar="KEY=VALUE", action="append", default=[], help="an option of it")


def pytest_configure(config: pytest.Config) -> None:
    """Start the record of a run."""
    config.stash[_RUN] = _Run(config)
    config.pluginmanager.register(config.stash[_RUN], "gradir-run")


class _Run:
    """The state of a run; with pytest-xdist, the main process collects that of its workers."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        # The files that tests used.
        self.used: set[str] = set()
        # The broken files that were rewritten, each with its error.
        self.mended: set[tuple[str, str]] = set()
        # The forward graphs that were not compared, each with the reason.
        self.uncompared: set[tuple[str, str]] = set()
        # The tests of each module that ran completely, by the folder of its graphs.
        self.collected: dict[str, list[str]] = {}
        # The folders of graphs that pytest visited during collection.
        self.seen: set[str] = set()
        # The tests that passed, and so used all their graphs.
        self._done: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_ignore_collect(self, collection_path: Path) -> None:
        """Record a folder of graphs, and leave the decision to other plug-ins."""
        if collection_path.name == FOLDER and collection_path.is_dir():
            self.seen.add(str(collection_path))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a test that passed; the main process gets the reports of all workers."""
        if report.when == "call" and report.passed:
            self._done.add(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add the record of a worker of pytest-xdist."""
        for name, found in getattr(node, "workeroutput", {}).get("gradir", {}).items():
            getattr(self, name).update(found)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Find the modules that ran completely, and send the record of a worker to the main process."""
        for item in session.items if self._runs_whole_modules() else ():
            self.collected.setdefault(str(item.path.parent / FOLDER / item.path.stem), []).append(item.nodeid)
        output = getattr(self._config, "workeroutput", None)
        if output is not None:
            output["gradir"] = {name: getattr(self, name) for name in _SENT}

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the files that were rewritten, were not compared, or are unused."""
        # A test that did not pass may need further files.
        complete = [folder for folder, tests in self.collected.items() if self._done.issuperset(tests)]
        found = {str(path) for folder in complete for path in Path(folder).glob("*.gir")}
        mended = [f"{self._relative(path)}: {fault}; rewritten" for path, fault in sorted(self.mended)]
        unused = [self._relative(path) for path in sorted((found - self.used) | self._orphans())]
        uncompared = [f"{self._relative(path)}: {why}" for path, why in sorted(self.uncompared)]
        sections = ("were broken", mended), ("were not compared", uncompared), ("no test used", unused)
        for what, lines in sections:
            if lines:
                from gradir.ir.text import escape_unprintable

                terminalreporter.section(f"graph snapshots that {what}")
                for line in lines:
                    terminalreporter.line(escape_unprintable(line))

    def _runs_whole_modules(self) -> bool:
        narrowed = any(
            self._config.getoption(name, None)
            for name in ("keyword", "markexpr", "lf", "deselect", "maxfail", "collectonly", "setupplan")
        )
        return not narrowed and not any("::" in argument for argument in self._config.args)

    def _orphans(self) -> set[str]:
        """Return snapshots of removed modules in folders that ran completely."""
        if not self._runs_whole_modules():
            return set()
        run = [self._config.invocation_params.dir / argument for argument in self._config.args]
        orphans: set[str] = set()
        for folder in map(Path, self.seen):
            if any(folder.is_relative_to(place) for place in run):
                modules = {path.stem for path in folder.parent.iterdir() if path.is_file()}
                orphans.update(str(path) for path in folder.glob("*/*.gir") if path.parent.name not in modules)
        return orphans

    def _relative(self, path: str) -> str:
        root = self._config.rootpath
        return str(Path(path).relative_to(root) if Path(path).is_relative_to(root) else path)


_RUN: Final[pytest.StashKey[_Run]] = pytest.StashKey()
