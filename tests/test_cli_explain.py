"""``gradir explain``: programs and files, exit statuses, and one line for every trouble."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import gradir  # noqa: E402
from gradir.cli.main import main  # noqa: E402
from gradir.explanations.from_cuts import explain_cuts  # noqa: E402
from gradir.ir import Cut, Graph, Node, Producer, Source  # noqa: E402

PROGRAM = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.head, self.spare = nn.Linear(3, 3), nn.Linear(3, 1), nn.Linear(2, 2)

    def forward(self, x):
        print("the program prints")
        return self.head(self.stem(x).detach())


class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(3, 1)

    def forward(self, x):
        return {"out": self.stem(x), "index": self.stem(x).argmax()}


def loss():
    model = Net()
    return model, model(torch.ones(2, 3)).sum()


def lost():
    with torch.no_grad():
        return Net().stem(torch.ones(2, 3)).sum()


def fails():
    return Net().stem(torch.ones(2, 5))


def nothing():
    return 3


def python_error():
    torch.ones(3).sum()
    raise ValueError("mine")


def target():
    both = nn.ModuleDict({"online": nn.Linear(3, 1), "target": nn.Linear(3, 1)})
    x = torch.ones(2, 3)
    with torch.no_grad():
        goal = both["target"](x)
    return both, (both["online"](x) - goal).square().mean()


def target_beside():
    both, loss = target()
    return both, loss, torch.optim.SGD(both["online"].parameters(), lr=0.1)
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = Path("net.py")
    path.write_text(PROGRAM)
    return path


@pytest.mark.usefixtures("program")
def test_a_lost_parameter_is_reported_with_its_line_and_status_one(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "net.py:loss"]) == 1
    out, err = capfd.readouterr()
    assert out.splitlines()[:4] == [
        "4 of 6 parameters get no gradient, 2 of them because detach() cuts all of stem (net.py:12 in Net.forward).",
        "",
        "error[detach]: detach() cuts all of stem",
        "  --> net.py:12 in Net.forward",
    ]
    assert "  help: take detach() out of this line if all of stem should learn" in out
    assert "the program prints" in err


@pytest.mark.usefixtures("program")
def test_a_module_is_run_on_inputs(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "net.py:Net", "--input", "float32[2,3]", "--format", "markdown"]) == 1
    assert "- **error**, `detach` at `net.py:12 in Net.forward`" in capfd.readouterr().out
    assert main(["explain", "net.py:Whole", "--input", "float32[2,3]", "--format", "json"]) == 0
    assert json.loads(capfd.readouterr().out)["statuses"] == {"stem.weight": "reached", "stem.bias": "reached"}


@pytest.mark.usefixtures("program")
def test_a_parameter_outside_the_returned_optimizer_needs_no_gradient(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "net.py:target"]) == 1
    assert "error[no_grad]: " in capfd.readouterr().out
    assert main(["explain", "net.py:target_beside"]) == 0
    assert "info[no_grad]: " in capfd.readouterr().out
    assert main(["capture", "net.py:target", "-o", "pair.gir"]) == main(["capture", "net.py:target_beside"]) == 0
    assert gradir.loads(capfd.readouterr().out.encode()) == gradir.load("pair.gir")


@pytest.mark.usefixtures("program")
def test_allowed_causes_exit_with_status_0(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "net.py:loss", "--allow", "stem.*"]) == 0
    assert main(["explain", "net.py:loss", "--allow", "detach"]) == 0
    assert main(["explain", "net.py:loss", "--allow", "head.*", "--allow", "exit"]) == 1
    out = capfd.readouterr().out
    assert "note (detach 1): --all shows it" in out
    assert "note[detach]" not in out
    assert main(["explain", "net.py:loss", "--allow", "detach", "--all"]) == 0
    assert "note[detach]: detach() cuts all of stem\n  --> net.py:12" in capfd.readouterr().out


def test_it_is_written_where_the_command_was_given(
    program: Path, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    program.write_text(PROGRAM.replace("def loss():", "def loss():\n    import os; os.chdir('/')"))
    (tmp_path / "pyproject.toml").write_text('[tool.gradir]\nallow = ["stem.*"]')
    assert main(["explain", "net.py:loss", "--format", "markdown", "-o", "found.md"]) == 0
    assert capfd.readouterr().out == ""
    assert (tmp_path / "found.md").read_text().endswith("- allowed: `stem.*` (`pyproject.toml`): 1 cause\n")


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize(
    "arguments",
    [
        ["explain", "net.py:loss", "-o"],
        ["explain", "net.py:loss", "--overlay"],
        ["capture", "net.py:loss", "-o"],
    ],
)
@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("no/found", "gradir: no/found: cannot be written: No such file or directory"),
        ("./folder/", "gradir: ./folder/: cannot be written: Is a directory"),
        ("", "gradir: '': cannot be written: no file can have this name"),
    ],
)
def test_a_file_that_cannot_be_written_is_called_as_it_was_given(
    arguments: list[str], path: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, path]) == 2
    assert capfd.readouterr().err.splitlines()[-1] == said


@pytest.mark.usefixtures("program")
def test_a_loss_without_a_graph_and_an_operation_that_raises(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "net.py:lost"]) == 1
    assert "\n  --> net.py:31 in lost\n" in capfd.readouterr().out
    assert main(["explain", "net.py:fails"]) == 1
    out = capfd.readouterr().out
    assert "\n  --> net.py:35 in fails\n" in out
    assert "mat1 and mat2 shapes cannot be multiplied (2x5 and 3x3)" in out


@pytest.mark.usefixtures("program")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["net.py:nothing"], "net.py:nothing: cannot explain int: it has no tensor"),
        (["net.py:Net"], "net.py:Net: Net is a module; describe its input"),
        (["net.py:loss", "--input", "float32[1]"], "--input is for a module"),
        (["net.py:absent"], "net.py has no attribute 'absent'"),
        (["absent.gir"], "absent.gir"),
        (
            ["net.py"],
            "net.py never called backward in this process; name the program to explain, e.g. net.py:loss (net.py "
            "defines ",
        ),
        (["absent"], "absent: no such file; name a .gir file, or a program such as train.py:loss"),
        (["net.py:nothing"], "cannot explain int: it has no tensor; pass the loss, or the error"),
        (["net.py:loss", "-o", "."], ": cannot be written: Is a directory"),
        (["absent.gir", "--seed", "1"], "--seed is for a program, but absent.gir is a file"),
        (["net.py:loss", "--format", "html"], "unknown --format 'html': choose from text, markdown, json"),
    ],
)
def test_trouble_is_one_line_and_status_two(arguments: list[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    try:
        status = main(["explain", *arguments])
    except SystemExit as end:
        status = end.code  # type: ignore[assignment]
    out, err = capfd.readouterr()
    lines = [line for line in err.splitlines() if line != "the program prints"]
    assert (status, out, len(lines)) == (2, "", 1)
    assert said in lines[0]


@pytest.mark.usefixtures("program")
def test_an_error_in_the_program_is_its_traceback_and_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "net.py:python_error"]) == 2
    first, *trace, last = (line for line in capfd.readouterr().err.splitlines() if line != "the program prints")
    assert first == "Traceback (most recent call last):"
    assert 'net.py", line ' in trace[0]
    assert trace[0].endswith(", in python_error")
    assert trace[-1] == "ValueError: mine"
    assert last == "gradir: net.py:python_error: python_error raised ValueError: mine"


@pytest.mark.usefixtures("program")
def test_the_error_of_a_capture_names_this_command(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "net.py:lost"]) == 2
    assert "'gradir explain' finds the line" in capfd.readouterr().err


# Files.


def stored(*cuts: Cut) -> Graph:
    return Graph.of([Node("w", role="parameter", names=("w",))], cuts=cuts)


def test_a_file_without_a_recorded_flow_says_that_it_does_not_know(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "loss.gir"
    gradir.save(stored(Cut("unreached", ("b",)), Cut("hidden", ("h",))), path)
    assert main(["explain", str(path), "--format", "json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["statuses"] == {"w": "reached", "b": "unreached", "h": "hidden"}
    assert [(cause["kind"], cause["level"], cause["names"]) for cause in document["causes"]] == [
        ("unreached", "info", ["b"])
    ]


def test_a_file_with_cuts_shows_their_places(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "loss.gir"
    cut = Cut("detach", ("b", "w"), op="detach", source=Source("net.py", 12, "f"))
    gradir.save(stored(Cut("unreached", ("b",)), Cut("unreached", ("c",)), cut), path)
    assert main(["explain", str(path)]) == 1
    out = capfd.readouterr().out
    assert out.splitlines()[:4] == [
        "2 of 3 parameters get no gradient, 1 of them because detach() cuts b (net.py:12 in f). "
        "Values were not examined: a file has none; explain the program.",
        "",
        "error[detach]: detach() cuts b, w",
        "  --> net.py:12 in f",
    ]
    assert main(["explain", str(path), "--allow", "detach"]) == 0


def test_a_cut_that_is_intended_or_around_which_all_are_reached_is_information() -> None:
    assert explain_cuts(stored(Cut("detach", ("w",)))).level == "info"
    target = Cut("no_grad", ("b",), op="linear", meant="target network")
    assert explain_cuts(stored(Cut("unreached", ("b",)), target)).level == "info"


def test_a_pattern_that_gives_its_parameters_a_gradient_excuses_none_without_one() -> None:
    cut = Cut("detach", ("w", "b"), op="detach", meant="straight-through")
    (reached,) = explain_cuts(stored(Cut("detach", ("w",), op="detach", meant="straight-through"))).causes
    assert (reached.level, reached.pattern) == ("info", "straight-through")
    (lost,) = (cause for cause in explain_cuts(stored(Cut("unreached", ("b",)), cut)).causes if cause.pattern)
    assert (lost.level, lost.names) == ("error", ("b",))
    assert lost.text == "the straight-through estimator bypasses b, and nothing else gives it a gradient"


def test_files_are_explained_without_torch(tmp_path: Path, clean_environment: dict[str, str]) -> None:
    import subprocess
    import sys

    path = tmp_path / "loss.gir"
    gradir.save(stored(Cut("unreached", ("b",))), path)
    code = (
        f"import sys; sys.modules['torch'] = None; from gradir.cli.main import main; main(['explain', {str(path)!r}])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=clean_environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("1 of 2 parameters is in the graph; 1 gets no gradient, which may be intended: ")


def test_the_graph_of_a_forward_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "forward.gir"
    graph = Graph.of([Node("w", role="parameter", names=("w",))], producer=Producer(options={"graph": "forward"}))
    gradir.save(graph, path)
    assert main(["explain", str(path)]) == 2
    assert capsys.readouterr().err == (
        f"gradir: {path}: a forward graph does not say where gradients flow; explain the program itself, or a graph "
        "captured with --flow or --graph joint\n"
    )


def test_an_overlay_is_written_for_the_graph_that_capture_gives(
    program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for graph, cuts in (("autograd", set()), ("forward", {"cut"})):
        capture = ["capture", f"{program}:loss", "-o", f"{graph}.gir", "--graph", graph]
        assert main(capture if graph == "forward" else [*capture, "--flow"]) == 0
        assert main(["explain", f"{program}:loss", "--overlay", f"{graph}.json", "--graph", graph]) == 1
        document = json.loads(Path(f"{graph}.json").read_text())
        assert [channel["name"] for channel in document["channels"]] == ["gradient", "status"]
        assert set(document["channels"][1]["values"].values()) - {"reached", "unused"} == cuts
        assert capsys.readouterr().out.splitlines()[0] == document["verdict"]
        assert document["look"] == "alarm"
        assert main(["export", f"{graph}.gir", "--to", "tree", "--overlay", f"{graph}.json"]) == 0
        assert "[gradient (norm): " in capsys.readouterr().out
    assert main(["explain", "autograd.gir", "--overlay", "file.json"]) == 1
    assert set(json.loads(Path("file.json").read_text())["channels"][0]["values"].values()) == {"reached"}
    assert main(["export", "autograd.gir", "--to", "dot", "--overlay", "file.json"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["net.py:loss", "--graph", "forward"], "--graph needs --overlay FILE"),
        (["net.py:lost", "--overlay", "o.json"], "net.py:lost: the explained program has no autograd graph"),
        (["a.gir", "--overlay", "a.gir"], "a.gir: is the input file"),
        (["a.gir", "--overlay", "o.json"], "a.gir: no parameter of the explanation is in the graph"),
        (["a.gir", "--overlay", "o.json", "--graph", "forward"], "--graph is for a program"),
        (["net.py:loss", "--overlay", "none/o.json"], "none/o.json: cannot be written"),
    ],
)
def test_an_overlay_that_cannot_be_is_one_line(
    arguments: list[str], message: str, program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.exists()
    Graph.of([Node("x")]).save("a.gir")
    assert main(["explain", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert line.replace(f"{Path.cwd()}/", "").startswith(f"gradir: {message}")
    assert not Path("o.json").exists()
