"""Reading and writing files: whole or not at all."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Callable
from typing import Final, TypeVar

from gradir.errors import FileError, GradirError

__all__ = ["check_apart", "flush_stdout", "read_bytes", "silence_stdout", "write_bytes"]

T = TypeVar("T")

_LONGEST_PREFIX: Final = 100
_CLOSED: Final = "it is closed"


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The content of a file; of standard input when ``path`` is ``-``.

    Raises:
        FileError: the file cannot be read.
    """
    if os.fspath(path) == "-":
        return _read_stdin()
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise FileError(os.fspath(path), "read", error.strerror, error.errno) from error
    except ValueError as error:
        # It has a null character, or one that the file system's encoding has no bytes for.
        raise FileError(repr(os.fspath(path)), "read", "no file can have this name") from error


def check_apart(source: str, target: str) -> None:
    """Refuse a target that is the source: another format in its place would be the end of the graph.

    Raises:
        GradirError: both name one file.
    """
    if "-" in (source, target):
        return
    with contextlib.suppress(OSError, ValueError):
        # A terminal may well be both.
        if os.path.samefile(source, target) and os.path.isfile(source):
            raise GradirError(f"{target}: is the input file; write to another")


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file so that a reader sees the old content or the new, never a part; ``-`` is standard output.

    The bytes go to a temporary file beside the target, which is then renamed over it. A symbolic link is followed,
    the mode of an existing file is kept, and a pipe or device is written to directly.

    Raises:
        FileError: the file cannot be written; a file that was there is untouched.
    """
    if os.fspath(path) == "-":
        _write_stdout(data)
        return
    try:
        target = os.path.realpath(path)
        mode = _mode_of(path)
        if mode is not None and not stat.S_ISREG(mode):
            # What /dev/stdout leads to may have no path of its own.
            with open(path, "wb") as file:
                file.write(data)
            return
        _replace(target, data, _default_mode() if mode is None else stat.S_IMODE(mode))
    except OSError as error:
        raise FileError(os.fspath(path), "written", error.strerror, error.errno) from error
    except ValueError as error:
        # It has a null character, or one that the file system's encoding has no bytes for.
        raise FileError(repr(os.fspath(path)), "written", "no file can have this name") from error


def flush_stdout() -> None:
    """Write what was printed and is still in the buffer.

    Raises:
        FileError: it cannot be written.
    """
    if sys.stdout is not None:
        _to_stdout(sys.stdout.flush)


def silence_stdout() -> None:
    """Write nothing more: what is still in the buffer would fail once more when Python flushes it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _read_stdin() -> bytes:
    # Python has no object for a stream that was closed before it started.
    if sys.stdin is None:
        raise FileError("standard input", "read", _CLOSED)
    try:
        return sys.stdin.buffer.read()
    except OSError as error:
        raise FileError("standard input", "read", error.strerror, error.errno) from error


def _write_stdout(data: bytes) -> None:
    if sys.stdout is None:
        raise FileError("standard output", "written", _CLOSED)
    left = memoryview(data)
    while left:
        left = _unwritten(left)
    _to_stdout(sys.stdout.buffer.flush)


def _unwritten(data: memoryview) -> memoryview:
    """Write data, and give back what was not taken: without a buffer (PYTHONUNBUFFERED) that may be a part of it."""
    taken = _to_stdout(lambda: sys.stdout.buffer.write(data))
    return data[len(data) if taken is None else taken :]


def _to_stdout(write: Callable[[], T]) -> T:
    try:
        return write()
    except BrokenPipeError:
        raise
    except OSError as error:
        silence_stdout()
        raise FileError("standard output", "written", error.strerror, error.errno) from error


def _mode_of(path: str | os.PathLike[str]) -> int | None:
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None


def _default_mode() -> int:
    # The only portable way to read the umask is to set it.
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _replace(target: str, data: bytes, mode: int) -> None:
    # Imported when something is written: to print is faster without.
    import tempfile

    # File systems limit the bytes of a name, not its letters, and some refuse a part of a letter.
    folder, name = os.path.split(target)
    start = os.fsencode(name)[:_LONGEST_PREFIX].decode(errors="ignore")
    handle, temporary = tempfile.mkstemp(prefix=f".{start}.", suffix=".tmp", dir=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
