"""A pytest plugin: graphs as snapshots.

The fixture ``graph_snapshot`` compares what a test captures with a ``.gir`` file beside the test::

    def test_loss(graph_snapshot):
        model = Model()
        graph_snapshot.check(model(x).sum(), model=model)

``pytest --gradir-update`` writes the files; review them as you would code. A file that no test asks for any more is
named at the end of a run of its whole test module; one of a test module that is gone, of a run of the whole folder.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pytest

from gradir.errors import GradirError

if TYPE_CHECKING:
    from gradir.diffs.model import Diff
    from gradir.ir import Graph

    Comparison: TypeAlias = Callable[[Graph, Graph], Diff]

__all__ = ["FOLDER", "GraphSnapshot"]

FOLDER: Final = "__graphs__"
"""The folder beside the test modules that the files lie in, in a folder for each module."""

_UPDATE: Final = "--gradir-update"
_LONGEST_NAME: Final = 100


@dataclass
class _Notes:
    """What one process notes of a run.

    ``used`` are the files that were asked for, ``done`` the tests that passed, which are those that have asked for all
    their graphs. ``mended`` are the files that nothing could read and that were rewritten, each with what was wrong
    with it. ``collected`` are the folders of graphs beside the modules that were collected, with the tests of each,
    ``seen`` those that pytest came across as it looked for tests.
    """

    used: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)
    mended: list[tuple[str, str]] = field(default_factory=list)
    collected: list[tuple[str, list[str]]] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)


_NOTES: Final[pytest.StashKey[_Notes]] = pytest.StashKey()
_SENT: Final = "gradir_notes"
"""What a worker of pytest-xdist tells the main process."""


class GraphSnapshot:
    """The snapshots of one test."""

    def __init__(self, folder: Path, test: str, *, update: bool, notes: _Notes) -> None:
        """``folder`` is where the files of the test's module lie."""
        self._folder = folder
        self._test = test
        self._update = update
        self._notes = notes
        self._count = 0
        self._names: set[str] = set()

    def check(
        self,
        target: object,
        *inputs: object,
        kwargs: Mapping[str, object] | None = None,
        model: object = None,
        params: Mapping[str, Any] | None = None,
        name: str = "",
        ignore: Sequence[str] = (),
        normalize: bool = False,
    ) -> None:
        """Compare a graph with its file; the test fails with the difference, or where the file cannot be read.

        ``target`` is a `gradir.Graph`, or what `gradir.capture` takes with the other arguments. Files are numbered
        within a test, unless they are given names. ``ignore`` and ``normalize`` are those of `gradir.diff`: a file
        that differs in nothing that counts is left as it is by an update too.

        Raises:
            CaptureError: there is no graph.
            GradirError: ``ignore`` names what cannot be ignored.
        """
        __tracebackhide__ = True
        from gradir import stored

        compare = _comparison(ignore, normalize=normalize)
        graph = self._graph(target, inputs, kwargs=kwargs, model=model, params=params)
        path = self._next_path(name)
        self._notes.used.add(str(path))
        if self._update:
            self._write(graph, path, compare)
            return
        if not path.exists():
            pytest.fail(f"there is no {path.name} beside the test: run pytest {_UPDATE} and review what it writes")
        with _plain_failures():
            expected = stored.read(path, f"pytest {_UPDATE}")
        found = compare(expected, graph)
        if not found:
            return
        shown = f"{FOLDER}/{path.parent.name}/{path.name}"
        pytest.fail(f"the graph is not that of {shown}; if it should be, run pytest {_UPDATE}\n{found.to('text')}")

    def _write(self, graph: Graph, path: Path, compare: Comparison) -> None:
        __tracebackhide__ = True
        from gradir import stored

        with _plain_failures():
            before = stored.read_to_update(path)
        if before.graph is not None and not compare(before.graph, graph):
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with _plain_failures():
            stored.write(graph, path, before)
        if before.fault:
            self._notes.mended.append((str(path), before.fault))

    def _graph(self, target: object, inputs: tuple[object, ...], **options: Any) -> Graph:
        import gradir

        if isinstance(target, gradir.Graph):
            return target
        return gradir.capture(target, *inputs, **options)

    def _next_path(self, name: str) -> Path:
        self._count += 1
        suffix = f"-{name}" if name else f"-{self._count}" if self._count > 1 else ""
        if suffix in self._names:
            pytest.fail(f"two graphs of this test would be kept as {suffix.lstrip('-')!r}: give each a name of its own")
        self._names.add(suffix)
        return self._folder / f"{_file_name(self._test + suffix)}.gir"


def _comparison(ignore: Sequence[str], *, normalize: bool) -> Comparison:
    """The diff of two graphs with these options, which are checked even where nothing is compared."""
    import gradir
    from gradir.diffs.ignoring import check_names

    check_names(ignore)
    return partial(gradir.diff, ignore=ignore, normalize=normalize)


@contextlib.contextmanager
def _plain_failures() -> Iterator[None]:
    """Trouble with a file fails the test with its one line: a traceback would lead into gradir."""
    try:
        yield
    except GradirError as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None


