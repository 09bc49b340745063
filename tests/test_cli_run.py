"""``gradir run``: training scripts as they are, and the graph of one of their backwards."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import forked
import pytest
from training_scripts import ENDS, GAN, HF, LIGHTNING, LOOP, MODES, TOLD

torch = pytest.importorskip("torch")

from torch.nn.modules import module as hooks  # noqa: E402
from torch.overrides import _get_current_function_mode_stack as modes  # noqa: E402

import gradir  # noqa: E402
from gradir.cli.main import main  # noqa: E402

Read = pytest.CaptureFixture[str]


COMPILED = """\
import torch
from torch._dynamo.testing import CompileCounterWithBackend

counting = CompileCounterWithBackend("eager")
model = torch.nn.Linear(3, 2)
run = torch.compile(model, backend=counting)
with torch.device("cpu"):
    for _ in range(14):
        hidden = run(torch.ones(1, 3))
        hidden.sum().backward()
print("compiled", counting.frame_count)
"""


COMPILED_GRADIENT = """\
import torch

torch._dynamo.config.trace_autograd_ops = True


@torch.compile(backend="eager", fullgraph=True)
def slope(x):
    return torch.autograd.grad(x.sin().sum(), x)[0]


x = torch.zeros(1, requires_grad=True)
print(slope(x).item())
x.sum().backward()
"""


@pytest.fixture(autouse=True)
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the scripts, to be in; afterwards nothing of a run is left."""
    for name, text in {"loop": LOOP, "lit": LIGHTNING, "gan": GAN, "hf": HF, "ends": ENDS, "modes": MODES}.items():
        (tmp_path / f"{name}.py").write_text(text)
    package = tmp_path / "pack"
    package.mkdir()
    for place in (tmp_path / "told.py", package / "__init__.py", package / "told.py", package / "__main__.py"):
        place.write_text(TOLD if place.name != "__init__.py" else "")
    monkeypatch.chdir(tmp_path)
    before = _places()
    yield tmp_path
    assert _places() == before


def _places() -> list[object]:
    patched = [torch.Tensor.backward, torch.autograd.backward]
    noted = [len(hooks._global_forward_pre_hooks), len(hooks._global_forward_hooks), modes()]
    assert not [finder for finder in sys.meta_path if type(finder).__module__.startswith("gradir")]
    return [*patched, *noted, sys.argv, [*sys.path], sys.modules["__main__"]]


def ran(*words: str) -> int:
    """The exit status of a run in this process."""
    try:
        return main(["run", *words])
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else 1


def line_of(text: str, code: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if code in line)


def test_a_loop_with_arguments_is_captured_with_scopes_lines_and_variables(capfd: Read) -> None:
    assert ran("loop.py", "--width", "5", "-o", "loss.gir") == 0
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err == (
        "wrote loss.gir: 16 nodes, 15 edges, 37 parameter elements; loop.py ends here (--go-on lets it run on)\n"
    )
    graph = gradir.load("loss.gir")
    assert graph.nodes["a.weight"].outputs[0].shape == (5, 4)
    assert [(scope.path, scope.calls) for scope in graph.scopes.values()] == [("", 1), ("a", 1), ("b", 1)]
    source = graph.nodes["b/addmm:1"].source
    assert source is not None
    assert (source.file, source.line, source.function) == ("loop.py", line_of(LOOP, "self.b("), "Net.forward")
    assert graph.nodes["nll_loss:1"].names == ("loss",)
    assert main(["validate", "--strict", "loss.gir"]) == 0


@pytest.mark.filterwarnings("ignore:Using `torch.compile:UserWarning")
def test_a_run_compiles_nothing_anew(scripts: Path, capfd: Read) -> None:
    (scripts / "compiled.py").write_text(COMPILED)
    torch._dynamo.reset()
    assert ran("compiled.py", "--step", "13", "--go-on", "-o", "loss.gir") == 0
    assert capfd.readouterr().out == "compiled 1\n"
    nodes = gradir.load("loss.gir").nodes.values()
    lines = {node.source.line for node in nodes if node.source is not None}
    assert lines == {line_of(COMPILED, "run("), line_of(COMPILED, ".sum()")}
    torch._dynamo.reset()


def test_a_gradient_in_a_compiled_function_is_traced_as_ever(scripts: Path) -> None:
    (scripts / "compiled.py").write_text(COMPILED_GRADIENT)
    line = [sys.executable, "-m", "gradir", "run", "-o", "loss.gir", "--go-on", "compiled.py"]
    done = forked.run(line, text=True)
    assert (done.returncode, done.stdout) == (0, "1.0\n"), done.stderr


