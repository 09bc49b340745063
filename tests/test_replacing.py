"""A file that is replaced keeps all but its content, whoever else writes it, and whoever is killed leaves no litter."""

from __future__ import annotations

import errno
import os
import random
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from samples import everything

import gradir
from gradir import replacing
from gradir.errors import GradirError
from gradir.files import write_bytes

NOBODY = 65534
ROOT = os.geteuid() == 0
SIZE = 300_000


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes, links and locks are those of POSIX")
as_root = pytest.mark.skipif(not ROOT, reason="only root gives a file away")


@as_root
def test_owner_group_and_mode_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    os.chown(path, 1234, 2345)
    path.chmod(0o2664)
    number = path.stat().st_ino
    write_bytes(path, b"new")
    found = path.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (1234, 2345, 0o2664)
    assert found.st_ino != number
    assert path.read_bytes() == b"new"


def test_extended_attributes_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    try:
        os.setxattr(path, "user.origin", b"somewhere")
    except (AttributeError, OSError):
        pytest.skip("no extended attributes here")
    write_bytes(path, b"new")
    assert os.getxattr(path, "user.origin") == b"somewhere"
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("size", [0, 3, 9])
def test_further_names_stay_names_of_the_file(size: int, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old one")
    (tmp_path / "b").hardlink_to(path)
    write_bytes(path, b"n" * size)
    assert (tmp_path / "b").read_bytes() == b"n" * size
    assert (tmp_path / "b").samefile(path)
    assert names(tmp_path) == ["a", "b"]


def test_a_further_name_has_the_whole_beside_it_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    (tmp_path / "b").hardlink_to(path)
    synced = os.fsync

    def interrupt(handle: int) -> None:
        synced(handle)
        if os.path.samestat(os.fstat(handle), path.stat()):
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_bytes(path, b"new")
    monkeypatch.undo()
    assert names(tmp_path) == [".a.gradir-new", "a", "b"]
    assert (tmp_path / ".a.gradir-new").read_bytes() == b"new"
    write_bytes(path, b"newer")
    assert names(tmp_path) == ["a", "b"]


def test_a_full_disk_does_not_harm_a_further_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    (tmp_path / "b").hardlink_to(path)

    def full(handle: int, start: int, size: int) -> None:
        os.ftruncate(handle, start + size - 1)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(GradirError, match="No space left"):
        write_bytes(path, b"longer")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a", "b"]


def test_a_file_that_nothing_can_be_renamed_over_is_written_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"the old content")
    number = path.stat().st_ino
    rename = os.replace

    def busy(source: str, target: str) -> None:
        if target == str(path):
            raise OSError(errno.EBUSY, "Device or resource busy")
        rename(source, target)

    monkeypatch.setattr(os, "replace", busy)
    write_bytes(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_ino == number
    assert names(tmp_path) == ["a"]


WRITE = f"""
import fcntl
import os
import gradir.replacing
from gradir.files import write_bytes
from gradir.errors import FileError
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid({NOBODY})
    os.setuid({NOBODY})
try:
    write_bytes("a", b"new")
except FileError as error:
    print(error)
"""


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder in which all may write, below folders that all may enter."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder)


def written_by_anybody(folder: Path) -> str:
    """What a user without the rights of root is told who writes the file."""
    line = [sys.executable, "-c", WRITE]
    return subprocess.run(line, cwd=folder, capture_output=True, check=True, encoding="utf-8", timeout=60).stdout


@pytest.mark.parametrize("linked", [False, True], ids=["alone", "linked"])
def test_a_file_that_may_not_be_written_is_left_as_it_is(linked: bool, public: Path) -> None:
    path = public / "a"
    path.write_bytes(b"old")
    path.chmod(0o444)
    if linked:
        (public / "b").hardlink_to(path)
    assert written_by_anybody(public) == "a: cannot be written: Permission denied\n"
    assert path.read_bytes() == b"old"
    assert names(public) == ["a", "b"][: 1 + linked]


@as_root
def test_a_file_of_another_owner_is_written_in_place_where_that_is_allowed(public: Path) -> None:
    path = public / "a"
    path.write_bytes(b"the old content")
    path.chmod(0o666)
    number = path.stat().st_ino
    assert written_by_anybody(public) == ""
    found = path.stat()
    assert (found.st_uid, found.st_ino, path.read_bytes()) == (0, number, b"new")
    assert names(public) == ["a"]


@as_root
def test_a_file_whose_folder_takes_no_other_is_left_as_it_is(public: Path) -> None:
    path = public / "a"
    path.write_bytes(b"old")
    path.chmod(0o666)
    public.chmod(0o755)
    assert written_by_anybody(public) == (
        "a: cannot be written: gradir cannot write a new file into its folder (Permission denied); "
        "write to another folder\n"
    )
    assert path.read_bytes() == b"old"
    assert names(public) == ["a"]


def test_the_mask_of_the_process_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "umask", lambda _: pytest.fail("another thread would make files with it"))
    write_bytes(tmp_path / "a", b"1")
    write_bytes(tmp_path / "a", b"2")


