"""``gradir capture --graph forward`` and ``gradir view`` of programs: what there is of a forward that raised."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

torch = pytest.importorskip("torch")

import gradir  # noqa: E402
from gradir.cli.main import main  # noqa: E402

PROGRAM = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, raises):
        super().__init__()
        self.fc, self.raises = nn.Linear(4, 4), raises

    def forward(self, x):
        y = self.fc(x).relu()
        if self.raises:
            raise ValueError(f"no {tuple(y.shape)} here")
        return y


class Net(nn.Module):
    def __init__(self, raises=False):
        super().__init__()
        self.blocks = nn.Sequential(Block(False), Block(raises))
        self.head = nn.Linear(5, 2)

    def forward(self, x):
        return self.head(self.blocks(x))


class Checked(nn.Module):
    def forward(self, x):
        return nn.functional.binary_cross_entropy(x.exp(), torch.ones(3))


class Wordless(Exception):
    def __str__(self):
        raise KeyError


def mismatch():
    model = Net()
    return model, model(torch.ones(2, 4)).sum()


def nested():
    return Net(True)(torch.ones(2, 4)).sum()


def at_once():
    raise ValueError("nothing ran")


def interrupted():
    torch.ones(2).exp()
    raise KeyboardInterrupt


def leaves():
    torch.ones(2).exp()
    raise SystemExit(3)


def wordless():
    torch.ones(2).exp()
    raise Wordless


def hostile():
    torch.ones(2).exp()
    raise ValueError("</script>\\x1b[31m\\u202e\\ud800" + "x" * 100_000)


def recovers():
    x = torch.ones(2, 4)
    try:
        x @ x
    except RuntimeError:
        pass
    return x.exp()


def works():
    return torch.ones(2, requires_grad=True).exp().sum()
"""


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the programs, to be in."""
    (tmp_path / "net.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path]:
    """The files that a browser was asked to show."""
    shown: list[Path] = []

    def show(address: str) -> bool:
        shown.append(Path(unquote(urlparse(address).path)))
        return True

    monkeypatch.setattr("webbrowser.open", show)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return shown


def line_of(code: str) -> int:
    return next(number for number, line in enumerate(PROGRAM.splitlines(), 1) if code in line)


def captured(name: str, *options: str) -> int:
    return main(["capture", f"net.py:{name}", "--graph", "forward", *options, "-o", "f.gir"])


@pytest.mark.parametrize(
    ("name", "options", "last", "code", "error"),
    [
        (
            "mismatch",
            (),
            "head/addmm:1",
            "return self.head",
            "RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x4 and 5x2)",
        ),
        ("Net", ("--input", "float32[2,4]"), "head/addmm:1", "return self.head", "RuntimeError: mat1 and mat2 shapes"),
        (
            "Net",
            ("--input", "float32[2,4]", "--fake"),
            "head/addmm:1",
            "return self.head",
            "RuntimeError: a and b must have same",
        ),
        ("nested", (), "blocks.1/raise:1", "raise ValueError(f", "ValueError: no (2, 4) here"),
        (
            "Checked",
            ("--input", "float32[2]"),
            "binary_cross_entropy:1",
            "return nn.functional",
            "ValueError: Using a target size",
        ),
        ("leaves", (), "raise:1", "raise SystemExit", "SystemExit: 3"),
        ("wordless", (), "raise:1", "raise Wordless", "Wordless"),
    ],
)
def test_the_forward_of_a_program_that_raised_is_written_up_to_there(
    name: str, options: tuple[str, ...], last: str, code: str, error: str, capfd: pytest.CaptureFixture[str]
) -> None:
    line = line_of(code)
    assert captured(name, *options) == 1
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"gradir: net.py:{name}: {name} raised {error}")
    assert f" (net.py line {line}); wrote f.gir up to there: " in said.err
    assert said.err.count("\n") == 1
    graph = gradir.load("f.gir")
    (failed,) = [node for node in graph.nodes.values() if "failed" in node.ext]
    assert failed.id == last
    assert failed.source is not None
    assert (failed.source.file, failed.source.line) == ("net.py", line)
    assert str(failed.ext["failed"]).startswith(error)
    assert main(["validate", "--strict", "f.gir"]) == 0


def test_it_is_written_to_standard_output_too(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["capture", "net.py:mismatch", "--graph", "forward"]) == 1
    said = capfdbinary.readouterr()
    assert "head/addmm:1" in gradir.loads(said.out).nodes
    assert said.err.endswith(
        b"(2x4 and 5x2) (net.py line %d); wrote the graph up to there\n" % line_of("return self.head")
    )


@pytest.mark.parametrize(("name", "status"), [("at_once", 2), ("interrupted", 130)])
def test_an_interrupted_or_empty_forward_writes_no_file(
    name: str, status: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert captured(name) == status
    assert "wrote" not in capfd.readouterr().err
    assert not (tmp_path / "f.gir").exists()


def test_the_text_of_an_error_is_shortened_and_escaped(capfd: pytest.CaptureFixture[str]) -> None:
    assert captured("hostile") == 1
    said = capfd.readouterr().err
    assert len(said) < 1000
    assert r"</script>\x1b[31m\u202e\ud800xxx" in said
    failed = gradir.load("f.gir").nodes["raise:1"].ext["failed"]
    assert len(str(failed)) < 600
    assert "</script>\x1b" not in Path("f.gir").read_text()


def test_a_caught_error_does_not_end_the_forward(capfd: pytest.CaptureFixture[str]) -> None:
    assert captured("recovers") == 0
    assert capfd.readouterr().err.startswith("wrote f.gir: ")


def test_a_check_of_a_forward_that_raises_is_trouble(capfd: pytest.CaptureFixture[str]) -> None:
    assert captured("mismatch") == 1
    before = Path("f.gir").read_bytes()
    assert main(["check", "net.py:mismatch", "--against", "f.gir", "--update"]) == 2
    assert Path("f.gir").read_bytes() == before
    assert "mismatch raised RuntimeError" in capfd.readouterr().err


def test_a_program_is_viewed_without_a_file(opened: list[Path], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["view", "net.py:works"]) == 0
    assert main(["view", "net.py:works", "--graph", "forward", "-O", "title=The forward"]) == 0
    assert capfd.readouterr() == ("", "")
    titles = [re.findall("<title>(.*)</title>", path.read_text())[0] for path in opened]
    assert titles == ["net.py:works", "The forward"]


def test_a_forward_that_raised_is_viewed_up_to_there(opened: list[Path], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["view", "net.py:mismatch", "--graph", "forward"]) == 1
    assert len(opened) == 1
    assert capfd.readouterr().err.endswith(f"(net.py line {line_of('return self.head')}); the graph ends there\n")
    assert main(["view", "net.py:mismatch"]) == 2
    assert len(opened) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("net.py",), "net.py is a script, not a graph"),
        (("none.gir",), "none.gir: cannot be read: No such file"),
        (("main:none.gir",), "main: git knows no such revision here"),
        (("f.gir", "--graph", "forward"), "--graph is for a program, but f.gir is a file"),
        (("f.gir", "--seed", "0"), "--seed is for a program, but f.gir is a file"),
        (("f.gir", "--sources"), "--sources is for a program, but f.gir is a file"),
        (("net.py:none",), "net.py has no attribute 'none'"),
    ],
)
def test_view_reports_a_wrong_argument_in_one_line(
    words: tuple[str, ...], said: str, opened: list[Path], capfd: pytest.CaptureFixture[str]
) -> None:
    Path("main.py").write_text("raise SystemExit('imported')\n")
    assert main(["view", *words]) == 2
    shown = capfd.readouterr()
    assert shown.err.startswith(f"gradir: {said}")
    assert shown.err.count("\n") == 1
    assert opened == []
