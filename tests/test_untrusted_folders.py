"""Commands run where the files of other people are: nothing beside those files is imported."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

import pytest
from git_places import FACT, Run, change_eps, runner
from msgspec.structs import replace
from plugins import BUILT_IN
from samples import everything
from tools import needs

import gradir
from gradir.cli.main import COMMANDS as NAMES

pytest_plugins = ["git_fixtures"]

BY_PATH = (sys.executable, str(Path(gradir.__path__[0], "__main__.py")))
SCRIPT = (str(Path(sys.executable).with_name("gradir")),)
PROGRAMS = [BY_PATH, pytest.param(SCRIPT, marks=pytest.mark.skipif(not Path(*SCRIPT).exists(), reason="no script"))]
if sys.version_info >= (3, 11):
    PROGRAMS.append((sys.executable, "-P", "-m", "gradir"))

COMMANDS = [
    "info a.gir",
    "info a.gir --json",
    "validate --strict a.gir b.gir broken.gir",
    *(f"convert a.gir c.gir{end} --format {form}" for end in ("", ".gz", ".zst") for form in ("json", "msgpack")),
    *(f"export a.gir --to {name}" for name in BUILT_IN),
    "export a.gir --to mermaid --depth 1 --into README.md --marker model",
    "export a.gir --to svg",
    "export a.gir --to dot -O theme=dark --rollup --hide-shape-ops --drop accumulate_grad",
    "export broken.gir --to tree",
    "view a.gir",
    "explain a.gir",
    "ranks ranked.gir",
    *(f"summary a.gir --style {style}" for style in ("table", "markdown", "csv", "json")),
    *(f"diff a.gir b.gir --format {name}" for name in ("text", "markdown", "json", "mermaid", "dot", "svg")),
    "diff a.gir b.gir --full --normalize --fail-on cuts,params",
    "diff HEAD~1 HEAD -- a.gir",
    "patch a.gir change.json",
    "merge a.gir b.gir a.gir",
    "merge HEAD~1:a.gir a.gir b.gir",
    "completion bash",
    "help program",
    "debug",
    "exporters",
    "git status",
    "git install",
    "git textconv a.gir",
    "git textconv broken.gir",
    "git difftool a.gir b.gir model.gir",
    "git diff model.gir a.gir 0 0 b.gir 0 0",
    "git diff model.gir broken.gir 0 0 b.gir 0 0",
    "git uninstall",
]
ONE_OF_EACH = list({command.split()[0]: command for command in reversed(COMMANDS)}.values())
"""Where gradir is started in another way, after which all is the same."""
RUN_PROGRAMS = {"capture", "check", "run", "watch"}


def put_hostile_modules(folder: Path) -> Path:
    """Everything that could be imported, as modules that leave their name; returns the file that they leave it in."""
    mark = folder.parent / "imported"
    loud = f"with open({str(mark)!r}, 'a') as file:\n    file.write(__name__ + '\\n')\n"
    names = {*sys.stdlib_module_names, *packages_distributions(), "sitecustomize", "usercustomize"}
    for name in names - {"gradir", "gradir_exporters", "mermaid"}:
        folder.joinpath(f"{name.replace('/', '_')}.py").write_text(loud)
    for name in ("gradir", "gradir_exporters", "mermaid"):
        package = folder / name
        package.mkdir()
        package.joinpath("__init__.py").write_text(loud)
    registered = folder / "evil-1.dist-info"
    registered.mkdir()
    registered.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1\n")
    registered.joinpath("entry_points.txt").write_text("[gradir.exporters]\nevil = evil:Evil\nplain = evil:Evil\n")
    folder.joinpath("evil.py").write_text(loud)
    return mark


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    root.mkdir()
    gradir.save(everything(), root / "a.gir")
    gradir.save(change_eps(), root / "b.gir")
    gradir.save(replace(everything(), rank=gradir.Rank(0, 1)), root / "ranked.gir")
    root.joinpath("broken.gir").write_text('{"format":"gir",\n<<<<<<< ours\n')
    root.joinpath("README.md").write_text("<!-- gradir: model -->\n<!-- /gradir: model -->\n")
    line = [*BY_PATH, "diff", "a.gir", "b.gir", "--format", "json", "--exit-zero"]
    change = subprocess.run(line, cwd=root, capture_output=True, check=True).stdout
    root.joinpath("change.json").write_bytes(change)
    return root


def said(program: tuple[str, ...], words: list[str], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [*program, *words], cwd=folder, env=environment, capture_output=True, text=True, errors="replace", check=False
    )
    may_fail = any(word.endswith("broken.gir") for word in words) or not {"svg", "view"}.isdisjoint(words)
    assert done.returncode < 2 or may_fail, done
    assert "Traceback" not in done.stderr, done.stderr
    assert "internal error" not in done.stderr, done.stderr
    return done.stdout + done.stderr


def test_every_command_that_reads_files_is_tried() -> None:
    assert {command.split()[0] for command in COMMANDS} == {*NAMES} - RUN_PROGRAMS


@needs("git")
@pytest.mark.parametrize("program", PROGRAMS, ids=["by path", "script", "safe path"][: len(PROGRAMS)])
def test_nothing_beside_a_file_is_imported(program: tuple[str, ...], folder: Path, environment: dict[str, str]) -> None:
    run = runner(folder, environment)
    run("git", "init", "-q")
    for _ in range(2):
        run("git", "add", ".")
        run("git", "commit", "-q", "--allow-empty", "-m", "a")
    mark = put_hostile_modules(folder)
    environment |= {"BROWSER": "true", "TMPDIR": str(folder.parent)}
    for command in COMMANDS if program == BY_PATH else ONE_OF_EACH:
        said(program, command.split(), folder, environment)
        assert not mark.exists(), (command, mark.read_text())


def test_nothing_beside_a_file_in_another_folder_is_imported(folder: Path, environment: dict[str, str]) -> None:
    mark = put_hostile_modules(folder)
    for command in (command for command in ONE_OF_EACH if ".gir" in command and "HEAD" not in command):
        words = [str(folder / word) if (folder / word).is_file() else word for word in command.split()]
        said(BY_PATH, words, folder.parent, environment)
        assert not mark.exists(), (words, mark.read_text())


def test_a_module_of_this_name_is_seen_where_python_looks_here(folder: Path, environment: dict[str, str]) -> None:
    mark = put_hostile_modules(folder)
    line = [sys.executable, "-m", "gradir", "info", "a.gir"]
    subprocess.run(line, cwd=folder, env=environment, capture_output=True, check=False)
    assert mark.exists()


def test_as_a_module_it_imports_itself_from_here_and_then_nothing(folder: Path, environment: dict[str, str]) -> None:
    mark = folder.parent / "imported"
    loud = f"open({str(mark)!r}, 'w').close()\n"
    for name in ("msgspec", "argparse", "msgpack", "graphviz", "rich", "evil"):
        folder.joinpath(f"{name}.py").write_text(loud)
    for command in ("info a.gir", "export a.gir --to dot", "summary a.gir", "convert a.gir c.gir --format msgpack"):
        said((sys.executable, "-m", "gradir"), command.split(), folder, environment)
        assert not mark.exists(), command


@pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")
def test_a_program_elsewhere_imports_nothing_from_here(folder: Path, environment: dict[str, str]) -> None:
    elsewhere = folder.parent / "trusted"
    elsewhere.mkdir()
    elsewhere.joinpath("train.py").write_text(
        "import torch\n\ndef loss():\n    return torch.ones(3, requires_grad=True).exp().sum()\n"
    )
    mark = put_hostile_modules(folder)
    spec = f"{elsewhere / 'train.py'}:loss"
    assert "~" in said(BY_PATH, ["check", spec, "--against", "a.gir"], folder, environment)
    assert said(BY_PATH, ["capture", spec], folder, environment).startswith('{"format":"gir"')
    assert not mark.exists()


HARMFUL_PATHS = ["", f"{os.sep}nowhere:", f"{os.sep}nowhere:sub/.."]


@needs("git")
@pytest.mark.parametrize("python_path", HARMFUL_PATHS)
@pytest.mark.parametrize("on_path", [True, False])
def test_commands_of_git_import_nothing_from_the_checkout(
    on_path: bool, python_path: str, run: Run, repository: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    script = tmp_path / "bin" / "gradir"
    script.unlink()
    if on_path:
        script.write_text(f'#!/bin/sh\nexec {shlex.join(BY_PATH)} "$@"\n')
        script.chmod(0o755)
    subprocess.run([*BY_PATH, "git", "install"], cwd=repository, env=environment, capture_output=True, check=True)
    for key in ("diff.gradir.textconv", "difftool.gradir.cmd", "merge.gradir.driver"):
        assert (sys.executable in run("git", "config", key)) is not on_path
    mark = put_hostile_modules(repository)
    inside = runner(repository, {**environment, "PYTHONPATH": python_path})
    for command in (["diff", "HEAD~1"], ["log", "-p"], ["show"]):
        assert FACT in inside("git", *command)
    assert "attrs.eps: 1e-05 -> 0.5" in inside("git", "difftool", "-y", "-t", "gradir", "HEAD~1")
    assert not mark.exists(), mark.read_text()


@needs("git")
@pytest.mark.parametrize("key", ["diff.gradir.textconv", "difftool.gradir.cmd", "merge.gradir.driver"])
def test_a_command_of_an_earlier_gradir_is_reported_and_replaced(key: str, run: Run, repository: Path) -> None:
    run("gradir", "git", "install")
    command = run("git", "config", key).rstrip("\n")
    assert run("gradir", "git", "status", "--local").startswith("local   installed (")
    run("git", "config", key, f"{sys.executable} -m gradir git textconv")
    outdated = "local   installed by another gradir: run 'gradir git install' again ("
    assert run("gradir", "git", "status", "--local").startswith(outdated)
    run("gradir", "git", "install")
    assert run("git", "config", key).rstrip("\n") == command
    assert run("gradir", "git", "status", "--local").startswith("local   installed (")


@needs("git")
def test_a_program_that_the_path_finds_in_the_working_directory_is_not_taken(
    run: Run, repository: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    shutil.move(tmp_path / "bin" / "gradir", repository / "gradir")
    harmful = {**environment, "PATH": f"{environment['PATH']}{os.pathsep}."}
    subprocess.run([*BY_PATH, "git", "install"], cwd=repository, env=harmful, capture_output=True, check=True)
    assert sys.executable in run("git", "config", "diff.gradir.textconv")
