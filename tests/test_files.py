"""Files are written whole or not at all."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gradir.errors import GradirError
from gradir.files import read_bytes, write_bytes


def test_writes_and_reads(tmp_path: Path) -> None:
    write_bytes(tmp_path / "a", b"1")
    write_bytes(tmp_path / "a", b"2")
    assert read_bytes(tmp_path / "a") == b"2"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_the_mode_of_a_new_file_follows_the_umask(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        write_bytes(tmp_path / "a", b"")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_the_mode_of_an_old_file_is_kept(tmp_path: Path) -> None:
    (tmp_path / "a").touch(0o600)
    write_bytes(tmp_path / "a", b"x")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "link").symlink_to("real")
    write_bytes(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_a_pipe_without_a_path_is_written_to(tmp_path: Path) -> None:
    code = "from gradir.files import write_bytes; write_bytes('/dev/stdout', b'text')"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=True)
    assert done.stdout == b"text"


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write_bytes(tmp_path / "pipe", b"through")
    reader.join(10)
    assert got == [b"through"]


@pytest.mark.parametrize("name", ["missing/a", "."])
def test_an_unwritable_path_is_one_clear_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(GradirError, match="cannot be written"):
        write_bytes(tmp_path / name, b"")


def test_a_missing_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(GradirError, match="cannot be read: No such file"):
        read_bytes(tmp_path / "missing")


@pytest.mark.parametrize("name", ["new/", "new/.", "there/", "there/.", "there/..", "there", "."])
def test_a_folder_is_no_file_whether_it_is_there_or_not(tmp_path: Path, name: str) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(GradirError) as caught:
        write_bytes(f"{tmp_path}/{name}", b"")
    assert str(caught.value) == f"{tmp_path}/{name}: cannot be written: Is a directory"
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


@pytest.mark.parametrize("name", ["", b""])
def test_the_empty_name_is_one_clear_error(tmp_path: Path, name: str | bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GradirError, match=r"^'': cannot be read: no file can have this name$"):
        read_bytes(name)
    with pytest.raises(GradirError, match=r"^'': cannot be written: no file can have this name$"):
        write_bytes(name, b"")


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"])
def test_a_name_that_no_file_can_have_is_one_clear_error(tmp_path: Path, name: str) -> None:
    path = f"{tmp_path}/{name}"
    for use in (read_bytes, lambda path: write_bytes(path, b"")):
        with pytest.raises(GradirError, match="no file can have this name") as caught:
            use(path)
        assert str(caught.value).isprintable()
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"old")

    def fail(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(GradirError, match="No space left"):
        write_bytes(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


WRITER = """
import sys
from gradir.files import write_bytes
number = 0
while True:
    number += 1
    write_bytes(sys.argv[1], str(number % 10).encode() * 4_000_000)
    print(flush=True)
"""


def test_a_kill_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    target = tmp_path / "a"
    for delay in (0.001, 0.004, 0.009):
        with subprocess.Popen([sys.executable, "-c", WRITER, target], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            time.sleep(delay)
            child.send_signal(signal.SIGKILL)
        data = target.read_bytes()
        assert len(data) == 4_000_000
        assert len(set(data)) == 1
