"""The git driver, against real git in temporary repositories."""

from __future__ import annotations

from pathlib import Path

import pytest
from git_places import FACT, Run, change_eps, runner
from samples import everything
from tools import needs

import gradir

pytest_plugins = ["git_fixtures"]
pytestmark = needs("git")


def snapshot(*folders: Path) -> dict[Path, bytes]:
    """Everything that decides what git does."""
    found = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "objects" not in path.parts and path.name not in {"index", "ORIG_HEAD"}:
                found[path] = path.read_bytes()
    return found


@pytest.mark.parametrize("where", ["--local", "--global"])
def test_install_shows_facts_and_uninstall_leaves_no_trace(
    where: str, run: Run, repository: Path, environment: dict[str, str]
) -> None:
    home = Path(environment["HOME"])
    before = snapshot(repository / ".git", home)
    assert FACT not in run("git", "diff", "HEAD~1")
    run("gradir", "git", "install", where)
    once = snapshot(repository / ".git", home)
    for command in (["diff", "HEAD~1"], ["log", "-p"], ["show"]):
        assert FACT in run("git", *command)
    assert "@@ parameter fc.weight float32[4, 3]\n" in run("git", "diff", "HEAD~1")
    run("gradir", "git", "install", where)
    again = snapshot(repository / ".git", home)
    assert {path: data for path, data in again.items() if "notes" not in path.parts} == {
        path: data for path, data in once.items() if "notes" not in path.parts
    }
    run("gradir", "git", "uninstall", where)
    run("gradir", "git", "uninstall", where)
    after = snapshot(repository / ".git", home)
    assert {path: data for path, data in after.items() if data} == {path: data for path, data in before.items() if data}
    assert FACT not in run("git", "diff", "HEAD~1")


def test_settings_of_the_user_stay(run: Run, repository: Path) -> None:
    attributes = repository / ".git" / "info" / "attributes"
    attributes.parent.mkdir(exist_ok=True)
    attributes.write_bytes(b"*.png binary\n# mine\xff\n*.gir text")
    run("git", "config", "diff.gradir.xfuncname", "^leaf")
    run("git", "config", "diff.other.textconv", "cat")
    configuration = (repository / ".git" / "config").read_bytes()
    run("gradir", "git", "install")
    assert b"*.gir -text diff=gradir merge=gradir\n" in attributes.read_bytes()
    run("gradir", "git", "uninstall")
    assert attributes.read_bytes() == b"*.png binary\n# mine\xff\n*.gir text\n"
    assert (repository / ".git" / "config").read_bytes() == configuration


def test_without_gradir_git_continues(run: Run, repository: Path, tmp_path: Path) -> None:
    run("gradir", "git", "install")
    (tmp_path / "bin" / "gradir").unlink()
    gradir.save(everything(), repository / "model.gir")
    for command in (["diff"], ["diff", "HEAD~1", "HEAD"], ["log", "-p"], ["show"]):
        assert '"eps":0.5' in run("git", *command)
    run("git", "add", "-p", input="y\n")
    assert run("git", "diff", "--cached", "--stat")
    run("git", "stash")
    run("git", "stash", "pop")
    run("git", "commit", "-q", "-a", "-m", "third")


def test_with_gradir_hunks_can_be_staged_and_stashed(run: Run, repository: Path) -> None:
    run("gradir", "git", "install")
    gradir.save(everything(), repository / "model.gir")
    run("git", "add", "-p", input="y\n")
    assert run("git", "diff", "--cached", "--name-only") == "model.gir\n"
    run("git", "stash")
    run("git", "stash", "pop")
    assert gradir.load(repository / "model.gir") == everything()


def test_every_encoding_and_a_broken_file_are_shown(run: Run, repository: Path) -> None:
    run("gradir", "git", "install")
    for name in ("a.gir", "a.gir.gz"):
        gradir.save(everything(), repository / name, format="msgpack")
    (repository / "broken.gir").write_text('{"format":"gir",\n<<<<<<< ours\n')
    run("git", "add", ".")
    run("git", "commit", "-q", "-m", "encodings")
    shown = run("git", "show")
    assert shown.count("+function fc/addmm:1 = addmm(-, x, fc/t:1) float32[2, 4] alpha=1") == 2
    assert "+<<<<<<< ours\n" in shown
    for name in ("a.gir", "a.gir.gz"):
        gradir.save(change_eps(), repository / name, format="msgpack")
    assert run("git", "diff").count(FACT) == 2


