"""What the README and docs/using.md say to do works, in the order in which they say it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import forked
import pytest
from tools import find, needs
from training_scripts import LOOP

pytest.importorskip("torch")

import gradir

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
USING = (ROOT / "docs" / "using.md").read_text(encoding="utf-8")
(FIRST,) = re.findall(r"^```python\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)
MODEL, SCRIPT, READING = re.findall(r"^```python\n(.*?)^```$", USING, re.DOTALL | re.MULTILINE)[:3]
GAN = ROOT / "docs" / "gallery" / "gan.py"


def indented(page: str, behind: str) -> list[str]:
    """The lines of code behind some words."""
    return [line.strip() for line in page.partition(f"{behind}\n\n")[2].partition("\n\n")[0].splitlines()]


FOUR = indented(README, "In the clone, try the program above:")
COMMANDS = indented(USING, "## On the command line")

pytestmark = needs("sh")


def test_both_are_sessions_that_work(tmp_path: Path, clean_environment: dict[str, str]) -> None:
    program = tmp_path / "bin" / "gradir"
    program.parent.mkdir()
    forked.program(program)
    environment = {**clean_environment, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    (tmp_path / "critic.py").write_text(MODEL)
    (tmp_path / "first.py").write_text(FIRST)
    forked.run([sys.executable, "first.py"], cwd=tmp_path, env=clean_environment, check=True)
    assert len(gradir.load(tmp_path / "loss.gir").nodes) == 15
    copy = tmp_path / GAN.relative_to(ROOT)
    copy.parent.mkdir(parents=True)
    shutil.copy(GAN, copy)
    assert len(FOUR) == 4
    for command in FOUR:
        done = gradir_command(command.partition(" #")[0].split()[1:], tmp_path, clean_environment)
        assert done.returncode == (1 if " explain " in command else 0), (command, done.stderr)
    assert "<title>" in (tmp_path / "gan.html").read_text()
    (tmp_path / "script.py").write_text(SCRIPT + READING)
    done = forked.run([sys.executable, "script.py"], cwd=tmp_path, env=clean_environment, text=True)
    assert done.returncode == 0, done.stderr
    assert "tanh TanhBackward0 1 float32[2, 8]" in done.stdout
    assert len(gradir.load(tmp_path / "critic.gir").nodes) == 15
    possible = [command for command in COMMANDS if "dot" not in command or find("dot")]
    assert len(possible) >= 14
    for command in possible:
        done = subprocess.run(
            ["sh", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == (1 if " diff " in command else 0), (command, done.stderr)
        assert "Traceback" not in done.stderr
    assert '"id":"2/addmm:1"' in (tmp_path / "critic.gir").read_text()


def gradir_command(arguments: list[str], folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gradir", *arguments]
    return forked.run(command, cwd=folder, env=environment, text=True)


def test_the_line_that_loses_a_gradient_is_the_one_it_names(tmp_path: Path, clean_environment: dict[str, str]) -> None:
    source = GAN.read_text(encoding="utf-8")
    (tmp_path / "gan.py").write_text(source)
    done = gradir_command(["explain", "gan.py:loss"], tmp_path, clean_environment)
    sentence, *_ = done.stdout.splitlines()
    assert f"    $ gradir explain gan.py:loss\n    {sentence}\n" in README
    said = re.findall(r"^    (    fake = .*|    return .*)$", README, re.MULTILINE)
    assert len(said) == 2
    assert all(f"    {line}" in source for line in said)


def test_a_training_script_is_captured_as_it_says(tmp_path: Path, clean_environment: dict[str, str]) -> None:
    (tmp_path / "train.py").write_text(LOOP)
    lines = indented(USING, "## From a training script")
    for line, steps in zip(lines, (0, 14, 1, 14), strict=True):
        done = gradir_command(line.split()[1:], tmp_path, clean_environment)
        assert (done.returncode, len(done.stdout.splitlines())) == (0, steps), done.stderr
    assert not gradir.diff(gradir.load(tmp_path / "loss.gir"), gradir.load(tmp_path / "later.gir"))


def without_code(page: Path) -> str:
    return re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """What a link may name of a page: its headings, as GitHub writes them."""
    titles = re.findall(r"^#+ (.+)$", without_code(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


def test_every_link_in_the_docs_leads_somewhere() -> None:
    with_anchor = 0
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]:
        for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", without_code(page)):
            linked = page.parent / target if target else page
            assert linked.exists(), f"{page.name} links to {target}"
            assert not anchor or linked.suffix != ".md" or anchor in anchors(linked), (
                f"{page.name} links to {target}#{anchor}"
            )
            with_anchor += bool(anchor)
    assert with_anchor > 5
