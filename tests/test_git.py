"""The git driver, against real git in temporary repositories."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from git_places import Run, changed, runner
from msgspec.structs import replace
from samples import everything

import gradir

pytest_plugins = ["git_fixtures"]
pytestmark = pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")


def snapshot(*folders: Path) -> dict[Path, bytes]:
    """Everything that decides what git does."""
    found = {}
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "objects" not in path.parts and path.name not in {"index", "ORIG_HEAD"}:
                found[path] = path.read_bytes()
    return found


FACT = "-    attr eps = 1e-05\n+    attr eps = 0.5\n"


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
    assert "@@ function norm/native_batch_norm:1 = " in run("git", "diff", "HEAD~1")
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
    assert b"*.gir diff=gradir -merge\n" in attributes.read_bytes()
    run("gradir", "git", "uninstall")
    assert attributes.read_bytes() == b"*.png binary\n# mine\xff\n*.gir text"
    assert (repository / ".git" / "config").read_bytes() == configuration


def test_without_gradir_git_goes_on(run: Run, repository: Path, tmp_path: Path) -> None:
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
    assert shown.count("+function fc/addmm:1 = addmm(-, x, fc/t:1)\n") == 2
    assert "+<<<<<<< ours\n" in shown
    for name in ("a.gir", "a.gir.gz"):
        gradir.save(changed(), repository / name, format="msgpack")
    assert run("git", "diff").count(FACT) == 2


def test_texts_are_cached_until_their_form_changes(run: Run, repository: Path, tmp_path: Path) -> None:
    run("gradir", "git", "install")
    assert FACT in run("git", "diff", "HEAD~1", "HEAD")
    calls = tmp_path / "calls"
    script = tmp_path / "bin" / "gradir"
    script.write_text(script.read_text().replace("exec", f'echo called >> "{calls}"\nexec'))
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
    for graph in (everything(), changed()):
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


def test_what_is_shown_without_gradir_is_never_cached(program: Program, run: Run) -> None:
    program.go()
    for _ in range(2):
        assert FACT not in run(*LOG)
        assert refs(run) == [f"{CACHE}/stop"]
    program.come_back()
    assert run("gradir", "git", "status").endswith(f"{STOPPED}\n")
    assert FACT in run(*LOG)
    assert refs(run) == [CACHE]
    assert STOPPED not in run("gradir", "git", "status")
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
    script.write_text(text.replace("exec", 'case "$*" in *b.gir*) exit 2;; esac\nexec'))
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


def test_a_merge_is_never_tried(run: Run, repository: Path) -> None:
    run("gradir", "git", "install")
    run("git", "checkout", "-q", "-b", "other", "HEAD~1")
    graph = everything()
    gradir.save(replace(graph, cuts=()), repository / "model.gir")
    run("git", "commit", "-q", "-a", "-m", "other")
    said = run("git", "merge", "main", status=1)
    assert "Cannot merge binary files: model.gir" in said
    assert gradir.load(repository / "model.gir").cuts == ()


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
    assert "*.gir diff=gradir -merge" in mine.read_text()
    assert FACT in run("git", "diff", "HEAD~1")


def test_outside_a_repository_is_one_clear_error(tmp_path: Path, environment: dict[str, str]) -> None:
    run = runner(tmp_path, {**environment, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)})
    for words in (["install"], ["install", "--local"], ["uninstall"], ["status", "--local"]):
        said = run("gradir", "git", *words, status=2)
        assert said.startswith("gradir: git rev-parse: not a git repository")
        assert said.endswith("; run this in a repository, or with --global\n")
        assert said.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "home"]


def test_outside_a_repository_the_global_settings_are_told_and_made(
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
        assert said == "gradir: this needs git, which is not on the PATH\n"


@pytest.mark.parametrize(
    "words",
    [
        ("HEAD~1", "HEAD", "--", "model.gir"),
        ("HEAD~1", "HEAD", "model.gir"),
        ("HEAD~1", "model.gir"),
        ("main~1:model.gir", "model.gir"),
        ("main~1:model.gir", "main:model.gir"),
        ("--exit-zero", "HEAD~1", "HEAD", "--", "./model.gir"),
    ],
)
def test_revisions_are_compared(words: tuple[str, ...], run: Run) -> None:
    status = 0 if "--exit-zero" in words else 1
    assert "attrs.eps: 1e-05 -> 0.5" in run("gradir", "diff", *words, status=status)
    assert run("gradir", "diff", "HEAD", "HEAD", "model.gir") == "no difference\n"


def test_a_revision_is_compared_from_a_folder_below(run: Run, repository: Path, environment: dict[str, str]) -> None:
    below = repository / "below"
    below.mkdir()
    gradir.save(everything(), below / "other.gir")
    run("git", "add", ".")
    run("git", "commit", "-q", "-m", "below")
    gradir.save(changed(), below / "other.gir")
    inside = runner(below, environment)
    assert "attrs.eps" in inside("gradir", "diff", "HEAD", "other.gir", status=1)
    assert "attrs.eps" in inside("gradir", "diff", "HEAD~2", "HEAD", "../model.gir", status=1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere", "HEAD", "model.gir"), "nowhere: git knows no such revision here"),
        (("HEAD", "HEAD~1", "other.gir"), "other.gir"),
        (("HEAD:other.gir", "model.gir"), "other.gir"),
        (
            ("nowhere", "model.gir"),
            "nowhere: neither a file nor a revision that git knows",
        ),
        (("HEAD~9", "model.gir"), "HEAD~9: neither a file nor a revision that git knows"),
        (("HEAD~9", "--", "model.gir"), "HEAD~9: git knows no such revision here"),
        (("--", "HEAD~1", "model.gir"), "HEAD~1: cannot be read"),
        (("--output=x", "HEAD", "model.gir"), "unrecognized arguments"),
        (("HEAD", "--", "-x", "model.gir"), "-x: git knows no such revision here"),
        (("model.gir",), "two files, a revision and a file, or two revisions and a file"),
        (("a", "b", "c", "d"), "two files"),
    ],
)
def test_sides_that_are_not_there_are_one_line(words: tuple[str, ...], said: str, run: Run) -> None:
    error = run("gradir", "diff", *words, status=2)
    assert error.startswith("gradir: ")
    assert error.count("\n") == 1
    assert said in error


def test_a_broken_file_of_a_revision_is_named(run: Run, repository: Path) -> None:
    (repository / "model.gir").write_text("{")
    run("git", "commit", "-q", "-a", "-m", "broken")
    assert "gradir: HEAD:model.gir: byte 1: broken JSON" in run(
        "gradir", "diff", "HEAD~1", "HEAD", "model.gir", status=2
    )
    (repository / "HEAD").write_bytes(gradir.dumps(everything()))
    (repository / "model.gir").write_bytes(gradir.dumps(everything()))
    assert run("gradir", "diff", "HEAD", "model.gir") == "no difference\n", "a file of that name comes first"
    assert run("gradir", "diff", "--", "HEAD", "model.gir") == "no difference\n"
    assert "gradir: HEAD:model.gir: byte 1: broken JSON" in run("gradir", "diff", "HEAD", "--", "model.gir", status=2)


def test_a_path_after_a_colon_is_that_of_the_repository(
    run: Run, repository: Path, environment: dict[str, str]
) -> None:
    below = repository / "below"
    below.mkdir()
    gradir.save(everything(), below / "model.gir")
    run("git", "add", ".")
    run("git", "commit", "-q", "-m", "below")
    inside = runner(below, environment)
    assert "attrs.eps: 0.5 -> 1e-05" in inside("gradir", "diff", "HEAD:model.gir", "model.gir", status=1)
    assert inside("gradir", "diff", "HEAD:below/model.gir", "model.gir") == "no difference\n"
    assert inside("gradir", "diff", "HEAD:./model.gir", "model.gir") == "no difference\n"
    assert inside("gradir", "diff", "HEAD", str(below / "model.gir")) == "no difference\n"


def test_revisions_of_one_letter(run: Run) -> None:
    run("git", "branch", "x", "HEAD~1")
    for word in ("x:model.gir", "@~1:model.gir"):
        assert "attrs.eps" in run("gradir", "diff", word, "model.gir", status=1)
    assert run("gradir", "diff", "@:model.gir", "model.gir") == "no difference\n"


def test_a_file_that_is_gone_is_what_is_said_to_be_gone(run: Run, repository: Path) -> None:
    (repository / "model.gir").unlink()
    assert "model.gir: cannot be read" in run("gradir", "diff", "HEAD", "model.gir", status=2)
    assert "attrs.eps" in run("gradir", "diff", "HEAD~1", "HEAD", "model.gir", status=1)


def test_what_git_filters_is_compared_as_it_is_checked_out(run: Run, repository: Path) -> None:
    run("git", "config", "filter.turned.clean", "rev")
    run("git", "config", "filter.turned.smudge", "rev")
    (repository / ".gitattributes").write_text("*.gir filter=turned\n")
    run("git", "add", "--renormalize", ".")
    run("git", "commit", "-q", "-m", "filtered")
    assert '"format"' not in run("git", "cat-file", "blob", "HEAD:model.gir")
    assert run("gradir", "diff", "HEAD", "model.gir") == "no difference\n"


def test_the_index_is_compared(run: Run, repository: Path, environment: dict[str, str]) -> None:
    gradir.save(everything(), repository / "model.gir")
    run("git", "add", "model.gir")
    gradir.save(changed(), repository / "model.gir")
    (repository / "below").mkdir()
    below = runner(repository / "below", environment)
    for index in (":model.gir", ":0:model.gir", ":./model.gir"):
        assert run("gradir", "diff", "HEAD~1:model.gir", index) == "no difference\n"
        assert "attrs.eps: 1e-05 -> 0.5" in run("gradir", "diff", index, "model.gir", status=1)
    assert "attrs.eps: 1e-05 -> 0.5" in below("gradir", "diff", ":model.gir", "../model.gir", status=1)
    assert below("gradir", "diff", ":../model.gir", "HEAD~1:model.gir") == "no difference\n"


def test_the_sides_of_a_conflict_are_compared(run: Run, repository: Path) -> None:
    run("gradir", "git", "install")
    run("git", "checkout", "-q", "-b", "other", "HEAD~1")
    gradir.save(replace(everything(), cuts=()), repository / "model.gir")
    run("git", "commit", "-q", "-a", "-m", "other")
    run("git", "merge", "main", status=1)
    for stage, revision in enumerate(["main~1", "other", "main"], start=1):
        side = f":{stage}:model.gir"
        assert run("gradir", "diff", side, f"{revision}:model.gir") == "no difference\n"
    assert "attrs.eps: 1e-05 -> 0.5" in run("gradir", "diff", ":1:model.gir", ":3:model.gir", status=1)
    assert "cut" in run("gradir", "diff", ":1:model.gir", ":2:model.gir", status=1)
    assert "model.gir" in run("gradir", "diff", ":model.gir", "model.gir", status=2)


def test_a_broken_file_of_the_index_is_named(run: Run, repository: Path) -> None:
    (repository / "model.gir").write_text("{")
    run("git", "add", "model.gir")
    said = run("gradir", "diff", ":model.gir", "HEAD:model.gir", status=2)
    assert said.startswith("gradir: :0:model.gir: byte 1: broken JSON")


def test_a_file_that_starts_with_a_colon_comes_first(run: Run, repository: Path) -> None:
    gradir.save(everything(), repository / ":model.gir")
    assert "attrs.eps: 1e-05 -> 0.5" in run("gradir", "diff", ":model.gir", "model.gir", status=1)


def test_a_file_with_the_name_of_a_revision_is_taken_with_a_warning(run: Run, repository: Path) -> None:
    gradir.save(everything(), repository / "HEAD")
    shown = run("gradir", "diff", "HEAD", "model.gir", status=1)
    warning = "HEAD: the file is compared, and not the revision of this name: write HEAD -- model.gir for that"
    assert f"gradir: warning: {warning}\n" in shown
    assert "attrs.eps: 1e-05 -> 0.5" in shown
    for words in (("--", "HEAD", "model.gir"), ("./HEAD", "model.gir")):
        assert "warning" not in run("gradir", "diff", *words, status=1)
    assert run("gradir", "diff", "HEAD", "--", "model.gir") == "no difference\n"


def test_a_file_in_a_submodule_is_said_to_be_in_one(
    run: Run, repository: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    (repository / "libs").mkdir()
    source = str(tmp_path / "repository" / ".git")
    run("git", "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", source, "libs/other")
    run("git", "commit", "-q", "-m", "submodule")
    advice = "libs/other is a submodule: run this in it\n"
    said = run("gradir", "diff", "HEAD:libs/other/model.gir", "model.gir", status=2)
    assert said == f"gradir: HEAD:libs/other/model.gir: {advice}"
    assert run("gradir", "diff", "HEAD", "libs/other/model.gir", status=2).endswith(advice)
    inside = runner(repository / "libs" / "other", environment)
    assert inside("gradir", "diff", "HEAD", "model.gir") == "no difference\n"
    assert "submodule" not in run("gradir", "diff", "HEAD:libs/x.gir", "model.gir", status=2)


def test_a_merge_without_the_driver_is_told_from_a_broken_file(run: Run, repository: Path) -> None:
    run("git", "checkout", "-q", "-b", "other", "HEAD~1")
    text = (repository / "model.gir").read_text()
    (repository / "model.gir").write_text(re.sub('"eps":[^,}]+', '"eps":2.0', text))
    run("git", "commit", "-q", "-a", "-m", "other")
    run("git", "merge", "main", status=1)
    said = run("gradir", "info", "model.gir", status=2)
    assert ": a merge conflict; choose a side" in said
    assert "conflict" not in run("gradir", "diff", ":2:model.gir", ":3:model.gir", status=1)


@pytest.mark.parametrize("folder", ["", "models/"])
def test_a_renamed_file_is_named_as_it_is_called_there(folder: str, run: Run, repository: Path) -> None:
    (repository / "models").mkdir()
    run("git", "mv", "model.gir", f"{folder}new.gir")
    run("git", "commit", "-q", "-m", "renamed")
    said = run("gradir", "diff", "HEAD~2", "HEAD", "--", f"{folder}new.gir", status=2)
    assert said == (
        f"gradir: HEAD~2:{folder}new.gir: there is no such file; git takes it for model.gir, renamed: "
        "compare HEAD~2:model.gir\n"
    )
    assert "compare HEAD~1:model.gir" in run("gradir", "diff", "HEAD~1", f"{folder}new.gir", status=2)
    assert f"compare HEAD:{folder}new.gir" in run("gradir", "diff", "HEAD~1", "HEAD", "--", "model.gir", status=2)
    assert "eps" in run("gradir", "diff", "HEAD~2:model.gir", f"HEAD:{folder}new.gir", status=1)
    assert "renamed" not in run("gradir", "diff", "HEAD~1", "HEAD", "--", "neither.gir", status=2)


def test_a_program_is_checked_against_a_revision(run: Run, repository: Path) -> None:
    pytest.importorskip("torch")
    program = "import torch\ndef loss(): return torch.ones(2, requires_grad=True).{}().sum()\n"
    (repository / "train.py").write_text(program.format("exp"))
    run("gradir", "check", "train.py:loss", "--against", "loss.gir", "--update")
    run("git", "add", "loss.gir")
    assert run("gradir", "check", "train.py:loss", "--against", ":loss.gir") == "no difference\n"
    run("git", "commit", "-q", "-m", "loss")
    (repository / "train.py").write_text(program.format("sin"))
    run("gradir", "check", "train.py:loss", "--against", "loss.gir", "--update", status=0)
    assert run("gradir", "check", "train.py:loss", "--against", "loss.gir") == "no difference\n"
    assert "op: exp -> sin" in run("gradir", "check", "train.py:loss", "--against", "HEAD:loss.gir", status=1)
    for words, message in (
        (["HEAD:loss.gir", "--update"], "--update writes a file, and HEAD:loss.gir is one of a revision: name a file"),
        (["HEAD~9:loss.gir"], "HEAD~9: git knows no such revision here"),
    ):
        said = run("gradir", "check", "train.py:loss", "--against", *words, status=2)
        assert said == f"gradir: {message}\n"
    (repository / "HEAD:loss.gir").write_bytes((repository / "loss.gir").read_bytes())
    assert run("gradir", "check", "train.py:loss", "--against", "HEAD:loss.gir") == "no difference\n"
