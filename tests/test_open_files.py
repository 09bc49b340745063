"""What is open already, such as standard output, is written to where it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import forked
import pytest
from samples import everything

import gradir
from gradir.cli import main
from gradir.errors import FileError
from gradir.files import write_bytes

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes, links and locks are those of POSIX")

SHELLS = {
    "echo before; {} -o /dev/stdout": "> log",
    "echo before; {} -o /dev/fd/1": "> log",
    "echo before; {} -o /proc/self/fd/1": "> log",
    "echo before; {} -o link": "> log",
    "echo before >&3; {} -o /dev/fd/3": "3> log",
    "{} -o /dev/stdout": ">> log",
    "{} -o /dev/stderr": "2>> log",
}


@pytest.mark.parametrize(("command", "redirected"), SHELLS.items())
def test_what_is_open_already_is_written_to_where_it_is(command: str, redirected: str, tmp_path: Path) -> None:
    if not Path("/proc/self/fd").exists() and ("/proc" in command or "/dev" in command):
        pytest.skip("the system names no descriptors")
    gradir.save(everything(), tmp_path / "a.gir")
    (tmp_path / "link").symlink_to("/dev/stdout")
    (tmp_path / "log").write_text("before\n")
    number = (tmp_path / "log").stat().st_ino
    summary = f"'{sys.executable}' -m gradir summary a.gir"
    script = (
        f"{{ {command.format(summary)}; echo after >&{redirected[0] if redirected[0] in '23' else 1}; }} {redirected}"
    )
    subprocess.run(["sh", "-c", script], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    assert main(["summary", str(tmp_path / "a.gir"), "-o", str(tmp_path / "expected")]) == 0
    expected = (tmp_path / "expected").read_text()
    assert (tmp_path / "log").read_text() == f"before\n{expected}after\n"
    assert (tmp_path / "log").stat().st_ino == number
    assert [*tmp_path.glob(".*")] == []


PROGRAM = """
import torch
print("of the program")
loss = torch.ones(2, requires_grad=True).exp()
"""


@pytest.mark.parametrize("name", ["-", "/dev/stdout", "/dev/fd/1", "link"])
def test_a_capture_to_standard_output_is_not_mixed_with_output_of_the_program(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "link").symlink_to("/dev/stdout")
    (tmp_path / "log").write_text("before\n")
    program = tmp_path / "gradir"
    forked.program(program)
    line = [str(program), "capture", "program.py:loss", "-o", name]
    with (tmp_path / "log").open("ab") as log:
        done = subprocess.run(line, cwd=tmp_path, stdout=log, stderr=subprocess.PIPE, check=True, timeout=120)
    assert done.stderr == b"of the program\n"
    before, graph = (tmp_path / "log").read_bytes().split(b"\n", 1)
    assert before == b"before"
    assert len(gradir.loads(graph).nodes) == 4


def test_save_writes_to_an_open_file(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        log.write(b"before\n")
        log.flush()
        gradir.save(everything(), f"/dev/fd/{log.fileno()}")
        log.write(b"after\n")
    assert (tmp_path / "log").read_bytes() == b"before\n" + gradir.dumps(everything()) + b"after\n"


def test_a_descriptor_of_another_process_is_added_to(tmp_path: Path) -> None:
    if not Path("/proc/self/fd").exists():
        pytest.skip("the system names no descriptors of others")
    with (tmp_path / "log").open("wb") as log:
        log.write(b"before\n")
        log.flush()
        with subprocess.Popen(["sleep", "60"], stdout=log) as other:
            try:
                write_bytes(f"/proc/{other.pid}/fd/1", b"text\n")
            finally:
                other.kill()
    assert (tmp_path / "log").read_bytes() == b"before\ntext\n"


def test_a_descriptor_that_is_closed_or_only_read_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    with (tmp_path / "a").open("rb") as file:
        number = file.fileno()
        with pytest.raises(FileError, match=f"/dev/fd/{number}: cannot be written: Bad file descriptor"):
            write_bytes(f"/dev/fd/{number}", b"new")
    with pytest.raises(FileError, match="cannot be written: Bad file descriptor"):
        write_bytes(f"/dev/fd/{number}", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"


def test_a_file_whose_name_is_a_number_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "fd").mkdir()
    write_bytes(tmp_path / "fd" / "1", b"text")
    assert [path.name for path in (tmp_path / "fd").iterdir()] == ["1"]