@pytest.mark.parametrize("step", ["1", "2", "13"])
def test_a_later_call_continues_and_changes_nothing_of_the_training(step: str, capfd: Read) -> None:
    done = forked.run([sys.executable, "loop.py"], text=True, check=True)
    assert ran("-o", "first.gir", "loop.py") == 0
    assert capfd.readouterr().out == ""
    assert ran("-o", "later.gir", "--go-on", "--step", step, "loop.py", "-o", "theirs") == 0
    assert capfd.readouterr() == (done.stdout, "wrote later.gir: 16 nodes, 15 edges, 58 parameter elements\n")
    assert not gradir.diff(gradir.load("first.gir"), gradir.load("later.gir"))
    assert not Path("theirs").exists()


def test_the_steps_of_a_module_are_named_by_whose_parts_they_call() -> None:
    assert ran("lit.py", "-o", "loss.gir", "--step", "2") == 0
    graph = gradir.load("loss.gir")
    calls = {scope.path: (scope.class_name, scope.calls) for scope in graph.scopes.values()}
    assert calls[""] == ("Lit", 0)
    assert {calls[path][1] for path in ("encoder", "encoder.0", "decoder", "criterion")} == {1}
    assert {"encoder.0/addmm:1", "decoder/addmm:1", "criterion/mse_loss:1"} <= set(graph.nodes)


@pytest.mark.parametrize(("step", "paths"), [("1", ["", ""]), ("3", ["d", "g"]), ("12", ["d", "g"])])
def test_operations_before_the_last_backward_have_their_module(step: str, paths: list[str]) -> None:
    assert ran("gan.py", "-o", "loss.gir", "--step", step) == 0
    graph = gradir.load("loss.gir")
    assert [scope.path for scope in graph.scopes.values()] == [*dict.fromkeys(paths)]
    assert all(scope.calls == 1 for scope in graph.scopes.values())
    assert [node.scope for node in graph.nodes.values() if node.op == "addmm"] == paths[::-1][: len(set(paths))]


def test_a_trainer_of_transformers(capfd: Read) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    assert ran("hf.py", "-o", "loss.gir") == 0
    assert "trained" not in capfd.readouterr().out
    graph = gradir.load("loss.gir")
    assert graph.scopes[""].class_name == "GPT2LMHeadModel"
    assert "transformer.h.0.attn.c_attn/addmm:1" in graph.nodes
    # Gradients are accumulated over two calls.
    assert ran("-o", "later.gir", "--go-on", "--step", "4", "hf.py") == 0
    assert "trained" in capfd.readouterr().out
    assert not gradir.diff(graph, gradir.load("later.gir"))


@pytest.mark.parametrize(
    ("name", "status", "out", "said"),
    [
        ("raises", 1, "", "RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x4 and 3x3)"),
        ("detached", 1, "", "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn"),
        ("leaves", 7, "", ""),
        ("says", 1, "", ""),
    ],
)
def test_a_script_that_fails_before_keeps_its_exit_status(
    name: str, status: int, out: str, said: str, capfd: Read
) -> None:
    assert ran("ends.py", name, "-o", "loss.gir") == status
    read = capfd.readouterr()
    *trace, last = read.err.splitlines()
    assert (read.out, last) == (
        out,
        "gradir: ends.py ended before call number 1 of backward; gradir wrote no file",
    )
    assert trace[-1:] == ([said] if said else [])
    assert bool(trace) is bool(said)
    if trace:
        assert trace[0] == "Traceback (most recent call last):"
        assert trace[1].endswith(f'ends.py", line {line_of(ENDS, "globals()")}, in <module>')
    assert not [line for line in trace if str(Path(gradir.__file__).parent) in line]
    assert not Path("loss.gir").exists()


