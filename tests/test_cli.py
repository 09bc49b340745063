from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from exporter_names import BUILT_IN
from samples import chain, everything

import gradir

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path, clean_environment: dict[str, str]) -> Run:
    """Run the gradir command in a fresh directory that holds everything.gir."""
    gradir.save(everything(), tmp_path / "everything.gir")

    def call(*arguments: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "gradir", *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=clean_environment, capture_output=True, text=True, input=input, check=False
        )

    return call


def fails(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert done.stderr.startswith("gradir: ")
    assert done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr


def test_version_and_help(run: Run) -> None:
    assert run("--version").stdout == f"gradir {gradir.__version__}\n"
    top = run("--help").stdout
    for command in ("capture", "export", "diff", "info", "summary", "validate", "convert", "exporters"):
        assert command in top
        assert run(command, "--help").stdout.startswith(f"usage: gradir {command}")


@pytest.mark.parametrize(
    "arguments", [[], ["nonsense"], ["export", "everything.gir"], ["info"], ["summary"], ["diff", "a"]]
)
def test_a_wrong_command_line_is_one_line(run: Run, arguments: list[str]) -> None:
    fails(run(*arguments), "--help")


def test_info(run: Run, golden: Callable[[str, str], None]) -> None:
    done = run("info", "everything.gir")
    assert (done.returncode, done.stderr) == (0, "")
    golden("cli/info.txt", done.stdout)


def test_validate(run: Run, tmp_path: Path) -> None:
    assert run("validate", "everything.gir").stdout == "everything.gir: valid, 10 nodes\n"
    assert run("validate", "--strict", "everything.gir").returncode == 0
    (tmp_path / "loose.gir").write_bytes((tmp_path / "everything.gir").read_bytes() + b" ")
    assert run("validate", "loose.gir").returncode == 0
    fails(run("validate", "--strict", "loose.gir"), "loose.gir", "not in canonical form")


@pytest.mark.parametrize("command", ["info", "summary", "validate", "export", "diff"])
def test_bad_files_are_one_line(run: Run, tmp_path: Path, command: str) -> None:
    more = {"export": ["--to", "plain"], "diff": ["everything.gir"]}.get(command, [])
    (tmp_path / "text.gir").write_text("digraph {}")
    (tmp_path / "empty.gir").touch()
    (tmp_path / "cut.gir").write_bytes((tmp_path / "everything.gir").read_bytes()[:500])
    fails(run(command, "missing.gir", *more), "missing.gir: cannot be read: No such file or directory")
    fails(run(command, "text.gir", *more), "text.gir: not a GIR document")
    fails(run(command, "empty.gir", *more), "empty.gir: the file is empty")
    fails(run(command, "cut.gir", *more), "cut.gir: byte 500: broken JSON: it was truncated")
    fails(run(command, ".", *more), ".: cannot be read: Is a directory")


def test_export_to_a_file_and_to_stdout(run: Run, tmp_path: Path) -> None:
    printed = run("export", "everything.gir", "--to", "plain")
    assert run("export", "everything.gir", "--to", "plain", "-o", "x.txt").stdout == ""
    assert (tmp_path / "x.txt").read_text() == printed.stdout
    assert len(printed.stdout) > 100


def test_export_reads_stdin(run: Run, tmp_path: Path) -> None:
    text = (tmp_path / "everything.gir").read_text()
    assert (
        run("export", "-", "--to", "plain", input=text).stdout
        == run("export", "everything.gir", "--to", "plain").stdout
    )


def test_export_folds_with_depth(run: Run) -> None:
    full, folded = (run("export", "everything.gir", "--to", "plain", *more).stdout for more in ([], ["--depth", "1"]))
    assert "fc/addmm:1 " in full
    assert "fc/addmm:1 " not in folded


def test_export_errors_are_one_line(run: Run, tmp_path: Path) -> None:
    fails(run("export", "everything.gir", "--to", "mermiad"), "did you mean 'mermaid'", *BUILT_IN)
    fails(run("export", "everything.gir", "--to", "dot", "-O", "colour=red"), "no option 'colour'", "its options are")
    fails(run("export", "everything.gir", "--to", "dot", "-O", "direction=UP"), "direction")
    fails(run("export", "everything.gir", "--to", "dot", "-O", "direction"), "KEY=VALUE")
    fails(run("export", "everything.gir", "--to", "dot", "--depth", "-1"), "0 or more")
    fails(run("export", "everything.gir", "--to", "dot", "-o", "no/such/dir.dot"), "no/such/dir.dot: cannot be written")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["everything.gir"]


def test_summary_is_what_the_exporter_writes(run: Run, tmp_path: Path) -> None:
    for options in ({}, {"depth": "0"}, {"style": "json"}, {"depth": "1", "style": "csv"}):
        given = [word for name, value in options.items() for word in (f"--{name}", value)]
        done = run("summary", "everything.gir", *given)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == gradir.export(everything(), "summary", **options)
    text = (tmp_path / "everything.gir").read_text()
    assert run("summary", "-", "--style", "markdown", "-o", "x.md", input=text).stdout == ""
    assert (tmp_path / "x.md").read_text() == gradir.export(everything(), "summary", style="markdown")


def test_summary_errors_are_one_line(run: Run, tmp_path: Path) -> None:
    fails(run("summary", "everything.gir", "--style", "latex"), "style is csv|json|markdown|table, not 'latex'")
    fails(run("summary", "everything.gir", "--depth", "-1"), "depth is integer, not '-1' (Expected")
    fails(run("summary", "missing.gir", "--depth", "deep"), "depth is integer, not 'deep'")
    fails(run("summary", "everything.gir", "-o", "no/such.txt"), "no/such.txt: cannot be written")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["everything.gir"]


def test_a_full_disk_behind_stdout_is_one_line(tmp_path: Path, clean_environment: dict[str, str]) -> None:
    gradir.save(everything(), tmp_path / "a.gir")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gradir", "export", "a.gir", "--to", "plain"],
            cwd=tmp_path,
            env=clean_environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (
        2,
        "gradir: standard output: cannot be written: No space left on device\n",
    )


@pytest.mark.parametrize("words", ["exporters", "validate a.gir", "--help", "export --to dot --help", "summary a.gir"])
def test_a_full_disk_behind_what_is_printed_is_one_line(
    words: str, tmp_path: Path, clean_environment: dict[str, str]
) -> None:
    expected = "gradir: standard output: cannot be written: No space left on device\n"
    for unbuffered in ("", "1"):
        environment = clean_environment | {"PYTHONUNBUFFERED": unbuffered}
        done = in_shell(f"{words} > /dev/full", tmp_path, environment)
        assert (done.returncode, done.stderr) == (2, expected)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("info - <&-", "standard input: cannot be read: it is closed"),
        ("info a.gir >&-", "standard output: cannot be written: it is closed"),
        ("exporters >&-", "standard output: cannot be written: it is closed"),
        ("validate a.gir >&-", "standard output: cannot be written: it is closed"),
    ],
)
def test_a_closed_stream_is_one_line(words: str, said: str, tmp_path: Path, clean_environment: dict[str, str]) -> None:
    done = in_shell(words, tmp_path, clean_environment)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"gradir: {said}\n")


