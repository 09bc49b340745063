"""What ``git log -p`` shows of a history of real edits is not longer than without gradir."""

from __future__ import annotations

from pathlib import Path

import pytest
from git_places import Run, runner
from tools import needs

pytest.importorskip("torch")

from gpt_history import EDITS, versions

import gradir

pytest_plugins = ["git_fixtures"]
pytestmark = needs("git")

LOG = ("git", "log", "-p", "--format=%s")


@pytest.fixture
def history(tmp_path: Path, environment: dict[str, str]) -> Run:
    """A repository with a commit for each edit."""
    root = tmp_path / "history"
    root.mkdir()
    run = runner(root, environment)
    run("git", "init", "-q")
    for number, graph in enumerate(versions(sources=True)):
        gradir.save(graph, root / "gpt.gir")
        run("git", "add", "gpt.gir")
        run("git", "commit", "-q", "--allow-empty", "-m", f"edit {number}")
    assert len(EDITS) - 3 < number
    return run


def test_a_log_is_not_longer_than_without_the_driver(history: Run) -> None:
    raw = history(*LOG).splitlines()
    history("gradir", "git", "install")
    shown = history(*LOG).splitlines()
    assert len(shown) < len(raw)
    # Nor is it wider.
    assert sum(map(len, shown)) < 0.6 * sum(map(len, raw))
    # What the lines come to is told by the diff of the graphs.
    brief = history("git", "-c", "diff.gradir.command=gradir git diff", *LOG[1:], "--ext-diff").splitlines()
    assert len(brief) < 0.25 * len(raw)
    assert "  ~ 14 modules blocks.{0..6}.{ln_1,ln_2}  each " in "\n".join(brief)
    # The last edit moved lines of the program, and no more.
    last = "git", "log", "-p", "-1", "--format="
    assert '"source":' in "".join(raw[:30])
    assert "@@" not in history(*last)
