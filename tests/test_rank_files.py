"""The names of files that several processes write."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import fails, runner

import gradir
from gradir.cli.rank_files import fill_in_own_rank, read_launcher
from gradir.ir import Rank

SPEC_FILE = """
import torch
loss = torch.ones(2, requires_grad=True).exp().sum()
"""

SCRIPT = """
import torch
torch.ones(2, requires_grad=True).exp().sum().backward()
"""

FOUR = {"RANK": "2", "WORLD_SIZE": "4"}


@pytest.mark.parametrize(
    ("output", "told", "expected"),
    [
        ("run.{rank}.gir", FOUR, "run.2.gir"),
        ("{world}/run-{rank}-{rank}.gir", FOUR, "4/run-2-2.gir"),
        ("run.{rank}.gir", {}, "run.0.gir"),
        ("run.{world}.gir", {}, "run.1.gir"),
        ("run.{rank}.gir", {"RANK": "3"}, "run.3.gir"),
        ("run.gir", {}, "run.gir"),
        ("run.gir", {"RANK": "0", "WORLD_SIZE": "1"}, "run.gir"),
        ("{step}.gir", {}, "{step}.gir"),
        ("-", FOUR, "-"),
        ("/dev/null", FOUR, "/dev/null"),
    ],
)
def test_a_name_has_the_rank_and_the_number_of_ranks(output: str, told: dict[str, str], expected: str) -> None:
    assert fill_in_own_rank(output, told) == expected


@pytest.mark.parametrize(
    ("output", "told", "message"),
    [
        ("run.gir", FOUR, r"cannot write run.gir from all 4 processes; put \{rank\} into .* -o run\.\{rank\}\.gir$"),
        ("a.b/run.gir.gz", FOUR, r"as in -o a\.b/run\.\{rank\}\.gir\.gz$"),
        ("run.{world}.gir", FOUR, r"^cannot write run\.\{world\}\.gir from all 4 processes"),
        ("{rank}.gir", {"RANK": "two"}, r"^RANK is 'two', not a number; start the program with a launcher"),
        ("run.gir", {"RANK": "0", "WORLD_SIZE": "9" * 5000}, r"^WORLD_SIZE is '9{60}'…, not a number; start"),
        ("{rank}.gir", {"WORLD_SIZE": "4"}, r"RANK is not set; start the program with a launcher such as torchrun$"),
        (
            "{rank}-{world}.gir",
            {"RANK": "4"},
            r"cannot fill \{world\} in -o 4-\{world\}.gir: WORLD_SIZE is not set",
        ),
    ],
)
def test_a_name_that_several_ranks_would_write_is_refused(output: str, told: dict[str, str], message: str) -> None:
    with pytest.raises(gradir.CaptureError, match=message):
        fill_in_own_rank(output, told)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"RANK": "2", "WORLD_SIZE": "2"}, r"^RANK is 2, and WORLD_SIZE 2: start the program with a launcher"),
        ({"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "-1"}, r"^LOCAL_RANK is '-1', not a number;"),
    ],
)
def test_a_launcher_that_says_no_rank_is_refused(told: dict[str, str], message: str) -> None:
    with pytest.raises(gradir.CaptureError, match=message):
        read_launcher(told)


@pytest.mark.parametrize("told", [{"WORLD_SIZE": "2"}, {"RANK": "0"}, {"RANK": "0", "WORLD_SIZE": "1"}])
def test_a_process_without_rank_or_without_others_has_no_launcher(told: dict[str, str]) -> None:
    assert read_launcher(told) is None


def test_capture_and_run_fill_the_rank_in(tmp_path: Path, clean_environment: dict[str, str]) -> None:
    pytest.importorskip("torch")
    (tmp_path / "spec.py").write_text(SPEC_FILE)
    (tmp_path / "script.py").write_text(SCRIPT)
    run = runner(tmp_path, clean_environment | FOUR)
    done = run("capture", "spec.py:loss", "-o", "captured.{rank}.gir")
    assert (done.returncode, done.stderr.split(":")[0]) == (0, "wrote captured.2.gir")
    done = run("run", "-o", "ran.{rank}-{world}.gir", "script.py")
    assert (done.returncode, done.stderr.split(":")[0]) == (0, "wrote ran.2-4.gir")
    # No process group was made, so the launcher alone says which rank it is.
    assert gradir.load(tmp_path / "ran.2-4.gir").rank == Rank(2, 4)
    assert run("run", "-o", "ran.{rank}-{world}.gir", "--no-collectives", "script.py").returncode == 0
    assert gradir.load(tmp_path / "ran.2-4.gir").rank is None
    fails(run("capture", "spec.py:loss", "-o", "one.gir"), "from all 4 processes", "-o one.{rank}.gir")
    fails(run("run", "-o", "one.gir", "script.py"), "from all 4 processes", "-o one.{rank}.gir")
    assert sorted(path.name for path in tmp_path.glob("*.gir")) == ["captured.2.gir", "ran.2-4.gir"]
