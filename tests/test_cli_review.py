"""``gradir diff`` and ``gradir patch`` of reviews: forms, names of files, conditions and ignored fields."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from diff_pairs import edit_sample
from msgspec.structs import replace
from samples import everything

import gradir
from gradir import api
from gradir.cli import main
from gradir.diffs.diff_json import encode

Read = pytest.CaptureFixture[str]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    gradir.save(everything(), "a.gir")
    gradir.save(edit_sample(), "b.gir")
    return tmp_path


def test_patch_says_that_a_diff_is_of_a_newer_version(files: Path, capfd: Read) -> None:
    document = json.loads(encode(gradir.diff(everything(), edit_sample()))) | {"version": "1.7"}
    (files / "d.json").write_text(json.dumps(document))
    assert main(["patch", "a.gir", "d.json", "-o", "c.gir"]) == 0
    assert capfd.readouterr().err.startswith(
        "gradir: warning: the diff has version 1.7, newer than 1.0; gradir ignores"
    )
    assert (files / "c.gir").read_bytes() == (files / "b.gir").read_bytes()


def test_the_command_line_diffs_and_patches(files: Path, capfd: Read) -> None:
    assert main(["diff", "a.gir", "b.gir", "--format", "json"]) == 1
    (files / "d.json").write_text(capfd.readouterr().out)
    assert main(["patch", "a.gir", "d.json", "-o", "c.gir"]) == 0
    assert (files / "c.gir").read_bytes() == (files / "b.gir").read_bytes()
    assert main(["patch", "b.gir", "d.json", "--reverse", "-o", "c.gir"]) == 0
    assert (files / "c.gir").read_bytes() == (files / "a.gir").read_bytes()
    assert main(["patch", "b.gir", "d.json", "-o", "c.gir"]) == 2
    assert "gradir: b.gir: the diff was not made for this graph" in capfd.readouterr().err
    assert main(["patch", "a.gir", "a.gir"]) == 2
    assert "gradir: a.gir: not a diff" in capfd.readouterr().err


@pytest.mark.parametrize("form", ["markdown", "mermaid", "dot"])
def test_every_form_is_printed(form: str, files: Path, capfd: Read) -> None:
    assert main(["diff", "a.gir", "b.gir", "--format", form]) == 1
    shown = capfd.readouterr().out
    assert {"markdown": "### Autograd graph", "mermaid": "flowchart", "dot": "digraph"}[form] in shown
    assert main(["diff", "a.gir", "a.gir", "--format", form]) == 0


@pytest.mark.usefixtures("dot_program", "files")
def test_a_picture_is_drawn(capfd: Read) -> None:
    assert main(["diff", "a.gir", "b.gir", "--format", "svg"]) == 1
    assert "<svg" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("d.md", "### Autograd graph"),
        ("d.HTM", "<!doctype html>"),
        ("d.json", "{"),
        ("d.mmd", "---\nconfig:"),
        ("d.mermaid", "---\nconfig:"),
        ("d.dot", "digraph"),
        ("d.gv", "digraph"),
        ("d.txt", "1 parameter "),
        ("d.log", "1 parameter "),
        ("d", "1 parameter "),
    ],
)
def test_the_name_of_the_file_says_the_form(name: str, start: str, files: Path) -> None:
    assert main(["diff", "a.gir", "b.gir", "-o", name]) == 1
    assert (files / name).read_text().startswith(start)


@pytest.mark.usefixtures("dot_program")
def test_the_name_of_the_file_may_be_that_of_a_picture(files: Path) -> None:
    assert main(["diff", "a.gir", "b.gir", "-o", "d.svg"]) == 1
    assert "<svg" in (files / "d.svg").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--format dot -o d.md", "-o d.md means markdown, but --format is dot; change one of them"),
        ("--format text -o d.html", "-o d.html means html, but --format is text; change one of them"),
        ("--format svg -o d.gv", "-o d.gv means dot, but --format is svg; change one of them"),
        (
            "-o d.png",
            "cannot draw a diff as png; use -o with a name that ends in .svg, or write a .dot and run dot -Tpng",
        ),
        ("-o d.gir", "-o d.gir means a graph, but this command writes a diff; use a name such as x.txt or x.json"),
        ("--format graph -o d.md", "unknown renderer 'graph': choose from "),
    ],
)
def test_a_name_that_says_another_form_is_one_line(words: str, said: str, files: Path, capfd: Read) -> None:
    # Nothing is compared for that.
    assert main(["diff", "absent.gir", "b.gir", *words.split()]) == 2
    read = capfd.readouterr()
    assert read.out == ""
    assert read.err.startswith(f"gradir: {said}")
    assert read.err.count("\n") == 1
    assert {path.name for path in files.iterdir()} == {"a.gir", "b.gir"}


@pytest.mark.parametrize("words", ["--format json -o d.txt", "--format markdown -o d.log", "--format dot -o d.gv"])
def test_a_name_that_fits_a_form_is_taken(words: str, files: Path) -> None:
    assert main(["diff", "a.gir", "b.gir", *words.split()]) == 1
    assert (files / words.rsplit(maxsplit=1)[-1]).stat().st_size


@pytest.mark.usefixtures("files")
def test_conditions_decide_the_exit_status(capfd: Read) -> None:
    assert main(["diff", "a.gir", "b.gir", "--fail-on", "params"]) == 1
    assert re.match(r"gradir: params: [\d,]+ -> [\d,]+ \(.*\)\n$", capfd.readouterr().err)
    assert main(["diff", "a.gir", "b.gir", "--fail-on", "params>1000%"]) == 0
    assert main(["diff", "a.gir", "b.gir", "--fail-on", "params", "--exit-zero"]) == 0
    assert main(["diff", "missing.gir", "b.gir", "--fail-on", "parms"]) == 2
    assert "'parms' is not a condition" in capfd.readouterr().err
    for nothing in ("", " "):
        assert main(["diff", "missing.gir", "b.gir", "--fail-on", nothing]) == 2
        assert capfd.readouterr().err.startswith("gradir: --fail-on needs a condition, such as cuts; ")
    assert main(["diff", "missing.gir", "b.gir", "--ignore", "source,prams"]) == 2
    assert "cannot ignore 'prams'" in capfd.readouterr().err


@pytest.mark.usefixtures("files")
def test_ignored_fields_decide_the_exit_status(files: Path) -> None:
    node = everything().nodes["norm/native_batch_norm:1"]
    other = replace(
        everything(), nodes={**everything().nodes, node.id: replace(node, attrs={**node.attrs, "eps": 1.0})}
    )
    gradir.save(other, "c.gir")
    assert main(["diff", "a.gir", "c.gir"]) == 1
    assert main(["diff", "a.gir", "c.gir", "--ignore", "source,attrs.eps"]) == 0
    assert main(["diff", "a.gir", "c.gir", "--ignore", "source", "--ignore", "attrs"]) == 0


def test_of_two_equal_files_one_is_loaded(files: Path, capfd: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    everything().save("a.gir")
    everything().save("b.gir")
    edit_sample().save("c.gir")
    loaded, load = [], api.load
    monkeypatch.setattr(api, "load", lambda path: loaded.append(path) or load(path))
    assert main(["diff", "a.gir", "b.gir"]) == 0
    assert loaded == ["a.gir"]
    assert main(["diff", "a.gir", "c.gir"]) == 1
    assert loaded == ["a.gir", "a.gir", "c.gir"]
    for name in ("a.gir", "b.gir"):
        Path(name).write_text("{}")
    capfd.readouterr()
    assert main(["diff", "a.gir", "b.gir"]) == 2
    assert capfd.readouterr().err.startswith("gradir: a.gir: ")
