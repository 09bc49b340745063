"""Reading and writing files: whole or not at all."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
from pathlib import Path

from gradir.errors import GradirError

__all__ = ["read_bytes", "write_bytes"]


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The content of a file; of standard input when ``path`` is ``-``.

    Raises:
        GradirError: the file cannot be read.
    """
    if os.fspath(path) == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise GradirError(f"{os.fspath(path)}: cannot be read: {error.strerror}") from error


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file so that a reader sees the old content or the new, never a part; ``-`` is standard output.

    The bytes go to a temporary file beside the target, which is then renamed over it. A symbolic link is followed,
    the mode of an existing file is kept, and a pipe or device is written to directly.

    Raises:
        GradirError: the file cannot be written; a file that was there is untouched.
    """
    if os.fspath(path) == "-":
        _write_stdout(data)
        return
    target = Path(os.path.realpath(path))
    try:
        mode = _mode_of(target)
        if mode is not None and not stat.S_ISREG(mode):
            target.write_bytes(data)
            return
        _replace(target, data, _default_mode() if mode is None else stat.S_IMODE(mode))
    except OSError as error:
        raise GradirError(f"{os.fspath(path)}: cannot be written: {error.strerror}") from error


def _write_stdout(data: bytes) -> None:
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        # What is still in the buffer would fail once more when Python flushes it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise GradirError(f"standard output: cannot be written: {error.strerror}") from error


def _mode_of(target: Path) -> int | None:
    try:
        return target.stat().st_mode
    except FileNotFoundError:
        return None


def _default_mode() -> int:
    # The only portable way to read the umask is to set it.
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _replace(target: Path, data: bytes, mode: int) -> None:
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name[:100]}.", suffix=".tmp", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(mode)
        Path(temporary).replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise
