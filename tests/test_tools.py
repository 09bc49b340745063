"""Tests that need a tool skip without it, are counted, and are chosen for a run on a bare machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the programs are scripts of a POSIX shell")

TESTS = Path(__file__).parent
SKIPPED = """
from tools import needs, require

def test_dot(dot_program): pass
def test_dot_again(dot_program): pass
def test_node(mermaid_node): pass
def test_shell(): require("fish")
@needs("zsh")
def test_mark(): pass
def test_nothing(): pass
"""
ASKING = """
import shutil, subprocess

def test_start(): assert subprocess.run(["sh", "-c", "draw || exit 1"]).returncode == 0
def test_look_up(): shutil.which("draw")
def test_nothing(): assert subprocess.run(["sh", "-c", "true"]).returncode == 0
"""


def run_pytest(folder: Path, path: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder with the conftest of gradir's tests."""
    search = os.pathsep.join([str(TESTS), str(TESTS / "support")])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": search, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    line = [sys.executable, "-m", "pytest", "-p", "conftest", "-p", "xdist.plugin", *arguments]
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def add_program(folder: Path, name: str) -> str:
    """Write a program that does nothing, and return a PATH that begins with it."""
    program = folder / "bin" / name
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return f"{program.parent}{os.pathsep}{os.environ['PATH']}"


@pytest.mark.parametrize("workers", ["0", "2"])
def test_the_last_line_but_one_counts_the_tests_that_a_missing_tool_skips(workers: str, tmp_path: Path) -> None:
    (tmp_path / "test_skipped.py").write_text(SKIPPED)
    done = run_pytest(tmp_path, str(tmp_path), "-n", workers, "-rs")
    assert done.returncode == 0, done.stdout + done.stderr
    *_, line, last = done.stdout.splitlines()
    assert line == "missing tools: dot (2 tests skipped), fish (1), zsh (1), node (1)"
    assert "1 passed, 5 skipped" in last
    assert "missing tool: dot; run 'apt-get install graphviz'" in done.stdout


def test_nothing_is_printed_where_no_tool_is_missing(tmp_path: Path) -> None:
    (tmp_path / "test_skipped.py").write_text("def test_dot(dot_program): pass\n")
    done = run_pytest(tmp_path, add_program(tmp_path, "dot"))
    assert "1 passed" in done.stdout
    assert "missing tool" not in done.stdout


def test_a_test_that_asks_for_a_program_without_a_fixture_runs_without_the_program(tmp_path: Path) -> None:
    (tmp_path / "test_asking.py").write_text(ASKING)
    path = add_program(tmp_path, "draw")
    recorded = run_pytest(tmp_path, path, "-n", "2", "--record-tools")
    assert "3 passed" in recorded.stdout, recorded.stdout + recorded.stderr
    chosen = run_pytest(tmp_path, os.environ["PATH"], "--tool-tests")
    assert "1 failed, 1 passed, 1 deselected" in chosen.stdout
    assert "FAILED test_asking.py::test_start" in chosen.stdout


def test_nothing_is_chosen_before_a_run_recorded_it(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, os.environ["PATH"], "--tool-tests")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "ERROR: cannot choose the tests that ask for a tool: no run recorded them; run 'make test'" in done.stderr