def test_git_for_windows_leaves_the_line_ends(run: Run, repository: Path) -> None:
    run("git", "config", "core.autocrlf", "true")
    file = repository / "model.gir"
    committed = file.read_bytes()
    for command, expected in (("install", committed), ("uninstall", committed.replace(b"\n", b"\r\n"))):
        run("gradir", "git", command)
        file.unlink()
        run("git", "checkout", "model.gir")
        assert file.read_bytes() == expected


def test_texts_are_cached_until_their_form_changes(run: Run, repository: Path, tmp_path: Path) -> None:
    run("gradir", "git", "install")
    assert FACT in run("git", "diff", "HEAD~1", "HEAD")
    calls = tmp_path / "calls"
    script = tmp_path / "bin" / "gradir"
    own = script.rename(script.with_name("own"))
    script.write_text(f'#!/bin/sh\necho called >> "{calls}"\nexec "{own}" "$@"\n')
    script.chmod(0o755)
    assert FACT in run("git", "diff", "HEAD~1", "HEAD")
    assert not calls.exists()
    command = run("git", "config", "diff.gradir.textconv").rstrip("\n")
    run("git", "config", "diff.gradir.textconv", command.replace("plain 1", "plain 2"))
    assert FACT in run("git", "diff", "HEAD~1", "HEAD")
    assert calls.read_text() == "called\n" * 2


class Program:
    """The program ``gradir``, which can go and come back."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._away = path.with_name("away")

    def go(self) -> None:
        self._path.rename(self._away)

    def come_back(self) -> None:
        self._away.rename(self._path)


@pytest.fixture
def program(run: Run, repository: Path, tmp_path: Path) -> Program:
    """The driver is installed, and the file of the last two commits is no text."""
    run("gradir", "git", "install")
    commit_both(run, repository, "model.gir")
    return Program(tmp_path / "bin" / "gradir")


def commit_both(run: Run, repository: Path, name: str, encoding: str = "msgpack") -> None:
    for graph in (everything(), change_eps()):
        gradir.save(graph, repository / name, format=encoding)
        run("git", "add", name)
        run("git", "commit", "-q", "-m", name)


LOG = ("git", "log", "-p", "-1", "--format=")
STOPPED = "caches no texts until it shows a graph with gradir again"
CACHE = "refs/notes/textconv/gradir"


def refs(run: Run) -> list[str]:
    return [line.split()[2] for line in run("git", "for-each-ref").splitlines() if "gradir" in line]


def test_without_gradir_a_file_that_is_no_text_is_one_line(program: Program, run: Run) -> None:
    program.go()
    *_, minus, plus = run(*LOG).splitlines()
    for sign, line, revision in (("-", minus, "HEAD~1"), ("+", plus, "HEAD")):
        blob = run("git", "rev-parse", f"{revision}:model.gir").strip()
        assert line == f"{sign}{blob}: no text; gradir shows it, and is missing here or failed"


def test_git_never_caches_text_shown_without_gradir(program: Program, run: Run) -> None:
    program.go()
    for _ in range(2):
        assert FACT not in run(*LOG)
        assert refs(run) == [f"{CACHE}/stop"]
    program.come_back()
    assert run("gradir", "git", "status").endswith(f"{STOPPED}\n")
    assert FACT in run(*LOG)
    assert refs(run) == [CACHE]
    assert STOPPED not in run("gradir", "git", "status")
    assert ": graph texts, " in run("git", "log", "--all", "--format=%s")
    program.go()
    assert FACT in run(*LOG), "it is cached again"


def test_a_run_of_git_that_shows_one_file_without_gradir_caches_none(
    program: Program, run: Run, repository: Path, tmp_path: Path
) -> None:
    for name, encoding in (("a.gir", "msgpack"), ("b.gir.gz", "msgpack"), ("c.gir", "json")):
        commit_both(run, repository, name, encoding)
    script = tmp_path / "bin" / "gradir"
    text = script.read_text()
    # As where the library of one compression is missing; git names its temporary files after the file.
    own = script.with_name("own")
    own.write_text(text)
    own.chmod(0o755)
    script.write_text(f'#!/bin/sh\ncase "$*" in *b.gir*) exit 2;; esac\nexec "{own}" "$@"\n')
    whole = ("git", "diff", "--no-renames", "HEAD~6", "HEAD")
    for _ in range(2):
        assert "no text; gradir shows it" in run(*whole)
        assert refs(run) == [f"{CACHE}/stop"]
    script.write_text(text)
    assert "no text" not in run(*whole)
    program.go()
    assert "no text" not in run(*whole), "it is cached again"


@pytest.mark.parametrize("words", [["install"], ["uninstall"]])
def test_nothing_stays_of_a_run_without_gradir(words: list[str], program: Program, run: Run) -> None:
    program.go()
    run(*LOG)
    program.come_back()
    run("gradir", "git", *words)
    assert refs(run) == []


def test_a_file_that_nothing_can_read_is_no_binary(program: Program, run: Run, repository: Path) -> None:
    for place in ("with", "without"):
        (repository / "model.gir").write_bytes((repository / "model.gir").read_bytes()[:50])
        (repository / "text.gir").write_bytes(b'{"a":\t"\x1b[31m"\r\n')
        run("git", "add", "--intent-to-add", "text.gir")
        shown = run("git", "diff", "HEAD")
        assert "\x1b" not in shown
        assert '+{"a":\t"' in shown
        assert all(char.isprintable() for char in shown if char not in "\n\t")
        assert ("gradir: byte" in shown) == (place == "with")
        if place == "with":
            assert refs(run) == [CACHE]
            program.go()


def test_worktrees_share_it(run: Run, repository: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    run("git", "config", "extensions.worktreeConfig", "true")
    run("git", "worktree", "add", "-q", str(tmp_path / "tree"), "HEAD")
    inside = runner(tmp_path / "tree", environment)
    inside("gradir", "git", "install")
    assert FACT in inside("git", "diff", "HEAD~1")
    assert FACT in run("git", "diff", "HEAD~1")
    run("gradir", "git", "uninstall")
    assert FACT not in inside("git", "diff", "HEAD~1")


def test_status_says_what_is_there(run: Run) -> None:
    assert [line.split("(")[0].split() for line in run("gradir", "git", "status").splitlines()] == [
        ["local", "not", "installed"],
        ["global", "not", "installed"],
    ]
    run("gradir", "git", "install")
    assert run("gradir", "git", "status", "--local").startswith("local   installed (")
    command = run("git", "config", "diff.gradir.textconv").rstrip("\n")
    run("git", "config", "diff.gradir.textconv", command.replace("plain 1", "plain 0"))
    assert "installed by another gradir" in run("gradir", "git", "status", "--local")


def test_the_attributes_file_of_the_user_is_the_one_edited(run: Run, environment: dict[str, str]) -> None:
    mine = Path(environment["HOME"]) / "my attributes"
    run("git", "config", "--global", "core.attributesFile", "~/my attributes")
    run("gradir", "git", "install", "--global")
    assert "*.gir -text diff=gradir merge=gradir" in mine.read_text()
    assert FACT in run("git", "diff", "HEAD~1")


def test_outside_a_repository_is_one_clear_error(tmp_path: Path, environment: dict[str, str]) -> None:
    run = runner(tmp_path, {**environment, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)})
    for words in (["install"], ["install", "--local"], ["uninstall"], ["status", "--local"]):
        said = run("gradir", "git", *words, status=2)
        assert said.startswith("gradir: git rev-parse: not a git repository")
        assert said.endswith("; run this in a repository, or with --global\n")
        assert said.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "home"]


def test_outside_a_repository_the_global_settings_are_reported_and_made(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    run = runner(tmp_path, {**environment, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)})
    attributes = tmp_path / "home" / ".config" / "git" / "attributes"
    missing, installed = f"not installed ({attributes})", f"installed ({attributes})"
    assert run("gradir", "git", "status") == f"local   no repository here\nglobal  {missing}\n"
    run("gradir", "git", "install", "--global")
    assert run("gradir", "git", "status") == f"local   no repository here\nglobal  {installed}\n"
    run("gradir", "git", "uninstall", "--global")
    assert run("gradir", "git", "status", "--global") == f"global  {missing}\n"


def test_without_git_there_is_one_clear_error(tmp_path: Path, environment: dict[str, str]) -> None:
    run = runner(tmp_path, {**environment, "PATH": str(tmp_path / "bin")})
    for words in (["install"], ["install", "--global"], ["status"]):
        said = run(str(tmp_path / "bin" / "gradir"), "git", *words, status=2)
        assert said == "gradir: cannot run git: it is not on PATH; install git\n"
