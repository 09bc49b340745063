"""docs/plugins.md: its files make a distribution that installs, and its commands print what it says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from plugins import PLUGIN, gradir

PAGE = (Path(__file__).parent.parent / "docs" / "plugins.md").read_text(encoding="utf-8")
NAMES = ("pyproject.toml", "gradir_edges.py", "gradir_only.py", "terms.py", "gradir_terms.py", "program.py")


def block(name: str) -> str:
    """The first block of code behind the line that starts with the name of a file."""
    behind = PAGE.partition(f"\n`{name}`")[2]
    found = re.search(r"^```\w+\n(.*?)^```$", behind, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the program, and beside it the installed distribution."""
    source, target, work = (tmp_path_factory.mktemp(name) for name in ("source", "installed", "work"))
    for name in NAMES[:-1]:
        (source / name).write_text(block(name), encoding="utf-8")
    (work / NAMES[-1]).write_text(block(NAMES[-1]), encoding="utf-8")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", "--no-index"]
    subprocess.run([*command, "--target", target, source], check=True, timeout=120)
    (work / "installed").symlink_to(target)
    return work


def told(folder: Path) -> str:
    """The commands of the page, each with what it prints when they run one after the other."""
    lines = []
    for command in re.findall(r"^\$ gradir (.+)$", PAGE, re.MULTILINE):
        result = gradir(folder / "installed", *shlex.split(command), directory=folder)
        lines += [f"$ gradir {command}\n", result.stdout, result.stderr]
    return "".join(lines)


def test_the_commands_print_what_the_page_says(folder: Path) -> None:
    (said,) = re.findall(r"^```console\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert told(folder) == said


@pytest.mark.parametrize("name", ["terms.py", "gradir_terms.py"])
def test_the_code_of_the_front_end_is_the_one_that_is_tested(name: str) -> None:
    assert block(name) == (PLUGIN / name).read_text(encoding="utf-8")
