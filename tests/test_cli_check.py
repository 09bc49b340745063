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
    assert capfd.readouterr().out == "no difference\n"
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
    assert "'-' is none: name a file" in error
    assert error.count("\n") == 1
    assert not (project / "-").exists()


def test_trouble_is_one_line(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    assert main(["check", "train.py:loss", "--against", "missing.gir"]) == 2
    assert main(["check", "train.py:nothing", "--against", "loss.gir"]) == 2
    (project / "loss.gir").write_text("{")
    assert check() == check("--update") == 2
    assert (project / "loss.gir").read_text() == "{"
    errors = capfd.readouterr().err.splitlines()
    assert [error.partition(": ")[2][:12] for error in errors] == [
        "missing.gir:",
        "train.py has",
        "loss.gir: by",
        "loss.gir: by",
    ]
