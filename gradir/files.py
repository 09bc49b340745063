"""Read and write files, whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import BinaryIO, Final, TypeVar

from gradir.errors import FileError, FormatError, GradirError

T = TypeVar("T")

_INPUT: Final = "standard input"
_OUTPUT: Final = "standard output"
_CLOSED: Final = "it is closed"
# The name is empty, has a null character, or one that the file system's encoding cannot represent.
_NO_NAME: Final = "no file can have this name"

# Linux follows as many links in one path.
_MOST_LINKS: Final = 40


class Located(os.PathLike[str]):
    """The absolute path of a file; errors show the path that the user wrote."""

    def __init__(self, path: str) -> None:
        self.written = path
        # pathlib removes a slash at the end.
        self._path = path if path in {"", "-"} or os.path.isabs(path) else os.path.join(working_folder(), path)

    def __fspath__(self) -> str:
        return self._path


def working_folder() -> str:
    """Return the working directory, or an empty text if it was removed, so that only absolute paths work."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def name_of(path: str | bytes | os.PathLike[str]) -> str:
    """Return the name of a file for messages, with ``standard input`` for ``-``."""
    name = os.fsdecode(path)
    return _INPUT if name == "-" else name


@contextlib.contextmanager
def naming(path: str | bytes | os.PathLike[str], advice: str | None = None) -> Iterator[None]:
    """Add the file to errors about its content, and replace their advice if one is given."""
    try:
        yield
    except FormatError as error:
        raise error.replace(file=name_of(path), advice=advice) from error


@contextlib.contextmanager
def prefixing(name: str, *kinds: type[GradirError]) -> Iterator[None]:
    """Put a name before the message of errors of these kinds."""
    try:
        yield
    except kinds as error:
        raise type(error)(f"{name}: {error}") from error


@contextlib.contextmanager
def _failing(path: str | bytes | os.PathLike[str], task: str) -> Iterator[None]:
    """Convert the errors of a task to `FileError`, with the path that the user wrote."""
    shown = path.written if isinstance(path, Located) else os.fsdecode(path)
    try:
        yield
    except FileError:
        raise
    except OSError as error:
        raise FileError(shown, task, error.strerror, error.errno) from error
    except ValueError as error:
        raise FileError(repr(shown), task, _NO_NAME) from error


def read_bytes(path: str | bytes | os.PathLike[str]) -> bytes:
    """Return the content of a file, or of standard input for ``-``."""
    name = os.fsdecode(path)
    if name == "-":
        # Python sets None if the stream was closed before it started.
        if sys.stdin is None:
            raise FileError(_INPUT, "read", _CLOSED)
        try:
            return sys.stdin.buffer.read()
        except OSError as error:
            raise FileError(_INPUT, "read", error.strerror, error.errno) from error
    with open_file(path) as file:
        return file.read()


