"""Replace a file atomically, and remove what killed writers left.

A temporary file beside the target has the new content and is renamed over it. Its name follows from the target's, and
its writer locks it, so that the next writer can remove an abandoned one. The first write of a process in a folder
removes those of all targets.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
import time
import zlib
from typing import BinaryIO, Final

# File systems take names of 255 bytes.
_LONGEST: Final = 200
# So many are known by their names. Should more write one file at a time, what is left of those if killed stays.
_AT_ONCE: Final = 16
# Windows needs none: what somebody has open can neither be removed nor renamed there.
_LOCKS: bool = os.name == "posix"
# Seconds after which nobody writes a file any more, where the file system knows no locks.
_OLD: Final = 86_400
# The folders from which this process removed what was left.
_SWEPT: Final[set[tuple[int, int]]] = set()
# Seconds: on Windows nothing is renamed over what somebody has open, as a scanner of viruses has for a moment.
_PATIENCE: Final = 1.0
_PAUSE: Final = 0.05
# Bytes stay as they are on Windows, a link is not followed to another file, and a pipe is not waited for.
_PLAIN: Final = getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
# What a folder answers that takes no further file.
_REFUSED: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
# The disk, the quota or the largest file that is allowed is full.
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def replace(target: str, data: bytes) -> None:
    """Replace the content of a regular file, or create one; ``target`` is no symbolic link.

    Mode, owner, group and extended attributes stay. If that is not allowed, or the file has several names or is a mount
    point, it is written in place, after all new content is on the disk as ``.NAME.gradir-new``, which stays after an
    interruption. If the folder takes no further file, the target is unchanged.
    """
    old = _status(target)
    if old is not None and not os.access(target, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        # To rename over a file one needs no leave of the file's.
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    for path in [_beside(target, f"{number}.tmp") for number in range(_AT_ONCE)]:
        if os.path.lexists(path):
            _remove_leftover(path)
    _sweep(os.path.dirname(target) or os.curdir)
    try:
        # The umask limits a new file. The content of an old one is for nobody else before its mode is copied.
        file, temporary = _made(target, 0o666 if old is None else 0o600)
    except OSError as error:
        if old is None or error.errno not in _REFUSED:
            raise
        # In place alone, whoever is killed would leave a broken file and the new content nowhere.
        refused = f"the new content goes to its folder first, which takes none ({error.strerror})"
        raise OSError(error.errno, f"{refused}; write to another folder") from error
    try:
        file.write(data)
        file.flush()
        kept = old is None or (_made_like(file.fileno(), target, old) and old.st_nlink == 1)
        # Otherwise a power cut after the rename may leave the new name without content.
        os.fsync(file.fileno())
        if kept and _renamed(file, temporary, target):
            _remove_leftover(_beside(target, "new"))
        else:
            _overwrite(target, temporary, data)
        _sync_folder(target)
    except BaseException:
        with contextlib.suppress(OSError):
            if not _LOCKS:
                file.close()
                os.unlink(temporary)
            elif _is_at(file.fileno(), temporary):
                os.unlink(temporary)
        raise
    finally:
        file.close()


def _status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def _is_at(handle: int, path: str) -> bool:
    found = _status(path)
    return found is not None and os.path.samestat(os.fstat(handle), found)


def _beside(target: str, ending: str) -> str:
    folder, name = os.path.split(target)
    start = os.fsencode(name)
    if len(start) > _LONGEST:
        # A part of a letter, which some file systems refuse, is left out.
        start = start[:_LONGEST].decode(errors="ignore").encode() + b"~%08x" % zlib.crc32(start)
    return os.path.join(folder, f".{os.fsdecode(start)}.gradir-{ending}")


def _made(target: str, mode: int) -> tuple[BinaryIO, str]:
    # The last name is one that no other writer has.
    for number in (*range(_AT_ONCE), os.urandom(8).hex()):
        path = _beside(target, f"{number}.tmp")
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _PLAIN, mode)
        except FileExistsError:
            continue
        # Until it is locked it looks like one whose writer is gone.
        if _locked(handle) is not False and _is_at(handle, path):
            return os.fdopen(handle, "wb"), path
        os.close(handle)
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def _sweep(folder: str) -> None:
    """Remove temporary files of dead writers from a folder, once per process."""
    with contextlib.suppress(OSError):
        found = os.stat(folder)
        place = found.st_dev, found.st_ino
        if place in _SWEPT:
            return
        _SWEPT.add(place)
        for name in os.listdir(folder):
            _, is_own, number = name.removesuffix(".tmp").rpartition(".gradir-")
            if is_own and name.startswith(".") and name.endswith(".tmp") and number.isalnum():
                _remove_leftover(os.path.join(folder, name))


def _remove_leftover(path: str) -> None:
    with contextlib.suppress(OSError):
        if not _LOCKS:
            os.unlink(path)
            return
        handle = os.open(path, os.O_RDWR | _PLAIN)
        try:
            # A writer holds the lock until it ends, so a file that can be locked has none.
            known, is_locked = os.fstat(handle), _locked(handle)
            is_left = known.st_mtime < time.time() - _OLD if is_locked is None else is_locked
            if is_left and stat.S_ISREG(known.st_mode) and _is_at(handle, path):
                os.unlink(path)
        finally:
            os.close(handle)


def _locked(handle: int, *, wait: bool = False) -> bool | None:
    """Lock a file; return whether that worked, or None if the file system has no locks."""
    if not _LOCKS or sys.platform == "win32":
        return None
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _made_like(handle: int, target: str, old: os.stat_result) -> bool:
    """Give a new file the mode and owner of the old one; return whether all of it was allowed."""
    try:
        new = os.fstat(handle)
        if sys.platform != "win32" and (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
            os.fchown(handle, old.st_uid, old.st_gid)
        if hasattr(os, "listxattr"):
            _copy_attributes(handle, target)
        # A change of the owner takes some bits of the mode away, and writing does.
        mode = stat.S_IMODE(old.st_mode)
        if hasattr(os, "fchmod"):
            os.fchmod(handle, mode)
        return not _LOCKS or stat.S_IMODE(os.fstat(handle).st_mode) == mode
    except OSError:
        return False


def _copy_attributes(handle: int, target: str) -> None:
    if sys.platform != "linux":
        # Python knows of none elsewhere.
        return
    try:
        names = os.listxattr(target)
    except OSError:
        # The file system has none.
        return
    there = set(os.listxattr(handle))
    for name in names:
        value = os.getxattr(target, name)
        if name not in there or os.getxattr(handle, name) != value:
            os.setxattr(handle, name, value)
    for name in there.difference(names):
        os.removexattr(handle, name)


def _renamed(file: BinaryIO, temporary: str, target: str) -> bool:
    if not _LOCKS:
        file.close()
    end = time.monotonic() + _PATIENCE
    try:
        while not _LOCKS and time.monotonic() < end:
            with contextlib.suppress(PermissionError):
                os.replace(temporary, target)
                return True
            time.sleep(_PAUSE)
        os.replace(temporary, target)
    except OSError as error:
        # A container may have a single file mounted, which nothing can be renamed over.
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


def _overwrite(target: str, temporary: str, data: bytes) -> None:
    """Write a file in place, by one process at a time, while the temporary file has the whole of it."""
    handle = os.open(target, os.O_RDWR | _PLAIN)
    with os.fdopen(handle, "r+b") as file:
        _locked(handle, wait=True)
        _reserve(handle, len(data))
        whole = _beside(target, "new")
        # Whoever finds the target half written after a kill has all of it in this file.
        os.replace(temporary, whole)
        _sync_folder(target)
        file.write(data)
        file.truncate()
        file.flush()
        os.fsync(handle)
        # Before the next one may start, whose file would have this name.
        os.unlink(whole)


def _reserve(handle: int, size: int) -> None:
    """Fail on a full disk before the old content is overwritten."""
    before = os.fstat(handle).st_size
    if size <= before or not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(handle, 0, size)
    except OSError as error:
        os.ftruncate(handle, before)
        if error.errno in _FULL:
            raise


def _sync_folder(target: str) -> None:
    """Flush a folder, so that a power cut keeps the new name."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    with contextlib.suppress(OSError):
        handle = os.open(os.path.dirname(target), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
