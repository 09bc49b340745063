"""What an installation made that was not there before, kept in git's configuration beside the driver.

Without it nobody could tell an empty file of the user from one that is only left over.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Final, NamedTuple

from gradir.git.configuration import Where, config_path
from gradir.git.repository import output, succeeds

__all__ = ["KEYS", "Record", "missing", "read", "tidy", "write"]

_MADE: Final = "diff.gradir.made"
_UNENDED: Final = "diff.gradir.unended"

KEYS: Final = (_MADE, _UNENDED)
"""The settings that hold a record."""


class Record(NamedTuple):
    """The files and folders that were made, and whether the configuration did not end in a newline."""

    made: tuple[Path, ...] = ()
    unended: bool = False


def missing(path: Path) -> tuple[Path, ...]:
    """A path and the folders above it, innermost first, as far as they are not there."""
    return tuple(place for place in (path, *path.parents) if not place.exists())


def read(where: Where) -> Record:
    """What was recorded; nothing where nothing is installed.

    Raises:
        GitError: git is missing, or this is no repository (`NoRepositoryError`).
    """
    question = ["config", f"--{where}", "-z", "--get-all", _MADE]
    if not succeeds(question):
        return Record((), _is_set(where, _UNENDED))
    home = config_path(where).parent
    names = output(question).split(b"\0")[:-1]
    return Record(tuple(home / os.fsdecode(name) for name in names), _is_set(where, _UNENDED))


def write(where: Where, record: Record) -> None:
    """Add to what was recorded.

    Raises:
        GitError: git cannot write it.
    """
    home = config_path(where).parent
    known = read(where).made
    for path in record.made:
        if path not in known:
            # As seen from the configuration, so that both can move to another place.
            name = path.relative_to(home) if path.is_relative_to(home) else path.absolute()
            output(["config", f"--{where}", "--add", _MADE, str(name)])
    if record.unended:
        output(["config", f"--{where}", "--replace-all", _UNENDED, "true"])


def tidy(record: Record) -> None:
    """Remove what was made, as far as it holds nothing now."""
    for path in record.made:
        # What else happened to it since is the user's business.
        with contextlib.suppress(OSError):
            _remove_empty(Path(os.path.realpath(path)))


def _remove_empty(path: Path) -> None:
    found = path.stat()
    if stat.S_ISDIR(found.st_mode):
        path.rmdir()
    elif stat.S_ISREG(found.st_mode) and found.st_size == 0:
        path.unlink()


def _is_set(where: Where, key: str) -> bool:
    return succeeds(["config", f"--{where}", "--get", key])
