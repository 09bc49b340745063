"""Texts of gradir in the log of a CI that reads lines of it as commands: names of a change must give none."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from hostile_texts import graph_of
from hypothesis import given
from hypothesis import strategies as st

import gradir
from gradir import files
from gradir.cli.main import main
from gradir.cli.report import escape_commands, one_line

HOSTILE = "::error file=a::b\n  ::add-mask::c\r\x1b[31m::group::d\n\t##[error]e\n##vso[task.complete]f"
NAME = "::error::x ##[y].gir"
ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

COMMANDS = [
    ["info", "a.gir"],
    ["info", NAME],
    ["validate", NAME, "missing ::error::"],
    ["summary", "a.gir"],
    ["explain", "a.gir"],
    ["explain", "a.gir", "--format", "markdown"],
    ["export", "a.gir", "--to", "tree"],
    ["export", "a.gir", "--to", "modules"],
    ["export", "a.gir", "--to", "plain"],
    ["diff", "a.gir", "b.gir"],
    ["diff", "a.gir", "b.gir", "--full"],
    ["diff", "a.gir", "b.gir", "--format", "markdown"],
    ["check", "a.gir", "--against", "b.gir", "-o", "/dev/stdout"],
    ["ranks", "a.gir", "b.gir"],
    ["merge", "a.gir", "b.gir", "c.gir"],
    ["git", "difftool", "a.gir", "b.gir", NAME],
    ["export", "a.gir", "--to", "::error::##[x]"],
    ["::error::"],
]


def commands_in(log: str) -> list[str]:
    """The lines that the runner of GitHub Actions would carry out, were these the names of its commands."""
    lines = re.split(r"\r\n|\r|\n", log)
    bare = [ANSI.sub("", line).lstrip() for line in lines]
    return [line for line in bare if line.startswith("::") or re.search(r"##\w*\[", line)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    a, b = graph_of(HOSTILE), graph_of(f"{HOSTILE}\n::error::other")
    for name, graph in (("a.gir", a), ("b.gir", b), ("c.gir", graph_of(":: ##[")), (NAME, a)):
        gradir.save(graph, name)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command)[:30])
def test_no_name_is_a_command(
    command: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    # What captures the output in this test is a file, which is no log.
    monkeypatch.setattr(files, "is_regular_stdout", lambda: False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert main(command) in {0, 1, 2}
    out, err = capfd.readouterr()
    assert out or err
    assert commands_in(out) == commands_in(err) == []


def test_the_names_would_be_commands_without_the_guard(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """So that the test above can fail; a file is given whole, in a CI too."""
    for command in (["info", "a.gir"], ["diff", "a.gir", "b.gir", "--full"], ["export", "a.gir", "--to", "tree"]):
        main(command)
        assert commands_in(capfd.readouterr().out), command


def test_a_pipe_is_a_log_and_a_file_is_not(folder: Path) -> None:
    line = [sys.executable, "-m", "gradir", "export", "a.gir", "--to", "tree"]
    environment = {**os.environ, "GITHUB_ACTIONS": "true"}
    piped = subprocess.run(line, env=environment, capture_output=True, text=True, check=True).stdout
    with (folder / "out.txt").open("w") as file:
        subprocess.run(line, env=environment, stdout=file, check=True)
    written = (folder / "out.txt").read_text()
    assert commands_in(written)
    assert not commands_in(piped)
    assert piped.replace("\\x3a:", "::").replace("\\x23#", "##") == written
    data = [*line[:-1], "model-explorer"]
    as_is = subprocess.run(data, env=environment, capture_output=True, text=True, check=True).stdout
    assert as_is == gradir.load("a.gir").to("model-explorer")


TEXTS = st.lists(st.sampled_from(["::", ":", "#", "##[", "[", " ", "\t", "\r", "\n", "\x1b[31m", "\u3000", "é", "x"]))


@given(TEXTS)
def test_any_text_is_guarded_once(parts: list[str]) -> None:
    text = "".join(parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GITHUB_ACTIONS", raising=False)
        assert escape_commands(text) == text
        patch.setenv("GITHUB_ACTIONS", "true")
        assert commands_in(escape_commands(text)) == commands_in(one_line(text)) == []
        assert escape_commands(escape_commands(text)) == escape_commands(text)
        assert escape_commands(text).replace("\\x3a", ":").replace("\\x23", "#") == text