@contextlib.contextmanager
def open_file(path: str | bytes | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file to read from."""
    name = os.fsdecode(path)
    with _failing(path, "read"):
        if not name:
            raise ValueError
        with open(name, "rb") as file:
            yield file


def check_apart(source: str, target: str) -> None:
    """Refuse a target that is the source, since another format would replace the graph."""
    if "-" in (source, target):
        return
    with contextlib.suppress(OSError, ValueError):
        # A terminal may be both.
        if os.path.samefile(source, target) and os.path.isfile(source):
            raise GradirError(f"{target}: is the input file; write to another")


def check_place(path: str) -> None:
    """Refuse a path that cannot be written, before the work whose result it is for."""
    if is_stdout(path):
        return
    with _failing(path, "written"):
        if not path:
            raise ValueError
        if os.path.isdir(path) or os.path.basename(path) in {"", ".", ".."}:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        # Writing follows a link, so the folder of its target counts.
        folder = os.path.dirname(os.path.realpath(path))
        if not os.path.exists(path) and not os.path.isdir(folder):
            # This raises if there is no such folder.
            os.stat(folder)
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(path, os.W_OK) and not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def folder_to_make(path: str) -> str:
    """Return the folder to make for a path, or an empty text if it exists or cannot be made."""
    if is_stdout(path) or os.path.basename(path) in {"", ".", ".."}:
        return ""
    folder = above = os.path.dirname(path)
    while above and not os.path.lexists(above):
        above = os.path.dirname(above)
    if above == folder:
        return ""
    return folder if os.path.isdir(above or ".") and os.access(above or ".", os.W_OK) else ""


def write_bytes(path: str | bytes | os.PathLike[str], data: bytes) -> None:
    """Write a file so that readers see the old or the new content, never a part; ``-`` is standard output.

    Symbolic links are followed. Pipes, devices and open descriptors such as ``/dev/stdout`` are written directly.
    """
    name = os.fsdecode(path)
    if name == "-":
        _write_stdout(data)
        return
    with _failing(path, "written"):
        if not name:
            raise ValueError
        handle = _open_special(name)
        if handle is None:
            if os.path.basename(name) in ("", ".", ".."):
                # `realpath` would return the path of a file.
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            from gradir.replacing import replace

            replace(os.path.realpath(name), data)
            return
        flush_stdout()
        with os.fdopen(handle, "wb") as file:
            file.write(data)


def is_stdout(path: str) -> bool:
    """Return whether a path is standard output: ``-``, ``/dev/stdout`` and the like."""
    if path == "-":
        return True
    with contextlib.suppress(OSError, ValueError):
        place = _descriptor(path)
        return place is not None and place[1] == 1 and _is_own(place[0])
    return False


def is_regular_stdout() -> bool:
    """Return whether standard output is a regular file."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    return False


def flush_stdout() -> None:
    """Write the buffer of standard output."""
    if sys.stdout is not None:
        _to_stdout(sys.stdout.flush)


def silence_stdout() -> None:
    """Discard further output, since the buffer would fail again when Python flushes it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _write_stdout(data: bytes) -> None:
    if sys.stdout is None:
        raise FileError(_OUTPUT, "written", _CLOSED)
    left = memoryview(data)
    while left:
        # An unbuffered stream may write a part and return its length.
        count = _to_stdout(partial(sys.stdout.buffer.write, left))
        left = left[len(left) if count is None else count :]
    _to_stdout(sys.stdout.buffer.flush)


def _to_stdout(write: Callable[[], T]) -> T:
    try:
        return write()
    except BrokenPipeError:
        raise
    except OSError as error:
        silence_stdout()
        raise FileError(_OUTPUT, "written", error.strerror, error.errno) from error


def _open_special(path: str) -> int | None:
    """Open the stream, pipe or device of a path; return None for a regular or missing file."""
    place = _descriptor(path)
    if place is None:
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(os.stat(path).st_mode):
                return os.open(path, os.O_WRONLY | os.O_TRUNC)
        return None
    folder, number = place
    if _is_own(folder):
        # Opening a file again would write from its start, over the output of others.
        return os.dup(number)
    # The other process may write there too.
    return os.open(f"{folder}/{number}", os.O_WRONLY | os.O_APPEND)


def _is_own(folder: str) -> bool:
    # /proc/NUMBER/fd has the descriptors of another process.
    return folder == "/dev/fd" or folder.startswith(f"{os.path.realpath('/proc/self')}/")


def _descriptor(path: str) -> tuple[str, int] | None:
    """Return the folder and number of the descriptor that a path such as /dev/stdout leads to."""
    for _ in range(_MOST_LINKS):
        folder, name = os.path.split(path)
        folder = os.path.realpath(folder)
        path = os.path.join(folder, name)
        if name.isdecimal() and (folder == "/dev/fd" or (folder.startswith("/proc/") and folder.endswith("/fd"))):
            return folder, int(name)
        if not os.path.islink(path):
            return None
        path = os.path.join(folder, os.readlink(path))
    return None
