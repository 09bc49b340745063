"""docs/plugins.md: its files make a distribution that installs, and its commands print what it says."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from plugins import NO_OTHER_PLUGINS, PLUGIN, PYTEST, gradir

PAGE = (Path(__file__).parent.parent / "docs" / "plugins.md").read_text(encoding="utf-8")
NAMES = ("pyproject.toml", "gradir_edges.py", "gradir_only.py")
BESIDE = ("graph.py", "test_edges.py")


def block(name: str) -> str:
    """The first block of code behind the line that starts with the name of a file."""
    behind = PAGE.partition(f"\n`{name}`")[2]
    found = re.search(r"^```\w+\n(.*?)^```$", behind, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the graph and the test, and in it the installed distribution."""
    source, target, work = (tmp_path_factory.mktemp(name) for name in ("source", "installed", "work"))
    for place, names in ((source, NAMES), (work, BESIDE)):
        for name in names:
            (place / name).write_text(block(name), encoding="utf-8")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", "--no-index"]
    subprocess.run([*command, "--target", target, source], check=True, timeout=120)
    (work / "installed").symlink_to(target)
    subprocess.run([sys.executable, "graph.py"], cwd=work, check=True, timeout=120)
    return work


def told(folder: Path) -> str:
    """The commands of the page, each with what it prints when they run one after the other."""
    lines = []
    for command in re.findall(r"^\$ gradir (.+)$", PAGE, re.MULTILINE):
        result = gradir(folder / "installed", *shlex.split(command), directory=folder)
        lines += [f"$ gradir {command}\n", result.stdout, result.stderr]
    return "".join(lines)


def test_the_page_has_the_output_of_the_commands(folder: Path) -> None:
    (said,) = re.findall(r"^```console\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert told(folder) == said


def test_the_code_of_the_front_end_is_the_one_that_is_tested() -> None:
    (code,) = re.findall(r"^```python\n(class TermsFrontend:\n.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert code in (PLUGIN / "gradir_terms.py").read_text(encoding="utf-8")


def test_the_test_of_the_page_passes_and_finds_what_is_wrong(folder: Path, tmp_path: Path) -> None:
    def run(plugins: Path) -> str:
        command = [*PYTEST, "-q", "test_edges.py"]
        environment = {**os.environ, **NO_OTHER_PLUGINS, "PYTHONPATH": str(plugins)}
        return subprocess.run(command, check=False, cwd=folder, env=environment, capture_output=True, text=True).stdout

    assert "10 passed" in run(folder / "installed")
    shutil.copytree(folder / "installed", tmp_path / "careless")
    code = tmp_path / "careless" / "gradir_edges.py"
    joined = 'text.write("".join(f"{edge.src},{edge.dst},{graph.nodes[edge.dst].op}\\n" for edge in graph.edges))'
    code.write_text(re.sub(r"lines\.writerows\(.*\)", lambda _: joined, block("gradir_edges.py")), encoding="utf-8")
    assert "1 failed, 9 passed" in run(tmp_path / "careless")
