from __future__ import annotations

import copy
import gc
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# As many threads as the machine has, in each of as many processes, wait for each other only; torch reads it once.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import browser as browsers
import forked
import pytest
import tools
from browser import Browser
from hypothesis import HealthCheck, settings
from page_reader import reader
from tool_use import Chooser, Recorder

from gradir.ir import Graph

# How long an example takes says more about the machine than about gradir. The examples are others in every run, and
# no fixture that a property asks for changes from one to the next.
_CHECKS = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
for _name, _count in {"gradir": 20, "deep": 1000, "quick": 5}.items():
    settings.register_profile(_name, deadline=None, max_examples=_count, suppress_health_check=_CHECKS)
settings.load_profile("gradir")

collect_ignore = ["fuzz", "ranks"]
"""What needs packages that the tests do not, and what torchrun starts: see each file there."""
collect_ignore_glob = [] if find_spec("jax") else ["test_jax_*.py", "*/jax_*", "ports/in_jax.py"]
"""What runs in an environment of its own, where `make test-jax` names each file and nothing may be skipped."""

GOLDENS = Path(__file__).parent / "goldens"
TAKES_LONG = re.compile(r"torch|transformers|subprocess|forked|command_line|git_fixtures|tracemalloc|\bbombs\b")
STARTS_PROGRAMS = tools.FIXTURES | {"pytester"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-goldens", action="store_true", help="write the golden files instead of comparing")
    parser.addoption("--quick", action="store_true", help="run a part of the tests that takes a minute")
    parser.addoption("--no-tool-skips", action="store_true", help="fail, not skip, where a tool or package is missing")
    parser.addoption("--record-tools", action="store_true", help="record which tests ask for a tool")
    parser.addoption("--tool-tests", action="store_true", help="run the tests that were recorded to ask for a tool")


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As a shell starts what runs in the background; what tests start and interrupt would ignore it too.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # To import all modules makes a million objects that stay; looking for garbage among them takes a third of the time.
    gc.disable()
    if config.getoption("--quick"):
        settings.load_profile("quick")
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        forked.share()
    if config.getoption("--record-tools") and os.name == "posix":
        config.pluginmanager.register(Recorder(config), "recorder")
    if config.getoption("--tool-tests"):
        config.pluginmanager.register(Chooser(config), "chooser")


def pytest_unconfigure() -> None:
    """What is forked for the commands of tests ends with them."""
    forked.close()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep for ``--quick`` the first case of each test that starts no program, from files that import nothing slow."""
    if not config.getoption("--quick"):
        return
    slow = {path for path in {item.path for item in items} if TAKES_LONG.search(path.read_text(encoding="utf-8"))}
    first = {item.nodeid.partition("[")[0]: item for item in reversed(items)}
    kept = [
        item
        for item in items
        if first[item.nodeid.partition("[")[0]] is item
        and item.path not in slow
        and STARTS_PROGRAMS.isdisjoint(getattr(item, "fixturenames", ()))
    ]
    config.hook.pytest_deselected(items=[*{*items}.difference(kept)])
    items[:] = kept


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """Print the line of the missing tools below the list of all that was skipped."""
    yield
    skipped = terminalreporter.stats.get("skipped", [])
    if line := tools.summarize(str(report.longrepr) for report in skipped):
        terminalreporter.write_line(line)


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors, since tests wait for a browser, for git and for other ranks."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_finish() -> None:
    """From here on no compiled module is written: tests edit programs faster than the times of files tell Python."""
    gc.enable()
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"


@pytest.fixture(scope="module", autouse=True)
def _what_was_imported_is_not_searched() -> None:
    """Let no search among all objects, of Python's collector or of a verification, go through what is there already."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def golden(golden_bytes: Callable[[str, bytes], None]) -> Callable[[str, str], None]:
    """Compare text with tests/goldens/NAME; a missing golden fails."""

    def compare(name: str, text: str) -> None:
        golden_bytes(name, text.encode())

    return compare


@pytest.fixture
def golden_bytes(request: pytest.FixtureRequest) -> Callable[[str, bytes], None]:
    """Compare bytes with tests/goldens/NAME; a missing golden fails."""

    def compare(name: str, data: bytes) -> None:
        path = GOLDENS / name
        if request.config.getoption("--update-goldens"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            return
        assert path.exists(), f"no golden {name}: run pytest --update-goldens and review what it writes"
        assert data == path.read_bytes()

    return compare


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    report = yield
    _fail_skipped(report, collector.config)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    _fail_skipped(report, item.config)
    return report


def _fail_skipped(report: pytest.CollectReport | pytest.TestReport, config: pytest.Config) -> None:
    if report.skipped and not hasattr(report, "wasxfail") and config.getoption("--no-tool-skips"):
        report.outcome = "failed"
        report.longrepr = f"nothing may be skipped: {report.longrepr}"


@pytest.fixture
def dot_program() -> str:
    """Return the path of Graphviz's dot."""
    return tools.require("dot")


@pytest.fixture
def mermaid_node() -> str:
    """Return the path of node, with Mermaid's npm packages in tests/node."""
    return _node_with("packages of tests/node")


@pytest.fixture
def cytoscape_node() -> str:
    """Return the path of node, with Cytoscape.js in tests/node."""
    return _node_with("packages of tests/node")


@pytest.fixture
def model_explorer_viewer() -> tuple[str, Path]:
    """Return the path of node, and the folder of Model Explorer's viewer."""
    return tools.require("node"), Path(tools.require("Model Explorer"))


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Start Chromium, once for all tests of a process."""
    program = tools.require("Chromium")
    pytest.importorskip("playwright.sync_api", reason="needs Playwright's client (pip install playwright)")
    yield from browsers.launch(program, tmp_path_factory.mktemp("pages"))


@pytest.fixture(scope="session")
def viewer_node() -> str:
    """Return the path of node, with the npm packages of viewer/."""
    return _node_with("packages of viewer")


@pytest.fixture(scope="session")
def told(viewer_node: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """What the viewer's own code reads of a page."""
    return reader(viewer_node, tmp_path_factory.mktemp("viewer"))


def _node_with(packages: str) -> str:
    node = tools.require("node")
    tools.require(packages)
    return node


@pytest.fixture(autouse=True)
def _own_excepthook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo what torch does to it for a process group: it names the rank in every later traceback."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)


@pytest.fixture(autouse=True)
def every_captured_graph_is_as_good_as_its_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check in full what capture vouches for, whatever a test captures."""
    if "torch" not in sys.modules:
        return
    from gradir.frontends.pytorch.reading import assemble
    from gradir.ir.validate import check_all, mark_valid

    def check(graph: Graph) -> None:
        check_all(copy.copy(graph))
        mark_valid(graph)

    monkeypatch.setattr(assemble, "mark_valid", check)


@pytest.fixture
def forked_python(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every Python process that a command starts be a fork, which need not import torch."""
    python = tmp_path_factory.mktemp("forked") / "python"
    forked.program(python, ())
    monkeypatch.setattr(sys, "executable", str(python))


@pytest.fixture
def clean_environment() -> dict[str, str]:
    """The environment for a child process, without what could colour or shape its output."""
    return {key: value for key, value in os.environ.items() if key not in {"FORCE_COLOR", "CLICOLOR_FORCE"}}
