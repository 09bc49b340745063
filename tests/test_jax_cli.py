"""The commands on programs of JAX: the examples, factories, functions with inputs, modules, errors."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

for package in ("jax", "flax", "equinox"):
    pytest.importorskip(package)

import jax_told  # noqa: E402
from command_line import runner  # noqa: E402

import gradir  # noqa: E402
from gradir.cli import main  # noqa: E402

ROOT = Path(__file__).parents[1]

EXAMPLES = {
    "jax_mlp.py:loss": ("b1 b2 w1 w2", 97),
    "jax_mlp.py:distilled": ("student.b1 student.b2 student.w1 student.w2", 194),
    "jax_gpt.py:loss": (None, 232_576),
    "jax_gpt.py:scanned": (None, 232_576),
}
INPUTS = {
    "jax_mlp.py:score": (["float32[16]", "float32[4,16]"], "w"),
    "jax_modules.py:Linen": (["float32[8,4]"], "head.bias head.kernel hidden.bias hidden.kernel"),
    "jax_modules.py:Nnx": (["float32[8,4]"], "head.bias head.kernel hidden.bias hidden.kernel"),
    "jax_modules.py:Equinox": (["float32[4]"], "head.bias head.weight hidden.bias hidden.weight"),
}


def gradir_command(*words: str) -> int:
    """The exit status of a command in this process."""
    return main([*words]) or 0


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("spec", EXAMPLES)
def test_an_example_is_captured_and_verified(spec: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gradir_command("capture", f"examples/{spec}", "--verify", "-o", str(tmp_path / "a.gir")) == 0
    assert ", 0 mismatches" in capsys.readouterr().err
    graph = gradir.load(tmp_path / "a.gir")
    names, elements = EXAMPLES[spec]
    assert graph.scopes[""].total == elements
    assert names is None or jax_told.names(graph, "parameter") == names
    assert graph.producer is not None
    assert graph.producer.framework == "jax"


@pytest.mark.parametrize("spec", INPUTS)
def test_an_example_is_captured_on_inputs(spec: str, tmp_path: Path) -> None:
    inputs, names = INPUTS[spec]
    words = [word for text in inputs for word in ("--input", text)]
    assert gradir_command("capture", f"examples/{spec}", *words, "-o", str(tmp_path / "a.gir")) == 0
    graph = gradir.load(tmp_path / "a.gir")
    assert jax_told.names(graph, "parameter") == names
    if "modules" in spec:
        assert graph.scopes[""].class_name == spec.rpartition(":")[2]
        assert {"hidden", "head"} <= set(graph.scopes)


def test_the_readme_and_the_docstrings_name_these_examples() -> None:
    named = set()
    for document in (ROOT / "examples").glob("jax_*.py"):
        named |= set(re.findall(r"examples/(jax_\w+\.py:\w+)", document.read_text(encoding="utf-8")))
    for row in re.findall(
        r"^\| (`jax_.*?) \|", (ROOT / "examples/README.md").read_text(encoding="utf-8"), re.MULTILINE
    ):
        file, *names = re.findall(r"`?([\w.]+\.py|:\w+)`", row.replace(".py:", ".py`:"))
        named |= {file + name for name in names}
    assert named == {*EXAMPLES, *INPUTS}


def test_a_scanned_gpt_is_the_unrolled_one_with_rounds(tmp_path: Path) -> None:
    for name in ("loss", "scanned"):
        gradir_command("capture", f"examples/jax_gpt.py:{name}", "-o", str(tmp_path / f"{name}.gir"))
    unrolled, scanned = (gradir.load(tmp_path / f"{name}.gir") for name in ("loss", "scanned"))
    assert unrolled.scopes[""].total == scanned.scopes[""].total
    assert {path: scope.rounds for path, scope in scanned.scopes.items() if scope.rounds} == {
        "layers.attn": 4,
        "layers.mlp": 4,
    }
    assert len(scanned.nodes) < len(unrolled.nodes) / 2
    assert jax_told.sum_held_bytes(scanned) < jax_told.sum_held_bytes(unrolled) / 2


def test_explain_ends_in_the_line_that_cuts(capsys: pytest.CaptureFixture[str]) -> None:
    assert gradir_command("explain", "examples/jax_mlp.py:distilled") == 1
    text = capsys.readouterr().out
    line = next(
        number
        for number, words in enumerate((ROOT / "examples/jax_mlp.py").read_text().splitlines(), 1)
        if "stop_gradient(" in words
    )
    assert "4 of 8 parameters get no gradient: stop_gradient cuts all of teacher" in text
    assert f"  --> examples/jax_mlp.py:{line} in distillation" in text


def test_every_form_of_export_and_a_summary_come_straight_from_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    for form in ("tree", "mermaid", "dot"):
        assert gradir_command("export", "examples/jax_mlp.py:loss", "--to", form) == 0
        assert "tanh" in capsys.readouterr().out
    assert gradir_command("export", "examples/jax_mlp.py:loss", "--to", "summary") == 0
    assert "97" in capsys.readouterr().out


PROGRAM = """
import jax, jax.numpy as jnp

