"""``gradir check``: a program beside its file, in one process."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import gradir  # noqa: E402
from gradir.cli import main  # noqa: E402

PROGRAM = """
import torch
from torch import nn

def loss():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    return model, model(torch.ones(2, 3)).sum()
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(PROGRAM)
    assert main(["check", "train.py:loss", "--against", "loss.gir", "--update"]) == 0
    return tmp_path


def edit(project: Path) -> None:
    (project / "train.py").write_text(PROGRAM.replace("nn.Tanh()", "nn.ReLU()"))


def check(*more: str) -> int:
    return main(["check", "train.py:loss", "--against", "loss.gir", *more])


def test_the_same_graph(capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    assert check() == 0
    assert capfd.readouterr().out == "no difference in the autograd graph and the forward graph\n"
    assert check("--verify") == 0


def test_another_graph_is_shown_and_accepted_on_request(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = (project / "loss.gir").read_bytes()
    edit(project)
    capfd.readouterr()
    assert check() == 1
    shown = capfd.readouterr().out
    assert "tanh" in shown
    assert "relu" in shown
    assert (project / "loss.gir").read_bytes() == before
    assert check("--update") == 0
    assert check() == 0


def test_check_writes_the_format_that_the_name_of_its_file_says(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (project / "elsewhere").mkdir()
    (project / "train.py").write_text(PROGRAM.replace("nn.Tanh()", "nn.ReLU()") + "import os; os.chdir('elsewhere')\n")
    capfd.readouterr()
    assert check("-o", "report.html") == 1
    assert capfd.readouterr().out == ""
    # The program went elsewhere, and the file is where the user was.
    report = project / "report.html"
    assert report.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert not [*(project / "elsewhere").iterdir()]


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("loss.gir", "-o loss.gir means a graph"),
        ("absent/report.md", "absent/report.md: cannot be written: No such file or directory"),
    ],
)
def test_an_unwritable_output_is_reported_before_the_program_runs(
    output: str, said: str, project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = (project / "loss.gir").read_bytes()
    (project / "train.py").write_text("raise SystemExit('it ran')")
    capfd.readouterr()
    assert check("-o", output) == 2
    assert capfd.readouterr().err.startswith(f"gradir: {said}")
    assert (project / "loss.gir").read_bytes() == before


def test_an_update_keeps_the_form_of_the_file(project: Path) -> None:
    assert main(["convert", "loss.gir", "loss.gir", "--format", "msgpack", "--compress", "gzip"]) == 0
    edit(project)
    assert check("--update") == 0
    assert (project / "loss.gir").read_bytes().startswith(b"\x1f\x8b")
    assert "1/relu:1" in gradir.load("loss.gir").nodes


def test_standard_input_cannot_be_updated(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    assert main(["check", "train.py:loss", "--against", "-", "--update"]) == 2
    error = capfd.readouterr().err
    assert "cannot update -; name a .gir file" in error
    assert error.count("\n") == 1
    assert not (project / "-").exists()


def test_trouble_is_one_line(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    assert main(["check", "train.py:loss", "--against", "missing.gir"]) == 2
    assert main(["check", "train.py:nothing", "--against", "loss.gir"]) == 2
    (project / "loss.gir").write_text("{")
    assert check() == 2
    assert (project / "loss.gir").read_text() == "{"
    errors = capfd.readouterr().err.splitlines()
    assert [error.partition(": ")[2][:12] for error in errors] == [
        "missing.gir:",
        "train.py has",
        "loss.gir: by",
    ]
    assert errors[0] == "gradir: missing.gir: cannot be read: no such file; --update writes it"
    assert errors[-1].endswith("; --update rewrites it")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"<<<<<<< ours\n{}\n", b'{"format":"tar"}', b"\x89GIR\r\n\x1a\n", b"\x1f\x8b\x08"]
)
def test_a_broken_file_is_written_anew_on_request(
    content: bytes, project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = gradir.load("loss.gir")
    (project / "loss.gir").write_bytes(content)
    capfd.readouterr()
    assert check() == 2
    fault, hint, rest = capfd.readouterr().err.partition("; --update rewrites it\n")
    assert (hint, rest) != ("", "")
    assert (project / "loss.gir").read_bytes() == content
    assert check("--update") == 0
    shown, errors = capfd.readouterr()
    assert shown == ""
    assert errors.splitlines()[0] == f"{fault}; rewritten"
    assert errors.splitlines()[1:] == [
        "wrote loss.gir: 15 nodes, 14 edges, 21 parameter elements",
        "wrote loss.forward.gir: 12 nodes, 11 edges, 21 parameter elements",
    ]
    assert gradir.load("loss.gir") == before


def test_a_broken_file_keeps_its_encoding(project: Path) -> None:
    gradir.save(gradir.load("loss.gir"), "loss.gir", format="msgpack")
    whole = (project / "loss.gir").read_bytes()
    (project / "loss.gir").write_bytes(whole[:-9])
    assert check("--update") == 0
    assert (project / "loss.gir").read_bytes() == whole


def test_a_broken_file_that_may_be_anything_is_left(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = (project / "train.py").read_bytes()
    (project / "notes").write_bytes(program)
    capfd.readouterr()
    assert main(["check", "train.py:loss", "--against", "notes"]) == 2
    assert "--update" not in capfd.readouterr().err
    assert main(["check", "train.py:loss", "--against", "train.py", "--update"]) == 2
    assert capfd.readouterr().err.startswith("gradir: train.py is a script, not a graph")
    assert main(["check", "train.py:loss", "--against", "notes", "--update"]) == 2
    errors = capfd.readouterr().err
    assert errors.startswith("gradir: notes: not a GIR document")
    assert errors.endswith("; a file not named .gir is left as it is: delete it first\n")
    assert errors.count("\n") == 1
    assert (project / "notes").read_bytes() == (project / "train.py").read_bytes() == program


@pytest.mark.parametrize("head", ['"version":"7.2","requires":[]', '"version":"1.0","requires":["wings"]'])
def test_a_file_that_only_a_newer_gradir_reads_is_left(
    head: str, project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = project / "loss.gir"
    text = path.read_text().replace('"version":"1.0","requires":[]', head)
    path.write_text(text)
    capfd.readouterr()
    assert check() == 2
    error = capfd.readouterr().err
    assert "upgrade" in error
    assert "--update" not in error
    assert check("--update") == 2
    assert capfd.readouterr().err == f"{error[:-1]}, or delete the file first\n"
    assert path.read_text() == text


def test_update_leaves_a_different_file_of_a_newer_version(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = project / "loss.gir"
    text = path.read_text().replace('"version":"1.0"', '"version":"1.99"')
    path.write_text(text)
    assert check("--update") == 0
    edit(project)
    capfd.readouterr()
    assert check("--update") == 2
    shown, errors = capfd.readouterr()
    assert "relu" in shown
    assert errors.splitlines()[-1] == (
        "gradir: loss.gir: GIR version 1.99 is newer than this gradir, and the file is left as it is; "
        "upgrade gradir, or delete the file first"
    )
    assert path.read_text() == text


def test_a_file_that_cannot_be_opened_is_left(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (project / "folder.gir").mkdir()
    capfd.readouterr()
    assert main(["check", "train.py:loss", "--against", "folder.gir", "--update"]) == 2
    assert capfd.readouterr().err == "gradir: folder.gir: cannot be read: Is a directory\n"


def test_a_file_that_is_called_as_a_folder_is_not_made(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for words in (
        ["capture", "train.py:loss", "-o", "new.gir/"],
        ["check", "train.py:loss", "--against", "new.gir/", "--update"],
    ):
        capfd.readouterr()
        assert main(words) == 2
        assert capfd.readouterr().err.endswith("gradir: new.gir/: cannot be written: Is a directory\n")
        assert not (tmp_path / "new.gir").exists()


def test_the_flow_is_recorded_where_the_file_has_it(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    cutting = PROGRAM.replace("model(torch", "model[2](model[:2](torch").replace(").sum()", ").detach()).sum()")
    (project / "train.py").write_text(cutting)
    assert check("--update") == 0
    capfd.readouterr()
    assert check("--flow") == 1
    out = capfd.readouterr().out
    assert "a new cut" not in out
    assert "without flow: the first graph (no --flow), so no place" in out
    assert check("--flow", "--ignore", "cuts") == 0
    assert check("--flow", "--update") == 0
    capfd.readouterr()
    assert check() == 0
    assert capfd.readouterr().out == "no difference in the autograd graph and the forward graph\n"
    (project / "train.py").write_text(
        cutting.replace("return model, ", "return model, model[2].weight.detach().sum() + ")
    )
    assert check() == 1
    assert capfd.readouterr().out.startswith("a new cut: detach at train.py:8 ")


def test_the_graph_of_a_forward_is_checked_against_one(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "train.py:loss", "--graph", "forward", "-o", "loss.gir"]) == 0
    capfd.readouterr()
    assert check() == 0
    assert capfd.readouterr().out == "no difference in the forward graph\n"
    edit(project)
    assert check("--update") == 0
    assert gradir.load("loss.gir").producer.options["graph"] == "forward"
    capfd.readouterr()
    assert check("--verify") == 2
    assert capfd.readouterr().err == (
        "gradir: --verify needs an autograd graph, but loss.gir is a graph of a forward pass; leave out --verify\n"
    )