def _file_name(text: str) -> str:
    """A name that every file system takes, and that tells tests apart: ASCII, and not long.

    >>> _file_name("test_it[a/b]")
    'test_it[a%2Fb]'
    """
    safe = re.sub(r"[^A-Za-z0-9_\[\]=,+.-]", lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), text)
    if len(safe) <= _LONGEST_NAME:
        return safe
    import hashlib

    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return f"{safe[:_LONGEST_NAME]}~{digest}"


@pytest.fixture
def graph_snapshot(request: pytest.FixtureRequest) -> GraphSnapshot:
    """Compares captured graphs with the .gir files beside the test; see `GraphSnapshot.check`."""
    module = request.path
    test = request.node.name if request.cls is None else f"{request.cls.__qualname__}.{request.node.name}"
    return GraphSnapshot(
        module.parent / FOLDER / module.stem,
        test,
        update=request.config.getoption(_UPDATE),
        notes=request.config.stash[_NOTES],
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    group = parser.getgroup("gradir", "graph snapshots")
    group.addoption(_UPDATE, action="store_true", help="write the graph snapshots that are missing, broken or differ")


def pytest_configure(config: pytest.Config) -> None:
    """Start with no file used."""
    config.stash[_NOTES] = _Notes()
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Reports(config), "gradir-reports")


@pytest.hookimpl(tryfirst=True)
def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> None:
    """Note a folder of graphs; whether it is ignored is for others to say."""
    if collection_path.name == FOLDER and collection_path.is_dir():
        config.stash[_NOTES].seen.add(str(collection_path))


class _Reports:
    """Notes which tests passed; with pytest-xdist the reports of all workers arrive here."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that passed."""
        if report.when == "call" and report.passed:
            self._config.stash[_NOTES].done.add(report.nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:  # noqa: ARG001 (xdist's signature)
    """Take over what a worker of pytest-xdist used and collected."""
    notes = node.config.stash[_NOTES]
    used, seen, mended, collected = getattr(node, "workeroutput", {}).get(_SENT, [()] * 4)
    notes.used.update(used)
    notes.seen.update(seen)
    notes.mended += mended
    notes.collected += collected


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Tell the main process, in a worker, and find the files that nothing asked for."""
    config, notes = session.config, session.config.stash[_NOTES]
    if _runs_whole_modules(config):
        notes.collected += _collected(session.items)
    if hasattr(config, "workeroutput"):
        config.workeroutput[_SENT] = [sorted(notes.used), sorted(notes.seen), notes.mended, notes.collected]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Name the files that were broken and rewritten, and those that no test asked for."""
    notes = config.stash[_NOTES]
    mended = [(path, f": {fault}; rewritten") for path, fault in sorted(map(tuple, notes.mended))]
    _list(terminalreporter, config, "graph snapshots that were broken", mended)
    # A test that was skipped, failed or never came has not said what it needs.
    complete = {folder: set(tests) <= notes.done for folder, tests in notes.collected}
    found = {str(path) for folder, whole in complete.items() if whole for path in Path(folder).glob("*.gir")}
    unused = sorted((found - notes.used) | _orphans(config))
    _list(terminalreporter, config, "graph snapshots that no test asked for", [(path, "") for path in unused])


def _list(terminalreporter: Any, config: pytest.Config, title: str, files: Sequence[tuple[str, str]]) -> None:
    """List files, each with what is said of it."""
    if not files:
        return
    from gradir.ir.text import printable

    terminalreporter.section(title)
    for name, said in files:
        path = Path(name)
        shown = path.relative_to(config.rootpath) if path.is_relative_to(config.rootpath) else path
        terminalreporter.line(printable(f"{shown}{said}"))


def _runs_whole_modules(config: pytest.Config) -> bool:
    narrowed = any(
        config.getoption(name, None)
        for name in ("keyword", "markexpr", "lf", "deselect", "maxfail", "collectonly", "setupplan")
    )
    return not narrowed and not any("::" in argument for argument in config.args)


def _collected(items: Iterable[pytest.Item]) -> list[tuple[str, list[str]]]:
    """The folder of graphs of every module of which a test was collected, with these tests."""
    tests: dict[str, list[str]] = {}
    for item in items:
        tests.setdefault(str(item.path.parent / FOLDER / item.path.stem), []).append(item.nodeid)
    return list(tests.items())


def _orphans(config: pytest.Config) -> set[str]:
    """The files of modules that are gone, in the folders of which all was to be run."""
    if not _runs_whole_modules(config):
        return set()
    run = [config.invocation_params.dir / argument for argument in config.args]
    orphans: set[str] = set()
    for folder in map(Path, config.stash[_NOTES].seen):
        if any(folder.is_relative_to(place) for place in run):
            modules = {path.stem for path in folder.parent.iterdir() if path.is_file()}
            orphans.update(str(path) for path in folder.glob("*/*.gir") if path.parent.name not in modules)
    return orphans