def test_the_folder_is_on_the_disk_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def note(handle: int) -> None:
        synced.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        synced.append("old" if not (tmp_path / "a").exists() else "new")
        real(handle)

    monkeypatch.setattr(os, "fsync", note)
    write_bytes(tmp_path / "a", b"1")
    assert synced == ["file", "old", "folder", "new"]


def test_a_name_of_bytes(tmp_path: Path) -> None:
    name = os.fsencode(tmp_path / "a.gir.gz")
    gradir.save(everything(), name)
    assert (tmp_path / "a.gir.gz").read_bytes()[:2] == b"\x1f\x8b"
    assert gradir.load(name) == everything()
    (tmp_path / "b").write_bytes(b"")
    for read in (lambda: gradir.load(os.fsencode(tmp_path / "b")), lambda: gradir.load(os.fsencode(tmp_path / "c"))):
        with pytest.raises(GradirError) as caught:
            read()
        assert str(caught.value).startswith(f"{tmp_path}/")


def test_a_temporary_file_of_someone_who_writes_is_left_alone(tmp_path: Path) -> None:
    target = str(tmp_path / "a")
    file, temporary = replacing._create_temporary(target, 0o600)
    write_bytes(target, b"1")
    assert names(tmp_path) == sorted([Path(temporary).name, "a"])
    file.close()
    write_bytes(target, b"2")
    assert names(tmp_path) == ["a"]


def test_a_file_in_place_of_a_temporary_one_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"mine")
    (tmp_path / ".a.gradir-0.tmp").symlink_to("secret")
    (tmp_path / ".a.gradir-1.tmp").mkdir()
    os.mkfifo(tmp_path / ".a.gradir-2.tmp")
    write_bytes(tmp_path / "a", b"1")
    assert (tmp_path / "secret").read_bytes() == b"mine"
    assert (tmp_path / "a").read_bytes() == b"1"
    assert (tmp_path / ".a.gradir-1.tmp").is_dir()


def test_only_temporary_files_of_gradir_are_swept(tmp_path: Path) -> None:
    others = [".a.gradir-0", "a.gradir-0.tmp", ".gradir-x.y.tmp", ".a.gradir-new", "b.tmp", ".a.gradir-.tmp"]
    for name in others:
        (tmp_path / name).write_bytes(b"mine")
    (tmp_path / "secret").write_bytes(b"mine")
    (tmp_path / ".c.gradir-0.tmp").symlink_to("secret")
    (tmp_path / ".c.gradir-1.tmp").mkdir()
    os.mkfifo(tmp_path / ".c.gradir-2.tmp")
    for name in (".c.gradir-3.tmp", ".d.gradir-15.tmp", ".e.gradir-0123456789abcdef.tmp"):
        (tmp_path / name).write_bytes(b"left")
    running, temporary = replacing._create_temporary(str(tmp_path / "f"), 0o600)
    write_bytes(tmp_path / "b", b"1")
    kept = [*others, "secret", "b", Path(temporary).name, *(f".c.gradir-{number}.tmp" for number in range(3))]
    assert names(tmp_path) == sorted(kept)
    assert (tmp_path / "secret").read_bytes() == b"mine"
    running.close()


