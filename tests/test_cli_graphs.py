"""Every command that reads a graph takes a file, standard input, a file in git, or a program."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import fails, runner
from tools import needs

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("forked_python")

from gradir.cli.main import main  # noqa: E402

Read = pytest.CaptureFixture[str]

NET = """\
import sys
import torch
from torch import nn

WIDTH = int(sys.argv[1]) if len(sys.argv) > 1 else 3


class Net(nn.Linear):
    def __init__(self):
        super().__init__(WIDTH, 1)


def loss():
    model = Net()
    return model, model(torch.ones(1, WIDTH)).sum()


def fails():
    model = Net()
    return model(torch.ones(1, WIDTH).exp()) + torch.ones(7).sum(dim=9)


def needs_data(data):
    return data
"""

LINES = {
    "info": ["info", "GRAPH"],
    "summary": ["summary", "GRAPH"],
    "export": ["export", "GRAPH", "--to", "tree"],
    "view": ["view", "GRAPH", "-o", "-"],
    "explain": ["explain", "GRAPH"],
    "diff": ["diff", "GRAPH", "loss.gir"],
    "diff, second": ["diff", "loss.gir", "GRAPH"],
    "check": ["check", "GRAPH", "--against", "loss.gir"],
    "check, against": ["check", "loss.gir", "--against", "GRAPH"],
}


def git(*words: str) -> None:
    author = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *author, *words], check=True, capture_output=True)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with net.py, and its graph in loss.gir."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "net", raising=False)
    Path("net.py").write_text(NET)
    assert main(["capture", "net.py:loss", "-o", "loss.gir"]) == 0
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    return tmp_path


@needs("git")
@pytest.mark.parametrize("graph", ["loss.gir", "-", "main:loss.gir", ":loss.gir", "net.py:loss", "net:loss"])
@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_command_takes_every_form_of_a_graph(
    line: list[str], graph: str, monkeypatch: pytest.MonkeyPatch, capfd: Read
) -> None:
    data = io.TextIOWrapper(io.BytesIO(Path("loss.gir").read_bytes()))
    monkeypatch.setattr(sys, "stdin", data)
    capfd.readouterr()
    assert main([graph if word == "GRAPH" else word for word in line]) == 0
    shown = capfd.readouterr()
    assert shown.out
    if line[0] in {"diff", "check"}:
        assert shown.out.startswith("no difference in the autograd graph; ")


@pytest.mark.parametrize("line", [line for name, line in LINES.items() if name != "explain"])
def test_a_script_is_refused_with_a_list_of_its_functions(line: list[str], capfd: Read) -> None:
    assert main(["net.py" if word == "GRAPH" else word for word in line]) == 2
    said = capfd.readouterr().err
    assert "net.py is a script, not a graph" in said
    assert "e.g. net.py:loss (net.py defines loss, fails, Net)" in said


@pytest.mark.parametrize("option", [["--input", "float32[1]"], ["--seed", "3"], ["--fake"], ["--graph", "forward"]])
@pytest.mark.parametrize("command", ["info", "summary", "export", "view", "diff", "check"])
def test_options_of_programs_are_refused_for_files(command: str, option: list[str], capfd: Read) -> None:
    line = ["loss.gir" if word == "GRAPH" else word for word in LINES[command]]
    assert main([*line, *option]) == 2
    assert f"gradir: {option[0]} is for a program, but loss.gir" in capfd.readouterr().err


def test_options_and_arguments_reach_the_program(capfd: Read) -> None:
    for command, *more in (["summary"], ["info"], ["export", "--to", "tree"]):
        sys.modules.pop("net", None)
        assert main([command, "net.py:loss", *more, "--", "41"]) == 0
        assert re.search(r"parameters: 42|42 elements|41", capfd.readouterr().out)
    assert main(["info", "net.py:Net", "--input", "float32[7,3]"]) == 0
    assert "output float32[7, 1]" in capfd.readouterr().out
    assert main(["diff", "loss.gir", "net.py:loss", "--", "41"]) == 1
    assert "41" in capfd.readouterr().out


def test_two_programs_of_one_name_are_two_programs(folder: Path, clean_environment: dict[str, str]) -> None:
    for side, operation in (("old", "relu"), ("new", "gelu")):
        (folder / side).mkdir()
        (folder / side / "parts.py").write_text(f"from torch.nn.functional import {operation} as activation\n")
        (folder / side / "train.py").write_text(
            "import torch\nfrom parts import activation\n\n"
            "def loss():\n    return activation(torch.ones(3, requires_grad=True)).sum()\n"
        )
    # Each in a process of its own, as from a shell: what a program imported stays loaded.
    run = runner(folder, clean_environment)
    done = run("diff", "old/train.py:loss", "new/train.py:loss")
    assert done.returncode == 1
    assert "relu" in done.stdout
    assert "gelu" in done.stdout
    assert run("check", "old/train.py:loss", "--against", "new/train.py:loss").returncode == 1
    assert (
        run("diff", "old/train.py:loss", "old/train.py:loss").stdout
        == "no difference in the autograd graph and the forward graph\n"
    )
    fails(run("diff", "old/train.py:no", "new/train.py:loss"), "old/train.py has no attribute 'no'")


def test_two_programs_take_the_same_options(capfd: Read) -> None:
    assert main(["diff", "net.py:Net", "net.py:Net", "--input", "float32[2,3]", "--sources", "--fake"]) == 0
    assert capfd.readouterr().out == "no difference in the autograd graph and the forward graph\n"
    assert main(["diff", "net.py:loss", "net.py:loss", "--", "41"]) == 0


@pytest.mark.parametrize("option", [["--sources"], ["--flow"], ["--graph", "forward"]])
def test_a_program_is_captured_as_the_file_was(option: list[str], capfd: Read) -> None:
    assert main(["capture", "net.py:loss", *option, "-o", "as.gir"]) == 0
    for line in (["diff", "as.gir", "net.py:loss"], ["diff", "net.py:loss", "as.gir"]):
        capfd.readouterr()
        assert main(line) == 0
        assert capfd.readouterr().err == ""


def test_a_module_that_is_called_as_a_branch_is_the_module(folder: Path, capfd: Read) -> None:
    (folder / "main.py").write_text(NET)
    sys.modules.pop("main", None)
    assert main(["diff", "main:loss", "main:loss.gir"]) == 0
    # Where git has such a file, it is the file.
    (folder / "loss").write_bytes((folder / "loss.gir").read_bytes())
    git("add", "loss")
    git("commit", "-q", "-m", "second")
    (folder / "loss").unlink()
    capfd.readouterr()
    assert main(["info", "main:loss"]) == 0
    assert "GIR" in capfd.readouterr().out


def test_a_forward_that_raises_is_shown_up_to_there(capfd: Read) -> None:
    for line in (["summary"], ["info"], ["export", "--to", "tree"], ["view", "-o", "-"]):
        assert main([line[0], "net.py:fails", "--graph", "forward", *line[1:]]) == 1
        shown = capfd.readouterr()
        assert "the graph ends there" in shown.err
        assert shown.out
    assert main(["diff", "net.py:fails", "net.py:fails", "--graph", "forward"]) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["main:net.py"], "main:net.py is Python source in git"),
        (["main:net.py:loss"], "main:net.py:loss is Python source in git"),
        (["net:no.such"], "net has no attribute 'no.such'"),
        (["./net:loss"], "./net:loss: no such file; ./net.py:loss names a program"),
        (["nowhere:loss.gir"], "nowhere: git knows no such revision here"),
        (["none.gir"], "none.gir: cannot be read: No such file"),
        (["none"], "none: no such file; name a .gir file, or a program such as train.py:loss"),
        (["none.py:loss"], "none.py: no such file"),
        (["no_such_module:loss"], "no_such_module: no such module here"),
        (["net.py:"], "net.py:"),
        ([""], "''"),
    ],
)
def test_a_wrong_argument_for_a_graph_is_one_line(words: list[str], said: str, capfd: Read) -> None:
    capfd.readouterr()
    assert main(["info", *words]) == 2
    shown = capfd.readouterr().err
    assert said in shown
    assert shown.count("\n") == 1


@pytest.mark.parametrize(
    "line",
    [
        "capture net.py:loss -o net.py",
        "capture net.py:loss -o other.pyi",
        "capture net.py:loss -o weights.pt",
        "run net.py -o net.py",
        "explain net.py:loss -o net.py",
        "explain net.py:loss --overlay net.py",
        "explain loss.gir -o loss.gir",
        "export net.py:loss --to tree -o net.py",
        "view net.py:loss --to html -o net.py",
        "summary net.py:loss -o net.py",
        "summary loss.gir -o loss.gir",
        "diff net.py:loss loss.gir --format text -o net.py",
        "check net.py:loss --against loss.gir -o net.py",
        "convert loss.gir net.py",
        "merge loss.gir loss.gir loss.gir -o net.py",
    ],
)
def test_outputs_never_overwrite_a_program_or_an_input(line: str, folder: Path, capfd: Read) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    capfd.readouterr()
    assert main(line.split()) == 2
    assert re.search("is the suffix of a source|is the input file", capfd.readouterr().err)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("loss.gir", "loss.gir is a graph, not a script; open it with 'gradir view loss.gir'"),
        (
            "net.py:loss",
            "net.py:loss is a PROGRAM, not a script; name net.py, or use 'gradir capture",
        ),
        ("weights.pt", "weights.pt is a PyTorch checkpoint"),
        (".", ".: has no __main__.py; name a script in it\n"),
    ],
)
def test_run_refuses_arguments_that_are_no_script(word: str, said: str, capfd: Read) -> None:
    capfd.readouterr()
    assert main(["run", word, "-o", "x.gir"]) == 2
    assert said in capfd.readouterr().err


AWKWARD = """\
import atexit, os, sys
import torch

