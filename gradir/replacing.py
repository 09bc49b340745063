"""Replace a file atomically, and remove temporary files of killed writers.

gradir writes the new content to a temporary file beside the target and renames it. The name follows from the target's,
and the writer locks the file, so that the next writer can remove an abandoned one. The first write of a process in a
folder removes those of all targets.
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

# File systems allow names of 255 bytes.
_LONGEST: Final = 200
# So many writers of one file have known temporary names. Only a sweep of the folder removes those of further ones.
_AT_ONCE: Final = 16
# Windows needs no locks: nobody can remove or rename an open file there.
_LOCKS: bool = os.name == "posix"
# Without locks, a temporary file is abandoned after so many seconds.
_OLD: Final = 86_400
# The folders from which this process removed abandoned files.
_SWEPT: Final[set[tuple[int, int]]] = set()
# On Windows an open file cannot be replaced, so gradir waits some seconds, such as for a virus scanner.
_PATIENCE: Final = 1.0
_PAUSE: Final = 0.05
# No conversion of line ends on Windows, no following of links, and no waiting for pipes.
_PLAIN: Final = getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
# The errors of a folder that allows no new file.
_REFUSED: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
# The errors of a full disk, an exhausted quota and a file that is too large.
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def replace(target: str, data: bytes) -> None:
    """Replace the content of a regular file, or create one; ``target`` is no symbolic link.

    Mode, owner, group and extended attributes stay. If that is not allowed, or the file has several names or is a mount
    point, gradir writes it in place. Before that, it saves the new content as ``.NAME.gradir-new``, which stays after
    an interruption. If the folder allows no new file, the target is unchanged.
    """
    old = _status(target)
    if old is not None and not os.access(target, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        # Renaming over a file ignores the file's permissions.
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    for path in [_temporary_path(target, f"{number}.tmp") for number in range(_AT_ONCE)]:
        if os.path.lexists(path):
            _remove_leftover(path)
    _sweep(os.path.dirname(target) or os.curdir)
    try:
        # The umask limits a new file. Nobody else may read the content of an old one before its mode is copied.
        file, temporary = _create_temporary(target, 0o666 if old is None else 0o600)
    except OSError as error:
        if old is None or error.errno not in _REFUSED:
            raise
        # Killed while it writes in place alone, a process would leave a broken file and lose the new content.
        refused = f"gradir cannot write a new file into its folder ({error.strerror})"
        raise OSError(error.errno, f"{refused}; write to another folder") from error
    try:
        file.write(data)
        file.flush()
        may_rename = old is None or (_copy_metadata(file.fileno(), target, old) and old.st_nlink == 1)
        # Otherwise a power cut after the rename may leave the new name without content.
        os.fsync(file.fileno())
        if may_rename and _rename_over(file, temporary, target):
            _remove_leftover(_temporary_path(target, "new"))
        else:
            _overwrite(target, temporary, data)
        _sync_folder(target)
    except BaseException:
        with contextlib.suppress(OSError):
            if not _LOCKS:
                file.close()
            if not _LOCKS or _is_at(file.fileno(), temporary):
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


def _temporary_path(target: str, ending: str) -> str:
    folder, name = os.path.split(target)
    start = os.fsencode(name)
    if len(start) > _LONGEST:
        # Some file systems refuse a part of a letter.
        start = start[:_LONGEST].decode(errors="ignore").encode() + b"~%08x" % zlib.crc32(start)
    return os.path.join(folder, f".{os.fsdecode(start)}.gradir-{ending}")


def _create_temporary(target: str, mode: int) -> tuple[BinaryIO, str]:
    # No other writer has the last name.
    for number in (*range(_AT_ONCE), os.urandom(8).hex()):
        path = _temporary_path(target, f"{number}.tmp")
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _PLAIN, mode)
        except FileExistsError:
            continue
        # Before the lock, another writer may take the file for an abandoned one.
        if _lock(handle) is not False and _is_at(handle, path):
            return os.fdopen(handle, "wb"), path
        os.close(handle)
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def _sweep(folder: str) -> None:
    """Remove abandoned temporary files from a folder, once per process."""
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
            # A writer holds the lock until it ends, so a file that can be locked is abandoned.
            status, is_locked = os.fstat(handle), _lock(handle)
            is_abandoned = status.st_mtime < time.time() - _OLD if is_locked is None else is_locked
            if is_abandoned and stat.S_ISREG(status.st_mode) and _is_at(handle, path):
                os.unlink(path)
        finally:
            os.close(handle)


def _lock(handle: int, *, wait: bool = False) -> bool | None:
    """Lock a file; return whether that worked, or None without locks."""
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


def _copy_metadata(handle: int, target: str, old: os.stat_result) -> bool:
    """Copy mode, owner and attributes of the old file to a new one; return whether that worked."""
    try:
        new = os.fstat(handle)
        if sys.platform != "win32" and (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
            os.fchown(handle, old.st_uid, old.st_gid)
        if hasattr(os, "listxattr"):
            _copy_attributes(handle, target)
        # A change of the owner and writing remove some bits of the mode.
        mode = stat.S_IMODE(old.st_mode)
        if hasattr(os, "fchmod"):
            os.fchmod(handle, mode)
        return not _LOCKS or stat.S_IMODE(os.fstat(handle).st_mode) == mode
    except OSError:
        return False


def _copy_attributes(handle: int, target: str) -> None:
    # Python supports attributes on Linux only.
    if sys.platform != "linux":
        return
    try:
        names = os.listxattr(target)
    except OSError:
        # The file system has none.
        return
    present = set(os.listxattr(handle))
    for name in names:
        value = os.getxattr(target, name)
        if name not in present or os.getxattr(handle, name) != value:
            os.setxattr(handle, name, value)
    for name in present.difference(names):
        os.removexattr(handle, name)


def _rename_over(file: BinaryIO, temporary: str, target: str) -> bool:
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
        # A container may have mounted a single file, which no rename can replace.
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


def _overwrite(target: str, temporary: str, data: bytes) -> None:
    """Write a file in place, one process at a time, while the temporary file has all of the content."""
    handle = os.open(target, os.O_RDWR | _PLAIN)
    with os.fdopen(handle, "r+b") as file:
        _lock(handle, wait=True)
        _reserve(handle, len(data))
        whole = _temporary_path(target, "new")
        # After a kill, the user finds all of the content in this file.
        os.replace(temporary, whole)
        _sync_folder(target)
        file.write(data)
        file.truncate()
        file.flush()
        os.fsync(handle)
        # Before the next writer may start, whose file would have this name.
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
    """Flush a folder, so that the new name survives a power cut."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    with contextlib.suppress(OSError):
        handle = os.open(os.path.dirname(target), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
