"""Programs that commands capture on the way: their arguments, their errors, what they return, where it goes."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import forked
import pytest

torch = pytest.importorskip("torch")

import gradir  # noqa: E402
from gradir.cli.main import main  # noqa: E402

Read = pytest.CaptureFixture[str]

PROGRAM = """\
import argparse
import sys
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=3)
words = parser.parse_args()


class Net(nn.Module):
    def forward(self, x):
        return x.foo


def loss():
    # At the import and in the call.
    assert parser.parse_args().width == words.width
    model = nn.Linear(words.width, 1)
    return model, model(torch.ones(1, words.width)).sum()


def wrong():
    try:
        nn.Linear(3, 1)(torch.ones(1, 4))
    except RuntimeError as error:
        raise ValueError("\\x1b[31mred") from error


def lightning():
    model = nn.Linear(3, 1)
    loss = model(torch.ones(1, 3)).sum()
    return model, {"loss": loss, "log": {"n": 3, "name": "x", "none": None}, "logits": loss.detach()}


def graphless():
    return {"n": 3, "loss": torch.ones(2)}


def many():
    return [torch.ones(2, requires_grad=True).exp(), *range(7)]


def hugging():
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=20, n_positions=8))
    found = model(torch.arange(8)[None], labels=torch.arange(8)[None])
    found.logits = found.logits.detach()
    return found


def spoiled():
    x = torch.ones(2, requires_grad=True).exp()
    x.register_hook(lambda gradient: 1 / 0)
    return x
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "net.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def line_of(code: str) -> int:
    return next(number for number, line in enumerate(PROGRAM.splitlines(), 1) if code in line)


