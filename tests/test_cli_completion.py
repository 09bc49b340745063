"""The shells themselves complete command lines of gradir."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from samples import chain
from tools import require

import gradir
from gradir.cli import main

BASH = """
source ./script
complete -p gradir
COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9
_python_argcomplete gradir
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a graph, to be in, where the program is found and no shell reads anybody's settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TERM", "dumb")
    gradir.save(chain(1), "model.gir")
    return tmp_path


def shell(name: str, capfdbinary: pytest.CaptureFixture[bytes]) -> str:
    """A shell, with the script for it in the folder."""
    found = require(name)
    assert main(["completion", name]) == 0
    said = capfdbinary.readouterr()
    assert said.err == b""
    Path("script").write_bytes(said.out)
    return found


def ran(*command: str) -> list[str]:
    done = subprocess.run(command, capture_output=True, check=True, encoding="utf-8", timeout=60)
    assert done.stderr == ""
    return done.stdout.splitlines()


LINES = [
    ("gradir exp", ["export", "explain", "exporters"]),
    ("gradir export mod", ["model.gir"]),
    ("gradir export model.gir --de", ["--depth", "--descendants"]),
    ("gradir export model.gir --to m", ["mermaid", "model-explorer", "modules"]),
    ("gradir export model.gir --to sv", ["svg"]),
    ("gradir export model.gir --to dot -O th", ["theme="]),
    ("gradir diff model.gir model.gir --format mark", ["markdown"]),
    ("gradir diff model.gir model.gir --format text -O wi", ["width="]),
    ("gradir git uni", ["uninstall"]),
    ("gradir export model.gir --to nothing -O ", []),
]


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_bash_completes(
    line: str, expected: Sequence[str], folder: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    registered, *found = ran(shell("bash", capfdbinary), "--norc", "-c", BASH, "bash", line)
    assert registered.endswith(" -F _python_argcomplete gradir")
    assert sorted(word.rstrip() for word in found if word) == sorted(expected)


@pytest.mark.parametrize(("line", "expected"), LINES[:-1])
def test_fish_completes(
    line: str, expected: Sequence[str], folder: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    found = ran(shell("fish", capfdbinary), "--no-config", "-c", "source ./script; complete -C $argv[1]", line)
    assert sorted(each.partition("\t")[0] for each in found) == sorted(expected)


@pytest.mark.parametrize(
    ("typed", "completed"),
    [("gradir expla", "gradir explain"), ("gradir export model.gir --to merm", "gradir export model.gir --to mermaid")],
)
def test_zsh_completes(typed: str, completed: str, folder: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    program = shell("zsh", capfdbinary)
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(program, ["zsh", "-f", "-i"])
    # A key that tells the line as it stands.
    told = "tell() { print -r -- \"<$BUFFER>\"; zle kill-buffer }; zle -N tell; bindkey '^T' tell"
    os.write(terminal, f"autoload -U compinit; compinit -u -D; source ./script; {told}; echo rea''dy\n".encode())
    said = b""
    try:
        for wanted, keys in ((b"ready", f"{typed}\t\x14"), (f"<{completed} >".encode(), "exit\n")):
            while wanted not in said:
                assert select.select([terminal], [], [], 60)[0], said
                said += os.read(terminal, 1 << 16)
            os.write(terminal, keys.encode())
    finally:
        os.waitpid(pid, 0)
        os.close(terminal)


def test_the_script_for_zsh_may_lie_where_zsh_looks_for_functions(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh"]) == 0
    assert capfd.readouterr().out.startswith("#compdef gradir\n")


def test_another_shell_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["completion", "tcsh"])
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert all(name in said for name in ("bash", "zsh", "fish"))


def test_to_complete_loads_no_framework(folder: Path) -> None:
    code = "import os, sys; sys.modules['torch'] = None; os.dup2(1, 8); from gradir.cli import main; main()"
    line = "gradir capture model.py:loss --se"
    asking = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": "\n"}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **asking}, capture_output=True, check=True, timeout=60
    )
    assert done.stdout.split() == [b"--seed"]
