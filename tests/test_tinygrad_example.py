"""The front-end of examples/tinygrad_frontend captures, and every command works on what it captured."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from plugins import register

import gradir
from gradir.registry import exporter_names

pytest.importorskip("tinygrad")

EXAMPLE = Path(__file__).parents[1] / "examples" / "tinygrad_frontend"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with the graphs of both programs, and what the commands printed."""
    folder = tmp_path_factory.mktemp("tinygrad")
    register(folder, "tinygrad", "gradir_tinygrad:TinygradFrontend", "gradir.frontends")
    paths = os.pathsep.join([str(folder), str(EXAMPLE), os.environ.get("PYTHONPATH", "")])
    # No kernel is compiled, so a machine without a compiler will do.
    environment = {**os.environ, "PYTHONPATH": paths, "DEV": "CPU"}
    code = (
        "import sys\nfrom gradir.cli import main\n"
        "again, batch = ['loss_again'], ['batch', '--input', 'float32[3,4]']\n"
        "for out, *more in [['loss', '--verify'], ['edited', '--verify'], again, batch]:\n"
        "    program = 'mlp.py:' + out.partition('_')[0]\n"
        "    assert main(['capture', program, '-o', f'{sys.argv[1]}/{out}.gir', *more]) == 0\n"
        "assert main(['explain', 'mlp.py:edited', '-o', f'{sys.argv[1]}/edited.txt']) == 1\n"
    )
    command = [sys.executable, "-c", code, str(folder)]
    done = subprocess.run(
        command, cwd=EXAMPLE, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder, done.stdout + done.stderr


@pytest.fixture(scope="module")
def graphs(told: tuple[Path, str]) -> tuple[gradir.Graph, gradir.Graph]:
    loss, edited = (gradir.load(told[0] / f"{name}.gir") for name in ("loss", "edited"))
    return loss, edited


def test_tinygrad_builds_the_gradients_that_were_captured(told: tuple[Path, str]) -> None:
    lines = [line for line in told[1].splitlines() if line.startswith("verified")]
    assert len(lines) == 2
    for line in lines:
        words = line.replace(",", "").split()
        assert words[2] == words[6] != "0", line
        assert line.endswith(" 0 mismatches")


def test_the_same_program_gives_the_same_bytes(told: tuple[Path, str]) -> None:
    assert (told[0] / "loss.gir").read_bytes() == (told[0] / "loss_again.gir").read_bytes()


def test_a_program_runs_on_an_input_and_is_explained_without_a_line_about_both(told: tuple[Path, str]) -> None:
    ops = [
        Counter(node.op for node in gradir.load(told[0] / f"{name}.gir").nodes.values()) for name in ("loss", "batch")
    ]
    assert ops[0] == ops[1]
    lines = (told[0] / "edited.txt").read_text().splitlines()
    assert lines[0].startswith("4 of 6 parameters get no gradient, 1 of them because stop_gradient cuts first.weight")
    assert any(line.startswith("info[unused]") and "spare" in line for line in lines)


def test_parameters_have_the_names_of_the_model(graphs: tuple[gradir.Graph, gradir.Graph]) -> None:
    loss, _ = graphs
    assert {node.id: str(node.outputs[0]) for node in loss.nodes.values() if node.role == "parameter"} == {
        "first.weight": "float32[8, 4]",
        "first.bias": "float32[8]",
        "second.weight": "float32[2, 8]",
        "second.bias": "float32[2]",
    }
    ops = Counter(node.op for node in loss.nodes.values())
    assert (ops["where"], ops["exp2"], ops["log2"]) == (1, 1, 1)
    assert loss.producer.framework == "tinygrad"


def test_a_layer_that_is_not_used_is_a_cut(graphs: tuple[gradir.Graph, gradir.Graph]) -> None:
    assert [(cut.kind, *cut.names) for cut in graphs[0].cuts] == [("unused", "spare.weight"), ("unused", "spare.bias")]
    assert "unused: spare.weight, spare.bias" in gradir.export(graphs[0], "tree")


def test_a_detach_is_a_cut_of_the_parameters_behind_it(graphs: tuple[gradir.Graph, gradir.Graph]) -> None:
    _, edited = graphs
    stopped = [(cut.op, *cut.names) for cut in edited.cuts if cut.kind == "stop_gradient"]
    assert stopped == [("detach", "first.weight"), ("detach", "first.bias")]


@pytest.mark.parametrize("exporter", exporter_names())
def test_every_exporter_writes_it(graphs: tuple[gradir.Graph, gradir.Graph], exporter: str) -> None:
    assert "first" in gradir.export(graphs[0], exporter)


def test_a_diff_shows_the_edit(graphs: tuple[gradir.Graph, gradir.Graph]) -> None:
    assert "stop_gradient (detach): first.weight" in gradir.diff(*graphs).to("text")