@pytest.mark.parametrize("spec", ["net.py:loss", "net:loss"])
@pytest.mark.parametrize("command", ["capture", "check", "export", "explain", "view"])
def test_arguments_after_two_dashes_reach_the_program(
    command: str, spec: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setattr("webbrowser.open", lambda _: True)
    monkeypatch.delitem(sys.modules, "net", raising=False)
    more = {
        "capture": ["-o", "loss.txt"],
        "check": ["--against", "loss.txt", "--update"],
        "export": ["--to", "plain", "-o", "loss.txt"],
        "explain": ["--format", "json", "-o", "loss.txt", "--overlay", "overlay.txt"],
        "view": ["-O", "title=x"],
    }[command]
    before = sys.argv
    assert main([command, spec, *more, "--", "--width", "41"]) == 0
    assert sys.argv is before
    (written,) = folder.glob(
        "gradir-*.html" if command == "view" else "overlay.txt" if command == "explain" else "loss.txt"
    )
    assert command == "explain" or "41" in written.read_text()
    monkeypatch.delitem(sys.modules, "net", raising=False)
    with pytest.raises(SystemExit, match="2"):
        main([command, spec, *more, "--width", "41"])


def test_arguments_are_for_programs(capfd: Read) -> None:
    assert main(["capture", "net.py:loss", "-o", "loss.gir"]) == 0
    capfd.readouterr()
    for command in ("export", "explain", "view"):
        assert main([command, "loss.gir", *["--to", "html"] * (command != "explain"), "--", "a"]) == 2
        assert "arguments after '--' are for a program, but loss.gir is a file" in capfd.readouterr().err


def test_a_file_may_be_called_like_an_option(folder: Path) -> None:
    assert main(["capture", "net.py:loss", "-o", "./-loss.gir"]) == 0
    assert main(["export", "--to=plain", "--output=x.txt", "--", "-loss.gir"]) == 0
    assert (folder / "x.txt").stat().st_size


def test_an_error_of_the_program_shows_its_own_traceback(capfd: Read) -> None:
    assert main(["capture", "net.py:wrong", "--sources"]) == 2
    *trace, last = capfd.readouterr().err.splitlines()
    assert last == r"gradir: net.py:wrong: wrong raised ValueError: \x1b[31mred"
    frames = [line for line in trace if line.startswith("  File ")]
    assert f'net.py", line {line_of("nn.Linear(3, 1)(")}, in wrong' in frames[0]
    assert f'net.py", line {line_of("raise ValueError")}, in wrong' in frames[-1]
    package = str(Path(gradir.__file__).parent)
    assert not [line for line in frames if package in line]
    assert "The above exception was the direct cause of the following exception:" in trace
    assert trace[-1] == r"ValueError: \x1b[31mred"


def test_the_frames_of_a_library_before_the_program_are_left_out(capfd: Read) -> None:
    assert main(["capture", "net.py:Net", "--input", "float32[2]"]) == 2
    first, second, *_ = capfd.readouterr().err.splitlines()
    assert first == "Traceback (most recent call last):"
    assert second.endswith(f'net.py", line {line_of("x.foo")}, in forward')


def test_all_of_a_traceback_is_there_when_asked_for(capfd: Read) -> None:
    assert main(["capture", "net.py:wrong", "--traceback"]) == 2
    said = capfd.readouterr().err
    assert "gradir/spec.py" in said
    assert f'net.py", line {line_of("raise ValueError")}, in wrong' in said
    assert said.endswith("gradir: net.py:wrong: wrong raised ValueError: \\x1b[31mred\n")
    # What is wrong with the command line is no error of a program.
    assert main(["capture", "absent.py:wrong", "--traceback"]) == 2
    assert capfd.readouterr().err == "gradir: absent.py: no such file\n"


def test_a_program_that_is_no_python_shows_where(folder: Path, capfd: Read) -> None:
    (folder / "broken.py").write_text("x = (\n")
    assert main(["capture", "broken.py:x"]) == 2
    first, *_, last = capfd.readouterr().err.splitlines()
    assert first.endswith('broken.py", line 1')
    assert last == "gradir: broken.py raised SyntaxError: '(' was never closed (broken.py, line 1)"


def test_a_hook_that_raises_under_verify_shows_its_line(capfd: Read) -> None:
    assert main(["capture", "net.py:spoiled", "--verify"]) == 2
    first, second, *_, last = capfd.readouterr().err.splitlines()
    assert first == "Traceback (most recent call last):"
    assert second.endswith(f'net.py", line {line_of("1 / 0")}, in <lambda>')
    assert "verifying needs a backward, which failed: ZeroDivisionError" in last


@pytest.mark.parametrize(
    ("name", "kept", "left"),
    [
        ("lightning", ["output:loss"], "output 'log.n' (int), output 'log.name' (str), output 'log.none' (NoneType), "
         "output 'logits' (a tensor)"),
        ("many", ["output:0"], ", ".join(f"output '{place}' (int)" for place in range(1, 6)) + " and 2 more"),
        ("hugging", ["output:loss", "output:cache.layers.0.keys", "output:cache.layers.0.values"],
         "output 'logits' (a tensor)"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("default::gradir.GradirWarning")
def test_outputs_without_a_graph_are_left_out_with_a_warning(
    name: str, kept: list[str], left: str, folder: Path
) -> None:
    if name == "hugging":
        pytest.importorskip("transformers")
    command = [sys.executable, "-m", "gradir", "capture", f"net.py:{name}", "-o", "x.gir"]
    done = forked.run(command, text=True)
    assert done.returncode == 0
    assert f"gradir: warning: left out, since it has no graph: {left}\n" in done.stderr
    outputs = [node.id for node in gradir.load(folder / "x.gir").nodes.values() if node.role == "output"]
    assert outputs == kept


def test_capture_refuses_a_program_whose_outputs_have_no_graph(capfd: Read) -> None:
    assert main(["capture", "net.py:graphless"]) == 2
    assert capfd.readouterr().err.startswith("gradir: net.py:graphless: output 'loss' has no graph: nothing it was ")


@pytest.mark.parametrize(
    ("name", "start"),
    [("x.html", "<!DOCTYPE html>"), ("x.MMD", "---\nconfig:"), ("x.dot", "digraph"), ("x.gv", "digraph")],
)
def test_the_name_of_the_file_says_the_format(name: str, start: str, folder: Path) -> None:
    assert main(["export", "net.py:loss", "-o", name]) == 0
    assert (folder / name).read_text().lower().startswith(start.lower())


@pytest.mark.usefixtures("dot_program")
def test_the_name_of_the_file_may_be_that_of_a_picture(folder: Path) -> None:
    assert main(["export", "net.py:loss", "-o", "x.svg"]) == 0
    assert "<svg" in (folder / "x.svg").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-o x.txt", "x.txt may be modules, plain, summary or tree: choose one with --to NAME"),
        ("-o x.json", "x.json may be cytoscape, model-explorer or nodelink: choose one with --to NAME"),
        ("-o x.odd", "x.odd: no exporter writes .odd; give -o a name such as x.svg, or pass --to NAME"),
        *(
            (f"-o {name}", f"-o {name} means a graph; write it with 'gradir capture'")
            for name in ("x.gir", "x.GIR.zst")
        ),
        ("-o x", "the format is missing; give -o a name such as x.svg, or pass --to NAME"),
        ("", "the format is missing; give -o a name such as x.svg, or pass --to NAME"),
        ("--to mermaid -o x.svg", "-o x.svg means svg, but --to is mermaid; change one of them"),
        ("--to png -o x.svg", "-o x.svg means svg, but --to is png; change one of them"),
        ("--to png -o x.txt", "-o x.txt means modules, plain, summary or tree, but --to is png"),
        ("--to tree -o x.gir.gz", "-o x.gir.gz means a graph, but --to is tree; change one of them"),
        ("--to dot -o x.json", "-o x.json means cytoscape, model-explorer or nodelink, but --to is dot"),
    ],
)
def test_a_name_that_says_no_format_or_another_is_one_line(words: str, said: str, folder: Path, capfd: Read) -> None:
    # The program is not run for that.
    assert main(["export", "net.py:absent", *words.split()]) == 2
    read = capfd.readouterr()
    assert read.out == ""
    assert read.err.startswith(f"gradir: {said}")
    assert read.err.count("\n") == 1
    assert [path.name for path in folder.iterdir()] == ["net.py"]


@pytest.mark.parametrize(
    "words", ["--to tree -o x.txt", "--to mermaid -o x.txt", "--to cytoscape -o x.json", "--to tree -o x.log",
              "--to mermaid --fence -o x.md", "--to summary -O style=csv -o x.csv"]
)  # fmt: skip
def test_a_name_that_fits_is_taken(words: str, folder: Path) -> None:
    assert main(["export", "net.py:loss", *words.split()]) == 0
    assert (folder / words.rsplit(maxsplit=1)[-1]).stat().st_size


def test_an_export_of_a_forward_that_raised_ends_there(folder: Path, capfd: Read) -> None:
    assert main(["export", "net.py:wrong", "--graph", "forward", "-o", "x.mmd"]) == 1
    assert "; the graph ends there\n" in capfd.readouterr().err
    assert "class n4 failed" in (folder / "x.mmd").read_text()


@pytest.mark.parametrize("source", ["loss.gir", "net.py:loss"])
def test_a_view_without_a_browser_prints_the_path(source: str, folder: Path, clean_environment: dict[str, str]) -> None:
    assert main(["capture", "net.py:loss", "-o", "loss.gir"]) == 0
    shown = {"DISPLAY", "WAYLAND_DISPLAY"}
    environment = {key: value for key, value in clean_environment.items() if key not in shown}
    done = forked.run(
        [sys.executable, "-m", "gradir", "view", source],
        env={**environment, "BROWSER": "no-such-browser", "TMPDIR": str(folder)},
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    path = Path(done.stdout.removesuffix("\n"))
    assert path.parent == folder
    assert path.read_text().startswith("<!doctype html>")


WRONG = """
import torch
from torch import nn

model = nn.Linear(3, 2)

def item():
    return model(torch.ones(1, 3)).sum().item()

def needs(x):
    return model(x)

def large():
    raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")

class Net(nn.Linear):
    def __init__(self, width):
        super().__init__(width, 2)
"""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("capture wrong.py:itme", "has no attribute 'itme' (did you mean 'item'?)"),
        ("capture wrong.py:item", "not a tensor but float; give the tensor that item() was called on"),
        ("capture wrong.py:needs", "argument: 'x'; write a function without arguments that calls it, and name that"),
        ("capture wrong.py:Net", "argument: 'width'; write a function without arguments that calls it, and name that"),
        ("capture wrong.py:large", "Tried to allocate 2 GiB; --fake runs it without data"),
        ("capture wrong.py:model --input float33[1]", "torch has no dtype 'float33' (did you mean 'float32'?)"),
        ("capture lacking.py:loss", "No module named 'no_such'; install it where gradir runs"),
        (
            "export wrong.py:item --to tree --step 2",
            "unknown option '--step'; it is an option of capture, run, explain",
        ),
        ("watch lacking.py", "lacking.py ended before its first step, and nothing else was found"),
    ],
)
def test_an_error_has_advice(words: str, said: str, folder: Path, capfd: Read) -> None:
    (folder / "wrong.py").write_text(WRONG)
    (folder / "lacking.py").write_text("import no_such\n")
    with suppress(SystemExit):
        assert main(words.split()) == 2
    assert said in capfd.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: gradir.capture(torch.nn.Linear(2, 3)), "Linear is a module; describe its input, as in"),
        (lambda: gradir.explain(2.0), "cannot explain a float by itself; record its forward"),
        (lambda: gradir.ranks("run.0.gir"), "expected a list of files, not 'run.0.gir' alone"),
        (lambda: gradir.capture(None), "not a tensor but NoneType; give a tensor such as the loss"),
    ],
)
def test_an_error_of_python_has_advice(call: Callable[[], object], said: str) -> None:
    with pytest.raises(gradir.GradirError, match=re.escape(said)):
        call()