def test_all_of_the_traceback_of_a_script_is_there_when_asked_for(capfd: Read) -> None:
    assert ran("-o", "loss.gir", "--traceback", "ends.py", "raises") == 1
    said = capfd.readouterr().err
    assert "gradir/spec.py" in said
    assert (
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x4 and 3x3)\ngradir: ends.py ended before " in said
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ends.py", "never"), "ends.py never called backward in this process; gradir wrote no file"),
        (("--step", "15", "gan.py"), "gan.py called backward 12 times, and --step is 15; gradir wrote no file"),
        (("absent.py",), "absent.py: cannot be run: No such file or directory"),
        (("-m", "absent.part"), "absent.part: no such module here"),
        (("-m", "pack.absent"), "pack.absent: no such module here"),
    ],
)
def test_without_a_backward_it_is_one_line_and_status_two(words: tuple[str, ...], said: str, capfd: Read) -> None:
    assert ran("-o", "loss.gir", *words) == 2
    assert capfd.readouterr() == ("", f"gradir: {said}\n")
    assert not Path("loss.gir").exists()


# A fork of this process, whose threads have run other tests' models, may wait for ever in backward.
@pytest.mark.usefixtures("scripts")
def test_a_backward_in_a_forked_child_does_not_count() -> None:
    done = forked.run([sys.executable, "-m", "gradir", "run", "-o", "loss.gir", "ends.py", "fork"], text=True)
    said = "gradir: ends.py never called backward in this process; gradir wrote no file\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)
    assert not Path("loss.gir").exists()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    ("name", "out"), [("swallows", "swallowed\n" * 3), ("unclean", ""), ("thread", ""), ("moves", ""), ("several", "")]
)
def test_whatever_a_script_does_as_it_is_stopped_the_file_is_there(
    name: str, out: str, capfd: Read, scripts: Path
) -> None:
    try:
        assert ran("ends.py", name, "-o", "loss.gir") == 0
    finally:
        __import__("os").chdir(scripts)
    read = capfd.readouterr()
    assert read.out == out
    assert read.err.startswith("wrote loss.gir: ")
    assert read.err.count("\n") == 1
    outputs = [node.id for node in gradir.load("loss.gir").nodes.values() if node.role == "output"]
    assert outputs == (["output:0", "output:1"] if name == "several" else ["output"])


def test_a_script_that_fails_after_it_was_captured_keeps_file_and_status(capfd: Read) -> None:
    assert ran("-o", "loss.gir", "--go-on", "ends.py", "late") == 1
    assert capfd.readouterr().err.endswith("\nValueError: late\n")
    assert "addmm:1" in gradir.load("loss.gir").nodes


def test_calls_inside_another_do_not_count() -> None:
    assert ran("-o", "loss.gir", "--step", "2", "ends.py", "nested") == 0
    assert "sin:1" in gradir.load("loss.gir").nodes


@pytest.mark.parametrize("step", ["1", "12", "18"])
def test_the_modes_of_a_script_stay_its_own(step: str, capfd: Read) -> None:
    assert ran("-o", "loss.gir", "--go-on", "--step", step, "modes.py") == 0
    assert capfd.readouterr().out == "DeviceContext\n" * 12 + "[]\n"
    assert gradir.load("loss.gir").nodes["sum:1"].source is not None


def test_a_dry_backward_and_the_one_of_the_script_do_not_go_together(capfd: Read) -> None:
    assert ran("-o", "loss.gir", "--go-on", "--collectives", "loop.py") == 2
    assert "cannot use --collectives with --go-on" in capfd.readouterr().err


def test_a_dry_backward_that_fails_names_the_way_out(
    scripts: Path, capfd: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    (scripts / "raises.py").write_text(
        "import torch\n"
        "loss = torch.ones(2, requires_grad=True).exp()\n"
        "loss.register_hook(lambda gradient: 1 / 0)\n"
        "loss.sum().backward()\n"
    )
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert ran("-o", "{rank}.gir", "raises.py") == 2
    assert "division by zero; --no-collectives captures the graph alone" in capfd.readouterr().err
    assert ran("-o", "{rank}.gir", "--no-collectives", "raises.py") == 0
    assert gradir.load("1.gir").rank is None


@pytest.mark.parametrize("go_on", [False, True])
def test_a_file_that_cannot_be_written_any_more_is_trouble(go_on: bool, scripts: Path, capfd: Read) -> None:
    (scripts / "out").mkdir()
    (scripts / "gone.py").write_text(f"import pathlib\npathlib.Path('out').rmdir()\n{LOOP}")
    assert ran("-o", "out/loss.gir", *["--go-on"] * go_on, "gone.py", "--steps", "1") == 2
    read = capfd.readouterr()
    assert read.err == "gradir: out/loss.gir: cannot be written: No such file or directory\n"
    assert bool(read.out) is go_on


@pytest.mark.parametrize("makes_it", [True, False])
def test_a_script_may_make_the_folder_of_the_file(makes_it: bool, scripts: Path, capfd: Read) -> None:
    made = "import pathlib\npathlib.Path('new/by').mkdir(parents=True)\n" if makes_it else ""
    (scripts / "makes.py").write_text(f"{made}{LOOP}")
    assert ran("-o", "new/by/loss.gir", "makes.py", "--steps", "1") == (0 if makes_it else 2)
    told, *rest = capfd.readouterr().err.splitlines()
    assert told == "gradir: new/by does not exist yet: makes.py must create it"
    if makes_it:
        assert "addmm" in {node.op for node in gradir.load("new/by/loss.gir").nodes.values()}
    else:
        assert rest == ["gradir: new/by/loss.gir: cannot be written: No such file or directory"]
        assert not (scripts / "new").exists()


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ("loop.py/loss.gir", "Not a directory"),
        ("pack", "Is a directory"),
        ("new/", "Is a directory"),
        ("", "no file can have this name"),
    ],
)
def test_a_place_that_nothing_can_be_written_to_is_reported_before_the_script_runs(
    output: str, why: str, capfd: Read
) -> None:
    assert ran("-o", output, "--go-on", "loop.py", "--steps", "1") == 2
    assert capfd.readouterr() == ("", f"gradir: {output or repr('')}: cannot be written: {why}\n")