def test_only_old_temporary_files_are_swept_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacing, "_lock", lambda handle, wait=False: None)
    for name, age in ((".a.gradir-0.tmp", 100_000), (".b.gradir-0.tmp", 100_000), (".c.gradir-0.tmp", 3_600)):
        (tmp_path / name).write_bytes(b"left")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    write_bytes(tmp_path / "a", b"1")
    assert names(tmp_path) == [".c.gradir-0.tmp", "a"]


def test_a_save_that_was_killed_is_swept_by_the_save_of_another_file(tmp_path: Path) -> None:
    stopped = "import os, signal\nos.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)\n"
    save = "import sys, gradir\ngradir.Graph.of([]).save(sys.argv[1])\n"
    process = subprocess.run([sys.executable, "-c", stopped + save, tmp_path / "a.gir"], check=False)
    assert process.returncode == -signal.SIGKILL
    assert names(tmp_path) == [".a.gir.gradir-0.tmp"]
    subprocess.run([sys.executable, "-c", save, tmp_path / "b.gir"], check=True)
    assert names(tmp_path) == ["b.gir"]


def test_more_writers_than_names(tmp_path: Path) -> None:
    target = str(tmp_path / "a")
    held = [replacing._create_temporary(target, 0o600)[0] for _ in range(replacing._AT_ONCE)]
    write_bytes(target, b"1")
    assert Path(target).read_bytes() == b"1"
    for file in held:
        file.close()
    write_bytes(target, b"2")
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("linked", [False, True], ids=["alone", "linked"])
def test_threads_that_write_one_file(linked: bool, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"0" * SIZE)
    if linked:
        (tmp_path / "b").hardlink_to(path)
    errors: list[BaseException] = []

    def write(letter: bytes) -> None:
        try:
            for number in range(4):
                write_bytes(path, letter * (SIZE + number))
        except BaseException as error:  # noqa: BLE001 (a thread's error would be lost)
            errors.append(error)

    threads = [threading.Thread(target=write, args=(bytes([65 + number]),)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    data = path.read_bytes()
    assert len(set(data)) == 1
    assert SIZE <= len(data) <= SIZE + 3
    assert names(tmp_path) == ["a", "b"][: 1 + linked]


WRITER = """
import sys
from gradir.files import write_bytes
letter = sys.argv[2].encode()
print(flush=True)
while True:
    write_bytes(sys.argv[1], letter * 300_000)
"""


def writer(path: Path, letter: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", WRITER, path, letter], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


@pytest.mark.parametrize("writers", [1, 3])
def test_killed_writers_leave_whole_files_and_no_litter_behind_the_next(writers: int, tmp_path: Path) -> None:
    path = tmp_path / "a"
    chance = random.Random(writers)
    write_bytes(path, b"-" * SIZE)
    littered = 0
    for _ in range(24 // writers):
        processes = [writer(path, letter) for letter in "xyz"[:writers]]
        time.sleep(chance.uniform(0, 0.01))
        for process in processes:
            process.send_signal(signal.SIGKILL)
        for process in processes:
            process.communicate()
        data = path.read_bytes()
        assert len(data) == SIZE
        assert len(set(data)) == 1
        littered += len(names(tmp_path)) > 1
        assert len(names(tmp_path)) <= 1 + writers
        write_bytes(path, b"-" * SIZE)
        assert names(tmp_path) == ["a"]
    assert littered