def test_a_command_that_prints_nothing_needs_no_stream(tmp_path: Path, clean_environment: dict[str, str]) -> None:
    done = in_shell("convert a.gir b.gir <&- >&- 2>&-", tmp_path, clean_environment)
    assert done.returncode == 0
    assert gradir.load(tmp_path / "b.gir") == everything()


def in_shell(words: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run gradir with the redirections of a shell, in a folder that then holds a.gir."""
    gradir.save(everything(), folder / "a.gir")
    line = ["bash", "-c", f"{sys.executable} -m gradir {words}"]
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", ["", "export", "summary", "diff", "view"])
def test_help_needs_no_encoding(command: str, tmp_path: Path, clean_environment: dict[str, str]) -> None:
    done = in_shell(f"{command} --help", tmp_path, clean_environment | {"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: gradir")


def test_a_warning_that_is_an_error_is_one_line(tmp_path: Path, clean_environment: dict[str, str]) -> None:
    (tmp_path / "new.gir").write_bytes(gradir.dumps(everything()).replace(b'"version":"1.1"', b'"version":"1.7"'))
    for command in ("info", "validate"):
        line = [sys.executable, "-W", "error", "-m", "gradir", command, "new.gir"]
        done = subprocess.run(line, cwd=tmp_path, env=clean_environment, capture_output=True, text=True, check=False)
        fails(done, "GIR version 1.7 is newer than 1.1")
        assert "internal" not in done.stderr


def test_a_wrong_value_names_the_right_ones(run: Run) -> None:
    fails(
        run("export", "everything.gir", "--to", "dot", "-O", "show_saved=maybe"),
        "show_saved is true|false, not 'maybe'",
    )
    fails(run("export", "everything.gir", "--to", "dot", "-O", "direction=UP"), "direction is BT|LR|RL|TB, not 'UP'")
    fails(
        run("export", "everything.gir", "--to", "tree", "-O", "max_depth=0"), "max_depth is integer, not '0' (Expected"
    )


def test_exporters_lists_names_and_options(run: Run) -> None:
    done = run("exporters")
    assert [line.split()[0] for line in done.stdout.splitlines() if not line.startswith(" ")] == sorted(
        [*BUILT_IN, *(["edges"] if "\nedges" in done.stdout else [])]
    )
    assert "direction=BT|LR|RL|TB" in done.stdout


def test_diff_statuses(run: Run, tmp_path: Path) -> None:
    gradir.save(chain(3), tmp_path / "a.gir")
    gradir.save(chain(4), tmp_path / "b.gir")
    assert run("diff", "a.gir", "a.gir").returncode == 0
    different = run("diff", "a.gir", "b.gir")
    assert different.returncode == 1
    assert "add:4" in different.stdout
    assert run("diff", "a.gir", "b.gir", "--exit-zero").returncode == 0
    assert run("diff", "a.gir", "b.gir", "--format", "json").stdout.startswith("{")
    assert "\x1b[" in run("diff", "a.gir", "b.gir", "--color", "always").stdout
    assert "\x1b[" not in different.stdout


def test_a_closed_pipe_is_quiet(tmp_path: Path, clean_environment: dict[str, str]) -> None:
    gradir.save(chain(50_000), tmp_path / "a.gir")
    command = f"{sys.executable} -m gradir export a.gir --to plain | head -1"
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=clean_environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


SPEC_FILE = """
import torch
from torch import nn

tensor = torch.ones(2, requires_grad=True).exp()
number = 3

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.emb = nn.Embedding(5, 3)

    def forward(self, x, ids=None):
        if ids is not None:
            print("hello from forward")
        return {"y": self.fc(x if ids is None else self.emb(ids) + x), "none": None, "count": torch.ones(1)}

instance = Net()

def factory():
    return Net()

def loss():
    net = Net()
    return net, net(torch.ones(1, 3))["y"].sum()

def alone():
    return Net()(torch.ones(1, 3))["y"].sum()

def detached():
    return tensor.detach()

def raises():
    raise ValueError("a problem\\nin two lines")

def leaves():
    raise SystemExit(3)
"""


@pytest.fixture
def spec(run: Run, tmp_path: Path) -> Run:
    """Run `gradir capture` on the attributes of a SPEC file."""
    pytest.importorskip("torch")
    (tmp_path / "spec.py").write_text(SPEC_FILE)
    (tmp_path / "broken.py").write_text("import torch\n1 / 0\n")
    return lambda attribute, *more: run("capture", attribute if ":" in attribute else f"spec.py:{attribute}", *more)


def test_capture_a_tensor_to_stdout(spec: Run) -> None:
    done = spec("tensor")
    assert (done.returncode, done.stderr) == (0, "")
    assert list(gradir.loads(done.stdout.encode()).nodes) == ["leaf:1", "leaf:1/accumulate_grad:1", "exp:1", "output"]


def test_capture_a_callable_with_its_model(spec: Run, tmp_path: Path) -> None:
    done = spec("loss", "-o", "x.gir")
    assert done.returncode == 0
    graph = gradir.load(tmp_path / "x.gir")
    assert {"fc.weight", "fc/addmm:1", "sum:1", "output"} <= set(graph.nodes)
    assert [cut.names for cut in graph.cuts] == [("emb.weight",)]
    assert "wrote x.gir: " in done.stderr


def test_capture_a_callable_finds_the_model_that_ran(spec: Run) -> None:
    assert "fc/addmm:1" in gradir.loads(spec("alone").stdout.encode()).nodes


@pytest.mark.parametrize("attribute", ["Net", "instance", "factory"])
def test_capture_a_module_on_inputs(spec: Run, attribute: str) -> None:
    done = spec(attribute, "--input", "float32[4,3]", "--input", "ids=int64[4]")
    graph = gradir.loads(done.stdout.encode())
    assert {"fc/addmm:1", "emb/embedding:1", "output:y"} <= set(graph.nodes)
    assert "hello from forward" in done.stderr


def test_capture_fake_and_verified_writes_the_same_bytes(spec: Run) -> None:
    plain = spec("loss")
    verified = spec("loss", "--verify")
    assert verified.stdout == spec("loss", "--fake").stdout == plain.stdout
    assert re.search(r"verified spec\.py:loss: \d+ functions, \d+ edges, \d+ fired, 0 mismatches", verified.stderr)


def test_capture_from_a_module_name(spec: Run) -> None:
    assert spec("spec:tensor").stdout == spec("spec.py:tensor").stdout


def test_capture_errors_are_one_line(spec: Run, tmp_path: Path) -> None:
    fails(spec("missing.py:x"), "missing.py: no such file")
    fails(spec("no_such_module:x"), "no_such_module: no such module")
    fails(spec("nothing"), "spec.py has no attribute 'nothing'", "factory", "loss")
    fails(spec("broken.py:x"), "broken.py raised ZeroDivisionError: division by zero")
    fails(spec("raises"), "raises raised ValueError: a problem in two lines")
    fails(spec("leaves"), "leaves raised SystemExit: 3")
    fails(spec("detached"), "spec.py:detached: the output has no graph")
    fails(spec("number"), "the output is not a tensor but int")
    fails(spec("Net"), "Net is a module", "--input")
    fails(spec("Net", "--input", "float32"), "--input 'float32'", "dtype[sizes]")
    fails(spec("Net", "--input", "float33[1]"), "no dtype 'float33'")
    fails(spec("Net", "--input", "float32[1,,2]"), "integers separated by commas")
    fails(spec("Net", "--input", "float32[99999999,99999999]"), "--input 'float32[99999999,99999999]'")
    fails(spec("Net", "--input", "float32[1,7]"), "Net raised RuntimeError")
    fails(spec("tensor", "--input", "float32[1]"), "--input is for a module")
    fails(spec("instance", "--fake", "--input", "float32[1,3]"), "--fake runs what has no data yet")
    fails(spec("tensor", "--frontend", "jaks"), "unknown front-end 'jaks'", "torch")
    fails(spec("tensor", "-o", "no/such.gir"), "no/such.gir: cannot be written")
    assert not list(tmp_path.glob("*.gir.*"))


def test_a_spec_without_an_attribute_is_one_line(run: Run) -> None:
    pytest.importorskip("torch")
    for text in ("spec.py", "spec.py:", ":x", ""):
        fails(run("capture", text), "path/to/file.py:attr")


NOISY = """
import atexit, os, sys, threading, time, asyncio
import torch

class Raises(BaseException):
    def __str__(self):
        raise ValueError

w = torch.randn(2, requires_grad=True)
seeded = w.exp().sum() if float(w.detach()[0]) > 0 else w.sin().sum()

def noisy():
    print("python")
    os.write(1, b"descriptor\\n")
    os.system("echo child")
    sys.__stdout__.write("kept\\n")
    atexit.register(print, "late")
    return torch.ones(2, requires_grad=True).exp()

def moves():
    os.chdir("/")
    return torch.ones(2, requires_grad=True).exp()

def cancelled():
    raise asyncio.CancelledError

def odd():
    raise Raises

class Lazy:
    @property
    def loss(self):
        raise KeyError("no")

lazy = Lazy()
"""


@pytest.fixture
def noisy(spec: Run, run: Run, tmp_path: Path) -> Run:
    """Run commands where noisy.py is."""
    (tmp_path / "noisy.py").write_text(NOISY)
    return run


def test_nothing_that_a_program_prints_gets_into_the_file(noisy: Run) -> None:
    done = noisy("capture", "noisy.py:noisy")
    assert done.returncode == 0
    assert "exp:1" in gradir.loads(done.stdout.encode()).nodes
    for word in ("python", "descriptor", "child", "kept", "late"):
        assert word in done.stderr


def test_a_program_that_changes_the_directory_moves_no_file(noisy: Run, tmp_path: Path) -> None:
    assert noisy("capture", "noisy.py:moves", "-o", "here.gir").returncode == 0
    assert (tmp_path / "here.gir").exists()
    assert noisy("check", "noisy.py:moves", "--against", "there.gir", "--update").returncode == 0
    assert (tmp_path / "there.gir").exists()
    assert noisy("check", "noisy.py:moves", "--against", "there.gir").returncode == 0


@pytest.mark.parametrize(
    ("attribute", "said"),
    [("cancelled", "raised CancelledError"), ("odd", "raised Raises"), ("lazy.loss", "raised KeyError: 'no'")],
)
def test_whatever_a_program_raises_is_one_line(noisy: Run, attribute: str, said: str) -> None:
    fails(noisy("capture", f"noisy.py:{attribute}"), said)


def test_the_seed_reaches_what_is_made_at_import(noisy: Run) -> None:
    graphs = {seed: [noisy("capture", "noisy.py:seeded", "--seed", seed).stdout for _ in range(2)] for seed in "04"}
    assert all(first == second for first, second in graphs.values())
    assert len({text for pair in graphs.values() for text in pair}) == 2
    fails(noisy("capture", "noisy.py:seeded", "--seed", "99999999999999999999"), "a seed is from 0 to")


def test_a_file_with_source_lines_is_checked_with_source_lines(noisy: Run) -> None:
    assert noisy("capture", "noisy.py:moves", "--sources", "-o", "s.gir").returncode == 0
    done = noisy("check", "noisy.py:moves", "--against", "s.gir")
    assert (done.returncode, done.stdout) == (0, "no difference\n")
