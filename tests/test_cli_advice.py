"""What an error says to do: the command that it names is run, and works."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import gradir  # noqa: E402
from gradir.cli.main import main  # noqa: E402

Read = pytest.CaptureFixture[str]

NET = """\
import torch
from torch import nn


class Net(nn.Linear):
    def __init__(self):
        super().__init__(3, 1)


def loss():
    return Net()(torch.ones(1, 3)).sum()


def constant():
    return torch.ones(3).sum()


def beside():
    return Net(), (torch.ones(3, requires_grad=True) * 2).sum()


def integer():
    return Net()(torch.ones(1, 3)).argmax()


def detached():
    return Net()(torch.ones(1, 3)).sum().detach()


def raises():
    return Net()(torch.ones(1, 3).exp()) @ torch.ones(7)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "net", raising=False)
    Path("net.py").write_text(NET)
    return tmp_path


def said(line: str, capfd: Read, status: int = 2) -> str:
    """Return the last line that a command prints on standard error."""
    capfd.readouterr()
    assert main(shlex.split(line)) == status
    return capfd.readouterr().err.splitlines()[-1]


def advised(text: str) -> str:
    """Return the command behind "e.g.", or the last one in quotes."""
    found = re.search(r"e\.g\. gradir (.*)$", text) or re.search(r".*'gradir ([^']+)'", text)
    assert found, text
    return found[1]


@pytest.mark.parametrize("name", ["w.pt", "w.pth", "w.ckpt", "m.onnx", "w.safetensors", "w.h5"])
@pytest.mark.parametrize("command", ["view", "capture"])
def test_a_file_of_another_format_is_named_in_the_error(name: str, command: str, capfd: Read) -> None:
    torch.save(torch.nn.Linear(3, 1).state_dict(), name)
    text = said(f"{command} {name}", capfd)
    assert text.startswith(f"gradir: {name} is a")
    assert main(shlex.split(advised(text))) == 0
    with pytest.raises(gradir.FormatError, match=r"it is an? .* e\.g\. gradir capture"):
        gradir.load(name)


def test_a_notebook_and_a_captured_graph_are_named_in_the_error(capfd: Read) -> None:
    Path("n.ipynb").write_text("{}")
    assert "n.ipynb is a notebook; call gradir.capture(loss)" in said("info n.ipynb", capfd)
    assert main(["capture", "net.py:loss", "-o", "loss.gir"]) == 0
    text = said("capture loss.gir", capfd)
    assert "loss.gir is a file, not a program" in text
    assert main([*shlex.split(advised(text)), "-o", "page.html"]) == 0


def test_a_script_names_a_program_that_works(capfd: Read) -> None:
    text = said("summary net.py", capfd)
    named = re.search(r"e\.g\. (\S+) \(", text)
    assert named
    assert main(["summary", named[1]]) == 0


def test_a_function_that_returns_nothing_is_not_named_and_says_so(capfd: Read) -> None:
    Path("train.py").write_text(f"{NET}\n\ndef main():\n    loss().backward()\n\n\nmain()\n")
    assert "main" not in said("info train.py", capfd)
    for command in ("capture", "explain"):
        text = said(f"{command} train.py:main", capfd)
        assert "train.py:main: it returned None; return the loss from it, or run the whole script" in text
    assert main(["capture", "train.py:main", "--graph", "forward", "-o", "forward.gir"]) == 0
    assert main(["run", "train.py", "-o", "train.gir"]) == 0


@pytest.mark.parametrize("name", ["constant", "integer", "detached"])
def test_a_loss_without_a_graph_can_be_explained_and_its_forward_captured(name: str, capfd: Read) -> None:
    text = said(f"capture net.py:{name} -o x.gir", capfd)
    assert "'gradir explain' finds the line, and --graph forward captures the forward" in text
    assert main(["explain", f"net.py:{name}"]) == 1
    assert re.search(r"^  --> net\.py:\d+", capfd.readouterr().out, re.MULTILINE)
    assert main(["capture", f"net.py:{name}", "--graph", "forward", "-o", "x.gir"]) == 0


def test_a_loss_that_reaches_no_parameter_is_a_finding(capfd: Read) -> None:
    for name in ("constant", "beside", "integer", "detached"):
        assert main(["explain", f"net.py:{name}"]) == 1
        assert re.search(
            r"^(No parameter gets a|0 of \d parameters get a|(All \d|Both) parameters get no) gradient: ",
            capfd.readouterr().out,
        )
    assert main(["explain", "net.py:loss"]) == 0