atexit.register(lambda: print("goodbye", file=sys.stderr))


def fails():
    raise ValueError("no")


def leaves():
    os._exit(0)


def interrupts():
    raise KeyboardInterrupt


def loss():
    return torch.ones(3, requires_grad=True).sum()
"""


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("fails", 2, "gradir: awkward.py:fails: fails raised ValueError: no"),
        ("leaves", 2, "gradir: cannot capture awkward.py:leaves: its process ended with status 0"),
        ("interrupts", 130, "gradir: interrupted"),
    ],
)
def test_a_failure_of_the_first_of_two_programs_is_one_line(
    name: str, status: int, said: str, folder: Path, clean_environment: dict[str, str]
) -> None:
    Path("awkward.py").write_text(AWKWARD)
    done = runner(folder, clean_environment)("diff", f"awkward.py:{name}", "awkward.py:loss")
    assert done.returncode == status
    assert [line for line in done.stderr.splitlines() if line.startswith("gradir: ")] == [said]


def test_a_comparison_takes_two_graphs(capfd: Read) -> None:
    assert main(["diff", "net.py:loss"]) == 2
    assert "expected two graphs, got 1: net.py:loss" in capfd.readouterr().err
    assert main(["diff", "main", "net.py:loss"]) == 2
    assert "main: no such file" in capfd.readouterr().err
