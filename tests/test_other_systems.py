"""What holds where there is no POSIX, as far as that can be tried here: consoles, calls, and how a file is replaced."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from samples import everything

import gradir
from gradir import replacing

ROOT = Path(__file__).parents[1]
HOSTILE = ROOT / "tests" / "goldens" / "json" / "hostile.gir"
LACKING = {
    "chown",
    "fchmod",
    "fchown",
    "fork",
    "forkpty",
    "getegid",
    "geteuid",
    "getgid",
    "getpgid",
    "getuid",
    "getxattr",
    "killpg",
    "listxattr",
    "mkfifo",
    "O_DIRECTORY",
    "O_NOFOLLOW",
    "posix_fallocate",
    "posix_spawn",
    "removexattr",
    "sched_getaffinity",
    "setsid",
    "setxattr",
    "statvfs",
    "sync",
    "uname",
    "wait3",
    "wait4",
}
"""What the module os has not on Windows."""
MODULES = {"fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"}
WITH_A_FALLBACK = {
    "gradir/cli/many_ranks.py": {"sched_getaffinity"},
    "gradir/pictures.py": {"resource"},
    "gradir/replacing.py": {"fcntl"}
    | {name for name in LACKING if "xattr" in name or name in {"O_DIRECTORY", "fchmod", "fchown", "posix_fallocate"}},
}


def _used(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
            yield node.attr
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def test_what_windows_lacks_is_used_where_there_is_a_fallback_alone() -> None:
    found = {}
    for package in ("gradir", "exporters"):
        for path in (ROOT / package).rglob("*.py"):
            if used := {*_used(path)} & (LACKING | MODULES):
                found[path.relative_to(ROOT).as_posix()] = used
    assert found == WITH_A_FALLBACK


def test_a_file_is_replaced_without_functions_missing_on_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in LACKING:
        monkeypatch.delattr(os, name, raising=False)
    monkeypatch.setattr(replacing, "_LOCKS", False)
    target = tmp_path / "a.gir"
    for _ in range(2):
        everything().save(target)
        assert gradir.load(target) == everything()
        target.write_bytes(b"old")
    everything().save(target, format="msgpack")
    assert gradir.load(target) == everything()
    assert [path.name for path in tmp_path.iterdir()] == ["a.gir"]


def test_a_file_that_somebody_reads_for_a_moment_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, waited = tmp_path / "a.gir", []
    target.write_bytes(b"old")
    rename = os.replace

    def refused_twice(source: str, to: str) -> None:
        if len(waited) < 2:
            raise PermissionError(13, "Access is denied")
        rename(source, to)

    monkeypatch.setattr(replacing, "_LOCKS", False)
    monkeypatch.setattr(replacing.time, "sleep", waited.append)
    monkeypatch.setattr(os, "replace", refused_twice)
    everything().save(target)
    assert len(waited) == 2
    assert gradir.load(target) == everything()


def test_a_file_that_somebody_keeps_open_is_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a.gir"
    target.write_bytes(b"old")

    def refused(source: str, to: str) -> None:
        raise PermissionError(13, "Access is denied")

    monkeypatch.setattr(replacing, "_LOCKS", False)
    monkeypatch.setattr(replacing, "_PATIENCE", 0.1)
    monkeypatch.setattr(os, "replace", refused)
    with pytest.raises(gradir.FileError, match="Access is denied"):
        everything().save(target)
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.gir"]


def test_a_checkout_has_the_same_line_ends_everywhere() -> None:
    asked = ["git", "check-attr", "text", "eol", "--", "gradir/api.py", "tests/goldens/json/hostile.gir", "docs/a.png"]
    told = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    if told.returncode:
        pytest.skip("this is no clone")
    assert told.stdout.splitlines() == [
        "gradir/api.py: text: auto",
        "gradir/api.py: eol: lf",
        "tests/goldens/json/hostile.gir: text: unset",
        "tests/goldens/json/hostile.gir: eol: lf",
        "docs/a.png: text: auto",
        "docs/a.png: eol: lf",
    ]


@pytest.mark.parametrize("encoding", ["ascii", "cp437", "cp1252", "utf-8"])
@pytest.mark.parametrize(
    "command", ["summary", "info", "validate", "export --to tree", "export --to mermaid", "export --to plain", "diff"]
)
def test_every_console_is_written_to(command: str, encoding: str, tmp_path: Path) -> None:
    name, *options = command.split()
    files = [str(HOSTILE)] * (1 + (name == "diff"))
    if name == "diff":
        everything().save(tmp_path / "other.gir")
        files[1] = str(tmp_path / "other.gir")
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "gradir", name, *files, *options], capture_output=True, env=environment, check=False
    )
    assert done.returncode == (name == "diff"), done.stderr
    assert done.stdout
    # What is redirected is a file, and these are UTF-8; a console of Windows takes UTF-8 from Python too.
    done.stdout.decode("utf-8")
    assert b"Traceback" not in done.stderr
    assert b"internal error" not in done.stderr


OF_THE_REST = (
    "debug",
    "exporters",
    "explain {0}",
    "explain {0} --format markdown",
    "ranks {0} {1}",
    "ranks {0} {1} --format markdown",
    "diff {0} {1} --format markdown",
    "diff {0} {1} --format mermaid",
    "diff {0} {1} --format dot",
    "convert {0} -",
    "export {0} --to dot",
    "export {0} --to graphml",
    "export {0} --to modules",
    "export {0} --to summary",
    "info {2}",
    "validate {2}",
    "export {0} --to \u043d\u0435\u0442",
    "completion fish",
)


@pytest.mark.parametrize("environment", [{"PYTHONIOENCODING": "cp1252"}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}])
def test_no_command_fails_for_its_console(environment: dict[str, str], tmp_path: Path) -> None:
    other, broken = tmp_path / "other.gir", tmp_path / "broken.gir"
    everything().save(other)
    broken.write_text("broken")
    commands = [[word.format(HOSTILE, other, broken) for word in command.split()] for command in OF_THE_REST]
    code = (
        "import json, sys; from gradir.cli import main; "
        "[print('exit status', main(command), file=sys.stderr) for command in json.loads(sys.argv[1])]"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(commands)],
        capture_output=True,
        env={**os.environ, "PYTHONUTF8": "0", **environment},
        check=False,
    )
    said = done.stderr.decode(errors="replace")
    assert done.returncode == 0, said
    statuses = re.findall(r"^exit status (\d)$", said, re.MULTILINE)
    assert len(statuses) == len(commands)
    assert said.count("exit status 2") == 3, "of the broken file, and of the exporter that there is not"
    assert "internal error" not in said
    assert "Traceback" not in said