def test_a_folder_that_may_not_be_written_to_is_reported_before_the_script_runs(
    scripts: Path, capfd: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    (scripts / "closed").mkdir()
    may = os.access
    # Root may write anywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: "closed" not in str(path) and may(path, mode))
    assert ran("-o", "closed/loss.gir", "loop.py", "--steps", "1") == 2
    assert capfd.readouterr() == ("", "gradir: closed/loss.gir: cannot be written: Permission denied\n")


def test_standard_output_has_the_file_alone(capfd: Read) -> None:
    assert ran("-o", "-", "--go-on", "loop.py", "--steps", "1") == 0
    read = capfd.readouterr()
    assert "b/addmm:1" in gradir.loads(read.out.encode()).nodes
    assert read.err.startswith("0 ")


@pytest.mark.parametrize(
    "words", [["told.py", "--lr", "1"], ["-m", "pack.told", "x"], ["-m", "pack", "x"], ["pack", "x"], ["./told.py"]]
)
def test_a_script_finds_itself_as_under_python(words: list[str]) -> None:
    done = forked.run([sys.executable, "-m", "gradir", "run", "-o", "loss.gir", *words], text=True, input="typed")
    assert done.returncode == 2, done.stderr
    under_python = subprocess.run(
        [sys.executable, *words], text=True, input="typed", capture_output=True, check=True
    ).stdout
    assert "typed" in under_python
    assert done.stdout == under_python


@pytest.mark.parametrize(
    ("line", "given"),
    [
        ("-o a.gir told.py --lr 1 -o b -- c", ["--lr", "1", "-o", "b", "--", "c"]),
        ("told.py --lr=1 -x --compress none -o a.gir --step 2", ["--lr=1", "-x"]),
        ("told.py -o a.gir --step=2 -- -o b --step 3", ["-o", "b", "--step", "3"]),
        ("--step 3 --go-on told.py --st 1 -oout --out x -o a.gir", ["--st", "1", "-oout", "--out", "x"]),
        ("-o a.gir told.py --help", ["--help"]),
    ],
)
def test_options_belong_to_gradir_or_the_script(
    line: str, given: list[str], capfd: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert ran(*line.split()) == 2
    assert capfd.readouterr().out.startswith(str(["told.py", *given]))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("told.py", "missing output file: put -o FILE before told.py, or at the end of the line"),
        (
            "told.py -o a.gir --steps 3",
            "-o belongs to told.py here: put -o FILE before told.py, or at the end of the line",
        ),
        ("told.py -o a -o b", "-o is given twice; if one is for told.py, put that of gradir before told.py"),
        ("told.py x -o a -- b", "x is not an option of gradir; put arguments of told.py after '--'"),
        ("-o a.gir", "the following arguments are required: SCRIPT"),
        ("--step 0 told.py", "argument --step: expected integer, 1 or more, not '0'"),
    ],
)
def test_a_wrong_command_line_is_one_line(line: str, said: str, capfd: Read) -> None:
    assert ran(*line.split()) == 2
    assert capfd.readouterr() == ("", f"gradir: {said}; see gradir run --help\n")
