"""``git difftool`` with gradir as the tool, in real repositories."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from git_places import FACT, Run, change_eps, runner
from samples import everything
from tools import needs

import gradir

pytest_plugins = ["git_fixtures"]
pytestmark = needs("git")

TOOL = ("git", "difftool", "-y", "-t", "gradir")
EDIT = "attrs.eps: 1e-05 -> 0.5"


@pytest.fixture(autouse=True)
def _installed(run: Run) -> None:
    run("gradir", "git", "install")


def commit(run: Run, message: str) -> None:
    run("git", "add", ".")
    run("git", "commit", "-q", "-m", message)


def test_a_changed_file(run: Run) -> None:
    shown = run(*TOOL, "HEAD~1")
    assert shown.startswith("model.gir\n\n+0 -0 ~1 nodes")
    assert EDIT in shown


@pytest.mark.parametrize("revisions", [["HEAD"], ["HEAD", "--cached"]])
def test_an_added_file_is_an_added_graph(revisions: list[str], run: Run, repository: Path) -> None:
    gradir.save(everything(), repository / "new.gir")
    run("git", "add", "new.gir")
    shown = run(*TOOL, "--no-renames", *revisions)
    assert shown.startswith(f"new.gir (added)\n\n+1 -0 ~0 cuts; +{len(everything().nodes)} -0 ~0 nodes")
    assert "  + module fc  Linear" in shown
    assert "  - " not in shown


def test_a_file_that_git_is_reported_of_but_not_given_is_an_added_graph(run: Run, repository: Path) -> None:
    gradir.save(everything(), repository / "new.gir")
    run("git", "add", "--intent-to-add", "new.gir")
    assert run(*TOOL).startswith(f"new.gir (added)\n\n+1 -0 ~0 cuts; +{len(everything().nodes)} -0 ~0 nodes")


@pytest.mark.parametrize("keep", [[], ["--cached"]])
def test_a_deleted_file_is_a_removed_graph(keep: list[str], run: Run) -> None:
    run("git", "rm", "-q", *keep, "model.gir")
    shown = run(*TOOL, "HEAD", *keep)
    assert shown.startswith(f"model.gir (deleted)\n\n+0 -1 ~0 cuts; +0 -{len(change_eps().nodes)} ~0 nodes")
    assert "  - module fc  Linear" in shown
    assert "  + " not in shown


def test_a_file_that_was_empty_has_a_graph_now(run: Run, repository: Path) -> None:
    (repository / "model.gir").write_bytes(b"")
    commit(run, "empty")
    assert run(*TOOL, "HEAD~1").startswith("model.gir (deleted)\n")
    gradir.save(everything(), repository / "model.gir")
    assert run(*TOOL).startswith("model.gir (added)\n")


def test_each_of_several_files_is_named(run: Run, repository: Path) -> None:
    (repository / "a folder").mkdir()
    odd = ["a folder/two  spaces.gir", "-x.gir", "it's $HOME.gir"]
    for name in odd:
        gradir.save(everything(), repository / name)
    commit(run, "more")
    for name in odd:
        gradir.save(change_eps(), repository / name)
    run("git", "rm", "-q", "model.gir")
    gradir.save(everything(), repository / "new.gir", format="msgpack")
    run("git", "add", "new.gir")
    shown = run(*TOOL, "--no-renames", "HEAD")
    headings = [line for line in shown.splitlines() if ".gir" in line]
    assert headings == ["-x.gir", odd[0], odd[2], "model.gir (deleted)", "new.gir (added)"]
    assert shown.count(EDIT) == 3


def test_from_a_folder_below(run: Run, repository: Path, environment: dict[str, str]) -> None:
    below = repository / "a folder"
    below.mkdir()
    gradir.save(everything(), below / "new.gir")
    run("git", "add", ".")
    inside = runner(below, environment)
    assert inside(*TOOL, "--no-renames", "HEAD").startswith("a folder/new.gir (added)\n")
    assert EDIT in inside(*TOOL, "HEAD~1", "--", "../model.gir")


def test_a_renamed_file_is_compared_with_its_former_name(run: Run, repository: Path) -> None:
    run("git", "mv", "model.gir", "other name.gir")
    assert run(*TOOL, "-M", "HEAD") == "model.gir\n\nno difference\n\n"


def test_trouble_with_one_file_is_one_line_and_the_others_are_shown(run: Run, repository: Path) -> None:
    (repository / "a.gir").write_text("{")
    (repository / "b.txt").write_text("text")
    commit(run, "others")
    (repository / "b.txt").write_text("other text")
    gradir.save(everything(), repository / "a.gir")
    gradir.save(everything(), repository / "model.gir")
    shown, errors = both(run, repository, *TOOL)
    assert shown.startswith("model.gir\n")
    assert [error.partition(": ")[2].partition(": ")[0] for error in errors.splitlines()] == [
        "a.gir (before)",
        "b.txt (before)",
    ]


def both(run: Run, repository: Path, *command: str) -> tuple[str, str]:
    """What a command prints, and what it says on standard error."""
    said = repository.parent / "said"
    shown = run("sh", "-c", 'said=$1; shift; "$@" 2>"$said"', "sh", str(said), *command)
    return shown, said.read_text()


def test_folders_are_refused_with_the_way_out(run: Run, repository: Path) -> None:
    shown, errors = both(run, repository, *TOOL, "--dir-diff", "HEAD~1")
    assert shown == ""
    assert errors == "gradir: folders are not compared: run git difftool without --dir-diff\n"


def test_a_python_in_a_folder_with_spaces(
    run: Run, repository: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    home = tmp_path / "my  'own' python"
    venv.create(home, symlinks=True, with_pip=False)
    python = home / "bin" / "python"
    bare = {**environment, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    (tmp_path / "bin" / "gradir").unlink()
    alone = runner(repository, bare)
    subprocess.run([python, "-m", "gradir", "git", "install"], cwd=repository, env=bare, check=True)
    assert str(home.name).replace("'", "'\"'\"'") in alone("git", "config", "difftool.gradir.cmd")
    assert EDIT in alone(*TOOL, "HEAD~1")
    assert FACT in alone("git", "diff", "HEAD~1")


def test_a_closed_pipe_is_quiet(repository: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        ["sh", "-c", "git difftool -y -t gradir HEAD~1 | (read -r line; echo $line; exec <&-; sleep 2)"],
        cwd=repository,
        env={**environment, "PYTHONUNBUFFERED": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("model.gir\n", "")


EXTERNAL = ("git", "-c", "diff.gradir.command=gradir git diff")


def test_as_an_external_diff_it_is_part_of_a_log(run: Run, repository: Path) -> None:
    (repository / "model.gir").write_text("{")
    commit(run, "broken")
    gradir.save(everything(), repository / "model.gir")
    commit(run, "mended")
    shown, errors = both(run, repository, *EXTERNAL, "log", "-p", "--ext-diff", "--format=%s")
    assert [line for line in shown.splitlines() if line in {"mended", "broken", "second", "first"}] == [
        *("mended", "broken", "second", "first")
    ]
    assert EDIT in shown
    assert "model.gir (added)\n" in shown
    assert errors.count("gradir: model.gir (") == 2


def test_an_external_diff_of_a_conflict_names_the_way_on(run: Run, repository: Path) -> None:
    run("git", "checkout", "-q", "-b", "other", "HEAD~1")
    (repository / "model.gir").write_text("{")
    commit(run, "broken")
    run("git", "merge", "main", status=1)
    shown = run(*EXTERNAL, "diff", "--cached")
    assert "model.gir (in conflict): see gradir merge :1:model.gir :2:model.gir :3:model.gir\n" in shown
