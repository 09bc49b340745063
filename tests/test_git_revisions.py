"""Revisions, the index and sides of a conflict as what is compared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from git_places import Run, change_eps, runner
from msgspec.structs import replace
from samples import everything
from tools import needs

import gradir

pytest_plugins = ["git_fixtures"]
pytestmark = needs("git")


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
    assert run("gradir", "diff", "HEAD", "HEAD", "model.gir").startswith("no difference in the autograd graph; ")


def test_a_revision_is_compared_from_a_folder_below(run: Run, repository: Path, environment: dict[str, str]) -> None:
    below = repository / "below"
    below.mkdir()
    gradir.save(everything(), below / "other.gir")
    run("git", "add", ".")
    run("git", "commit", "-q", "-m", "below")
    gradir.save(change_eps(), below / "other.gir")
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
        (("HEAD~1..HEAD", "--", "model.gir"), "no such revision here; write HEAD~1 HEAD -- model.gir"),
        (("HEAD~1", "HEAD"), "HEAD~1 and HEAD are revisions; name a file too: HEAD~1 HEAD -- model.gir"),
        (("--", "HEAD~1", "model.gir"), "HEAD~1: cannot be read"),
        (("--ext-diff", "HEAD", "model.gir"), "unknown option"),
        (("HEAD", "--", "-x", "model.gir"), "-x: git knows no such revision here"),
        (("model.gir",), "two files, a revision and a file, or two revisions and a file"),
        (("a", "b", "c", "d"), "two files"),
        (("HEAD~1", "HEAD", "--", "model.gir", "-o", "x.html"), "'-o' after '--' is a file; put options before '--'"),
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
    assert run("gradir", "diff", "HEAD", "model.gir").startswith("no difference in the autograd graph; "), (
        "a file of that name comes first"
    )
    assert run("gradir", "diff", "--", "HEAD", "model.gir").startswith("no difference in the autograd graph; ")
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
    assert inside("gradir", "diff", "HEAD:below/model.gir", "model.gir").startswith(
        "no difference in the autograd graph; "
    )
    assert inside("gradir", "diff", "HEAD:./model.gir", "model.gir").startswith("no difference in the autograd graph; ")
    assert inside("gradir", "diff", "HEAD", str(below / "model.gir")).startswith(
        "no difference in the autograd graph; "
    )


def test_revisions_of_one_letter(run: Run) -> None:
    run("git", "branch", "x", "HEAD~1")
    for word in ("x:model.gir", "@~1:model.gir"):
        assert "attrs.eps" in run("gradir", "diff", word, "model.gir", status=1)
    assert run("gradir", "diff", "@:model.gir", "model.gir").startswith("no difference in the autograd graph; ")


def test_a_missing_file_is_reported_as_missing(run: Run, repository: Path) -> None:
    (repository / "model.gir").unlink()
    assert "model.gir: cannot be read" in run("gradir", "diff", "HEAD", "model.gir", status=2)
    assert "attrs.eps" in run("gradir", "diff", "HEAD~1", "HEAD", "model.gir", status=1)


def test_what_git_filters_is_compared_as_it_is_checked_out(run: Run, repository: Path) -> None:
    run("git", "config", "filter.turned.clean", "tr a-z n-za-m")
    run("git", "config", "filter.turned.smudge", "tr a-z n-za-m")
    (repository / ".gitattributes").write_text("*.gir filter=turned\n")
    run("git", "add", "--renormalize", ".")
    run("git", "commit", "-q", "-m", "filtered")
    assert '"format"' not in run("git", "cat-file", "blob", "HEAD:model.gir")
    assert run("gradir", "diff", "HEAD", "model.gir").startswith("no difference in the autograd graph; ")


def test_the_index_is_compared(run: Run, repository: Path, environment: dict[str, str]) -> None:
    gradir.save(everything(), repository / "model.gir")
    run("git", "add", "model.gir")
    gradir.save(change_eps(), repository / "model.gir")
    (repository / "below").mkdir()
    below = runner(repository / "below", environment)
    for index in (":model.gir", ":0:model.gir", ":./model.gir"):
        assert run("gradir", "diff", "HEAD~1:model.gir", index).startswith("no difference in the autograd graph; ")
        assert "attrs.eps: 1e-05 -> 0.5" in run("gradir", "diff", index, "model.gir", status=1)
    assert "attrs.eps: 1e-05 -> 0.5" in below("gradir", "diff", ":model.gir", "../model.gir", status=1)
    assert below("gradir", "diff", ":../model.gir", "HEAD~1:model.gir").startswith(
        "no difference in the autograd graph; "
    )


def test_the_sides_of_a_conflict_are_compared(run: Run, repository: Path) -> None:
    run("gradir", "git", "install")
    run("git", "checkout", "-q", "-b", "other", "HEAD~1")
    gradir.save(replace(change_eps(eps=0.25), cuts=()), repository / "model.gir")
    run("git", "commit", "-q", "-a", "-m", "other")
    run("git", "merge", "main", status=1)
    for stage, revision in enumerate(["main~1", "other", "main"], start=1):
        side = f":{stage}:model.gir"
        assert run("gradir", "diff", side, f"{revision}:model.gir").startswith("no difference in the autograd graph; ")
    assert "attrs.eps: 1e-05 -> 0.5" in run("gradir", "diff", ":1:model.gir", ":3:model.gir", status=1)
    assert "cut" in run("gradir", "diff", ":1:model.gir", ":2:model.gir", status=1)
    assert "model.gir" in run("gradir", "diff", ":model.gir", "model.gir", status=2)


def test_a_broken_file_of_the_index_is_named(run: Run, repository: Path) -> None:
    (repository / "model.gir").write_text("{")
    run("git", "add", "model.gir")
    said = run("gradir", "diff", ":model.gir", "HEAD:model.gir", status=2)
    assert said.startswith("gradir: :0:model.gir: byte 1: broken JSON")


def test_a_file_that_starts_with_a_colon_is_first(run: Run, repository: Path) -> None:
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
    assert run("gradir", "diff", "HEAD", "--", "model.gir").startswith("no difference in the autograd graph; ")


def test_a_merge_without_the_driver_is_reported_from_a_broken_file(run: Run, repository: Path) -> None:
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
        f"gradir: HEAD~2:{folder}new.gir: no such file; git says that model.gir was renamed to it; compare "
        f"HEAD~2:model.gir\n"
    )
    assert "compare HEAD~1:model.gir" in run("gradir", "diff", "HEAD~1", f"{folder}new.gir", status=2)
    assert f"compare HEAD:{folder}new.gir" in run("gradir", "diff", "HEAD~1", "HEAD", "--", "model.gir", status=2)
    assert "eps" in run("gradir", "diff", "HEAD~2:model.gir", f"HEAD:{folder}new.gir", status=1)
    assert "renamed" not in run("gradir", "diff", "HEAD~1", "HEAD", "--", "neither.gir", status=2)


def test_a_program_is_checked_against_a_revision(run: Run, repository: Path) -> None:
    pytest.importorskip("torch")
    both = "no difference in the autograd graph and the forward graph\n"
    program = "import torch\ndef loss(): return torch.ones(2, requires_grad=True).{}().sum()\n"
    (repository / "train.py").write_text(program.format("exp"))
    run("gradir", "check", "train.py:loss", "--against", "loss.gir", "--update")
    run("git", "add", "loss.gir")
    assert run("gradir", "check", "train.py:loss", "--against", ":loss.gir").startswith(
        "no difference in the autograd graph; "
    )
    run("git", "commit", "-q", "-m", "loss")
    (repository / "train.py").write_text(program.format("sin"))
    run("gradir", "check", "train.py:loss", "--against", "loss.gir", "--update", status=0)
    assert run("gradir", "check", "train.py:loss", "--against", "loss.gir") == both
    assert "op: exp -> sin" in run("gradir", "check", "train.py:loss", "--against", "HEAD:loss.gir", status=1)
    for words, message in (
        (["HEAD:loss.gir", "--update"], "cannot update HEAD:loss.gir; name a .gir file"),
        (["HEAD~9:loss.gir"], "HEAD~9: git knows no such revision here"),
    ):
        said = run("gradir", "check", "train.py:loss", "--against", *words, status=2)
        assert said == f"gradir: {message}\n"
    (repository / "HEAD:loss.gir").write_bytes((repository / "loss.gir").read_bytes())
    assert run("gradir", "check", "train.py:loss", "--against", "HEAD:loss.gir").startswith(
        "no difference in the autograd graph; "
    )