def test_a_rank_that_raises_may_be_captured_without_the_others(capfd: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    dry = "; if another rank ended first, --dry captures this one, and sends nothing"
    assert "--dry" not in said("capture net.py:raises -o x.gir --collectives", capfd)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert said("capture net.py:raises -o x.{rank}.gir --collectives", capfd).endswith(dry)
    assert "--dry captures" not in said("capture net.py:raises -o x.{rank}.gir --collectives --dry", capfd)


def test_a_forward_that_raises_is_explained_and_captured_up_to_there(capfd: Read) -> None:
    text = said("capture net.py:raises -o x.gir", capfd)
    assert text.endswith("'gradir explain' finds the cause, and --graph forward captures what ran before")
    assert main(["explain", "net.py:raises"]) == 1
    assert "error[raised]: " in capfd.readouterr().out
    assert main(["capture", "net.py:raises", "--graph", "forward", "-o", "x.gir"]) == 1
    assert gradir.load("x.gir").nodes
    assert "--graph forward" not in said("capture net.py:raises --graph forward -o y.gir", capfd, status=1)


def test_nothing_is_advised_that_does_not_help(capfd: Read) -> None:
    Path("net.py").write_text(f"{NET}\n\ndef needs(x):\n    return x\n\n\ndef odd():\n    raise ValueError\n")
    for line in ("net.py:needs", "net.py:odd", "net.py:Net --input float32[99999999,99999999]"):
        assert "--graph forward" not in said(f"capture {line} -o x.gir", capfd)


def test_a_graph_that_changed_names_the_option_that_accepts_it(capfd: Read) -> None:
    assert main(["capture", "net.py:loss", "-o", "loss.gir"]) == 0
    Path("net.py").write_text(NET.replace("super().__init__(3, 1)", "super().__init__(3, 2)"))
    sys.modules.pop("net", None)
    text = said("check net.py:loss --against loss.gir", capfd, status=1)
    assert text == "gradir: the graph differs from loss.gir; if that is intended, run this with --update"
    assert main(["check", "net.py:loss", "--against", "loss.gir", "--update"]) == 0
    assert main(["check", "net.py:loss", "--against", "loss.gir"]) == 0


def test_errors_in_python_name_a_call_that_works() -> None:
    model, x = torch.nn.Linear(3, 1), torch.ones(1, 3)
    with pytest.raises(gradir.CaptureError, match=r"`with gradir\.record\(model, flow=True\) as rec: loss = \.\.\.`"):
        gradir.explain(model(x).sum())
    with gradir.record(model, flow=True) as rec:
        loss = model(x).sum()
    assert rec.explain(loss).level == "none"
    for function in (gradir.capture, gradir.verify):
        with pytest.raises(TypeError, match=r"keyword arguments of the model as kwargs=\{'input': \.\.\.\}"):
            function(model, input=x)
    assert gradir.capture(model, kwargs={"input": x}).nodes
    with pytest.raises(TypeError, match=r"capture\(\) has no keyword 'modle' \(did you mean 'model'\?\)"):
        gradir.capture(loss, modle=model)
    with pytest.raises(gradir.CaptureError, match=r"rec\.explain\(loss\)"):
        gradir.explain(loss, model=model)


DELETED = [
    "info {}/loss.gir",
    "summary {}/loss.gir",
    "explain {}/loss.gir",
    "diff {}/loss.gir {}/loss.gir",
    "check {}/loss.gir --against {}/loss.gir",
    "export {}/loss.gir --to tree -o {}/tree.txt",
    "view {}/loss.gir -o {}/page.html",
    "convert {}/loss.gir {}/other.gir",
    "validate {}/loss.gir",
    "debug",
]


@pytest.mark.skipif(os.name == "nt", reason="Windows does not delete a folder that is used")
def test_a_working_folder_that_was_deleted_is_no_internal_error(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Read
) -> None:
    assert main(["capture", "net.py:loss", "-o", "loss.gir"]) == 0
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for line in DELETED:
        assert main(line.format(folder, folder).split()) == 0, line
    for line in ("export {}/loss.gir -o tree.svg", "capture {}/net.py:loss -o x.gir", "run {}/net.py -o x.gir"):
        text = said(line.format(folder), capfd)
        assert "internal error" not in text
        assert re.search("working directory was deleted|No such file", text)
    monkeypatch.chdir(folder)