S = jax.ShapeDtypeStruct

def loss(w, x):
    return jnp.tanh(x @ w).sum()

def both():
    return loss, (S((3, 3), jnp.float32), S((2, 3), jnp.float32)), {"argnums": (0, 1)}

def beside():
    return (lambda w: (w.sum(), w)), (S((3,), jnp.float32),), {"has_aux": True}

def number():
    return 3

def raising():
    raise ValueError("a problem\\nin two lines")

def looping(w):
    return jax.lax.while_loop(lambda s: s.sum() < 9, lambda s: s * w, w).sum()
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "jax_program.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    return "jax_program.py"


def test_a_factory_hands_over_options_of_the_gradient(program: str, tmp_path: Path) -> None:
    assert gradir_command("capture", f"{program}:both", "-o", "both.gir") == 0
    assert jax_told.names(gradir.load("both.gir"), "parameter") == "w x"
    assert gradir_command("capture", f"{program}:beside", "-o", "beside.gir") == 0
    assert [node.id for node in gradir.load("beside.gir").outputs] == ["output"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["loss"], "loss takes arguments: describe them, such as --input 'float32[4,8]'"),
        (["loss", "--input", "int32[3,3]", "--input", "float32[2,3]"], "loss has nothing to differentiate"),
        (["loss", "--input", "float32[3,3]"], "loss does not take these inputs"),
        (["loss", "--input", "none[3,3]", "--input", "float32[2,3]"], "JAX has no dtype 'none'"),
        (["number"], "number returned an object of type int; expected a module, (fn, args)"),
        (
            ["looping", "--input", "float32[3]"],
            "while at jax_program.py:22: Reverse-mode differentiation does not work",
        ),
        (["both", "--flow"], "front-end 'jax' cannot record every operation of a forward (--flow)"),
        (["both", "--graph", "forward"], "front-end 'jax' cannot capture a forward (--graph forward)"),
        (["both", "--input", "float32[3]"], "both has arguments of its own"),
    ],
)
def test_a_wrong_program_is_one_line(
    program: str, words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *more = words
    assert gradir_command("capture", f"{program}:{name}", *more) == 2
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.startswith("gradir: ")
    assert written.err.count("\n") == 1
    assert told in written.err


def test_a_program_that_raises_is_shown_without_gradirs_part(
    program: str, tmp_path: Path, clean_environment: dict[str, str]
) -> None:
    done = runner(tmp_path, clean_environment)("capture", f"{program}:raising")
    assert done.returncode == 2
    assert str(Path(gradir.__file__).parent) not in done.stderr
    assert done.stderr.splitlines()[-1].endswith("raising raised ValueError: a problem in two lines")


def test_the_benchmark_runs(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "jax_capture.py"), "--smoke"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    tables = [part.splitlines() for part in done.stdout.strip().split("\n\n")]
    assert [len(lines) for lines in tables] == [3, 4]
    assert all(len(line.split("|")) == len(lines[0].split("|")) for lines in tables for line in lines)
