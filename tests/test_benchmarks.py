"""Every benchmark runs, small, and prints the tables that the page of benchmarks shows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import forked
import pytest

pytest.importorskip("torch")
pytest.importorskip("torchviz")

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def test_the_exporter_benchmark_runs(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "exporters.py"), "--smoke"]
    done = forked.run(command, cwd=tmp_path, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert [len(part.splitlines()) for part in done.stdout.strip().split("\n\n")] == [13, 4, 9]


def test_the_codec_benchmark_runs(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "codecs.py"), "--smoke"]
    done = forked.run(command, cwd=tmp_path, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert [len(part.splitlines()) for part in done.stdout.strip().split("\n\n")] == [4, 8]


def test_the_capture_benchmark_runs(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "capture.py"), "--smoke"]
    done = forked.run(command, cwd=tmp_path, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    tables = [part.splitlines() for part in done.stdout.strip().split("\n\n")]
    assert [len(lines) for lines in tables] == [3, 4, 6, 6, 4]
    assert all(len(line.split("|")) == len(lines[0].split("|")) for lines in tables for line in lines)


def test_the_benchmark_of_explaining_runs(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    command = [sys.executable, str(BENCHMARKS / "explaining.py"), "--smoke"]
    done = forked.run(command, cwd=tmp_path, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    costs, noise = done.stdout.strip().split("\n\n")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in costs.splitlines()]
    names = [row[0] for row in rows[2:]]
    assert names[:3] == ["distilbert", "median of all 1", "worst of all 1"]
    # On a busy machine its forward may take 50 ms, and has two rows more.
    assert names[3:] in ([], [f"{what} of the 1 of 50 ms and more" for what in ("median", "worst")])
    assert all(float(ratio) > 0 for row in rows[2:] for ratio in row[2:])
    assert noise.startswith("The ratios")


def test_the_benchmark_beside_another_version_runs(tmp_path: Path) -> None:
    python = tmp_path / "python"
    forked.program(python, ())
    command = [sys.executable, str(BENCHMARKS / "versions.py"), "--smoke", "--before", str(python)]
    done = forked.run(command, cwd=tmp_path, text=True, executable=python)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split("|")[1:-1] for line in done.stdout.splitlines()]
    assert len(rows) == 13
    assert [cell.strip() for cell in rows[0][1:]] == [
        "now µs",
        "before µs",
        "torchviz µs",
        "before / now",
        "torchviz / now",
    ]
    assert all(float(row[4]) > 0 for row in rows[2:])


def test_the_benchmark_of_a_lone_rank_runs(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "lone_rank.py"), "--smoke"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split("|")[1:-1] for line in done.stdout.splitlines()]
    assert len(rows) == 3
    assert all(float(cell) > 0 for row in rows[2:] for cell in row[5:])


def test_the_benchmark_of_many_ranks_runs(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "ranks.py"), "--smoke"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()]
    # Each of 2 layers has 7 collectives on each of 2 rows, and 2 on each of 8 columns.
    assert [row[1:5] for row in rows[2:]] == [
        ["16", "200", "288", "60 proved"],
        ["16", "200", "288", "mixed"],
        ["16", "200", "288", "hang"],
        ["16", "22", "288", "mixed"],
        ["16", "22", "288", "hang"],
    ]
    assert all(float(cell) > 0 for row in rows[2:] for cell in row[5:])


@pytest.mark.usefixtures("browser")
def test_the_page_benchmark_runs(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "page.py"), "--smoke"]
    done = forked.run(command, cwd=tmp_path, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert [len(part.splitlines()) for part in done.stdout.strip().split("\n\n")] == [1, 3, 8]
