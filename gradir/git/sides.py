"""Find the two files of a comparison, in the working directory, a revision or the index."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from gradir.errors import GradirError, warn
from gradir.git.repository import GitError, answer, has_git, is_revision, read_blob, renamed

# git takes what starts with `:/` for a commit with that message.
_IN_INDEX: Final = re.compile(r"(?::(?P<stage>[0-3]))?:(?P<path>[^/].*)", re.DOTALL)


class Side(NamedTuple):
    """One file to compare: its path, and its revision, which is empty for the working directory.

    The revision ``:0`` is the index, and ``:1`` to ``:3`` are the base, our and their side of a conflict.
    """

    path: str
    revision: str = ""

    @property
    def name(self) -> str:
        """Return the name for messages."""
        return f"{self.revision}:{self.path.removeprefix('./')}" if self.revision else self.path

    def blob(self, other: Side | None = None) -> bytes:
        """Return the file's content in its revision.

        Raises:
            GitError: there is no such revision, or no such file in it; where git knows what the file is called there,
                seen from the ``other`` side, the message says so.
        """
        try:
            return read_blob(self.revision, self.path)
        except GitError as error:
            was = self._renamed(other) if other is not None else ""
            if not was:
                raise
            raise GitError(
                f"{self.name}: there is no such file; git takes it for {was}, renamed: compare {self.revision}:{was}"
            ) from error

    def _renamed(self, other: Side) -> str:
        if self.revision.startswith(":") or not is_revision(self.revision):
            return ""
        if other.revision and not other.revision.startswith(":") and not is_revision(other.revision):
            return ""
        return renamed(self.path, self.revision, other.revision)


def sides(words: Sequence[str], paths: int = 0) -> tuple[Side, Side]:
    """Return the two sides that the arguments of a command line name.

    ``A B`` are two files; each may be ``REVISION:PATH``, ``:PATH`` or ``:STAGE:PATH``. ``REVISION PATH`` is the file
    then and now, and ``REVISION REVISION PATH`` the file in both. A word that names a file and a revision is the
    file, with a `GradirWarning`. ``paths`` is the number of words after ``--``.

    Raises:
        GradirError: the words name no two sides.

    >>> [side.revision for side in sides(["HEAD~1", "HEAD", "model.gir"])]
    ['HEAD~1', 'HEAD']
    >>> sides(["a:b.gir", "-b.gir"], paths=2)
    (Side(path='a:b.gir', revision=''), Side(path='-b.gir', revision=''))
    >>> sides([":2:model.gir", ":3:model.gir"])
    (Side(path='model.gir', revision=':2'), Side(path='model.gir', revision=':3'))
    """
    if len(words) == 3:
        before, after, path = words
        return Side(_here(path), before), Side(_here(path), after)
    if len(words) != 2:
        option = next((word for word in words[len(words) - paths :] if word.startswith("-") and word != "-"), "")
        if option:
            raise GradirError(f"'{option}' after '--' is a file; put options before '--'")
        raise GradirError(
            "diff takes two files, a revision and a file, or two revisions and a file; see gradir diff --help"
        )
    first, second = words
    if paths == 2:
        return Side(first), Side(second)
    if paths == 1 and ":" not in first and first != "-":
        if not is_revision(first):
            advice = f"; write {first.replace('..', ' ', 1)} -- {second}" if ".." in first else ""
            raise GradirError(f"{first}: git knows no such revision here{advice}")
        return Side(_here(second), first), Side(second)
    if not _is_file(first) and ":" not in first:
        _check_revision(first, second)
        return Side(_here(second), first), Side(second)
    if not paths and _may_be_revision(first):
        warn(f"{first}: the file is compared, and not the revision of this name: write {first} -- {second} for that")
    return side(first), side(second)


def _check_revision(revision: str, file: str) -> None:
    if not has_git() or not is_revision(revision):
        raise GradirError(f"{revision}: neither a file nor a revision that git knows")
    if not _is_file(file) and is_revision(file):
        raise GradirError(f"{revision} and {file} are revisions; name a file too: {revision} {file} -- model.gir")


def _may_be_revision(file: str) -> bool:
    return ":" not in file and file != "-" and ".gir" not in file and has_git() and is_revision(file)


def side(word: str) -> Side:
    """Return the side that one word names, such as ``HEAD:model.gir`` or ``:model.gir``."""
    if (found := _IN_INDEX.fullmatch(word)) and not _is_file(word):
        return Side(found["path"], f":{found['stage'] or 0}")
    revision, colon, path = word.partition(":")
    drive = os.name == "nt" and len(revision) == 1
    if colon and path and revision and not drive and not _is_file(word):
        return Side(path, revision)
    return Side(word)


def _here(path: str) -> str:
    inside = answer(["rev-parse", "--is-inside-work-tree"]) == b"true\n"
    return f"./{os.path.relpath(path)}" if inside else path


def _is_file(word: str) -> bool:
    return word == "-" or os.path.exists(word)  # noqa: PTH110 (a word may be too long for a path)
