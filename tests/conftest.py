from __future__ import annotations

import copy
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from gradir.ir import Graph

# How long an example takes says more about the machine than about gradir.
settings.register_profile("gradir", deadline=None)
settings.load_profile("gradir")

collect_ignore = ["fuzz"]
"""What needs packages that the tests do not: see each file there."""

GOLDENS = Path(__file__).parent / "goldens"
MODEL_EXPLORER = Path(__file__).parents[1] / ".model-explorer" / "model_explorer" / "web_app"
NODE_MODULES = Path(__file__).parent / "node" / "node_modules"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-goldens", action="store_true", help="write the golden files instead of comparing")
    parser.addoption("--no-tool-skips", action="store_true", help="fail, not skip, where dot, node or torch is missing")


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


def _need(request: pytest.FixtureRequest, found: bool, reason: str) -> None:
    if found:
        return
    if request.config.getoption("--no-tool-skips"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def dot_program(request: pytest.FixtureRequest) -> str:
    """The path of Graphviz's dot."""
    found = shutil.which("dot")
    _need(request, found is not None, "needs the program dot (graphviz)")
    return str(found)


@pytest.fixture
def mermaid_node(request: pytest.FixtureRequest) -> str:
    """The path of node, with Mermaid's npm packages in tests/node."""
    return _node_with(request, "mermaid", "jsdom")


@pytest.fixture
def cytoscape_node(request: pytest.FixtureRequest) -> str:
    """The path of node, with Cytoscape.js in tests/node."""
    return _node_with(request, "cytoscape")


@pytest.fixture
def model_explorer_viewer(request: pytest.FixtureRequest) -> tuple[str, Path]:
    """The path of node, and the folder of Model Explorer's viewer."""
    found = shutil.which("node")
    ready = found is not None and MODEL_EXPLORER.is_dir()
    _need(request, ready, "needs node and Model Explorer's viewer (make model-explorer)")
    return str(found), MODEL_EXPLORER


def _node_with(request: pytest.FixtureRequest, *packages: str) -> str:
    found = shutil.which("node")
    ready = found is not None and all((NODE_MODULES / package).is_dir() for package in packages)
    _need(request, ready, "needs node and the npm packages of tests/node (npm ci --prefix tests/node)")
    return str(found)


@pytest.fixture(autouse=True)
def every_captured_graph_is_as_good_as_its_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check in full what capture vouches for, whatever a test captures."""
    if "torch" not in sys.modules:
        return
    from gradir.capture.pytorch import assemble
    from gradir.ir.validate import check_all, vouch

    def checked(graph: Graph) -> None:
        check_all(copy.copy(graph))
        vouch(graph)

    monkeypatch.setattr(assemble, "vouch", checked)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Tiny operations on many threads, in tests that run side by side, wait for each other only."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def clean_environment() -> dict[str, str]:
    """The environment for a child process, without what could colour or shape its output."""
    return {key: value for key, value in os.environ.items() if key not in {"FORCE_COLOR", "CLICOLOR_FORCE"}}
