"""Run git, read files of any revision, and find the two files of a comparison."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from gradir.errors import GradirError, warn

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

_MISSING: Final = "cannot run git: it is not on PATH; install git"


class GitError(GradirError):
    """git is missing, or refused to do something."""


class NoRepositoryError(GitError):
    """There is no repository here, or none that git would use."""


def output(arguments: Sequence[str]) -> bytes:
    """Return git's standard output, or raise a `GitError` with git's message."""
    done = _run(arguments)
    if done.returncode != 0:
        message = " ".join(done.stderr.decode(errors="replace").split()).removeprefix("fatal: ")
        raise GitError(f"git {arguments[0]}: {message or f'exit status {done.returncode}'}")
    return done.stdout


def git_path(name: str) -> Path:
    """Return the path of git's own file, such as ``config``; the same for all worktrees."""
    from pathlib import Path

    if not has_git():
        raise GitError(_MISSING)
    try:
        return Path(os.fsdecode(output(["rev-parse", "--git-path", name]).removesuffix(b"\n")))
    except GitError as error:
        raise NoRepositoryError(f"{error}; run this in a repository, or with --global") from error


def has_git() -> bool:
    """Return whether git is installed."""
    import shutil

    return shutil.which("git") is not None


def answer(arguments: Sequence[str]) -> bytes | None:
    """Return git's output if it exits with status 0."""
    done = _run(arguments)
    return None if done.returncode else done.stdout


def succeeds(arguments: Sequence[str]) -> bool:
    """Return whether git exits with status 0."""
    return answer(arguments) is not None


def is_revision(name: str) -> bool:
    """Return whether git knows a commit of this name here."""
    return succeeds(["rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"])


def read_blob(revision: str, path: str) -> bytes:
    """Return a file of a revision or, for ``:0`` to ``:3``, of a stage of the index, as git would check it out.

    A path that starts with ``./`` is relative to the working directory, any other to the root of the repository.
    """
    if not (revision.startswith(":") or is_revision(revision)):
        raise GitError(f"{revision}: git knows no such revision here")
    return output(["cat-file", "--filters", f"{revision}:{path}"])


def find_rename(path: str, revision: str, other: str) -> str:
    """Return a file's name in ``revision`` if it was renamed up to ``other``, or an empty text."""
    # `other` may be the index or, empty, the working tree.
    if path.startswith("./"):
        path = posixpath.normpath(os.fsdecode(output(["rev-parse", "--show-prefix"]).strip(b"\n")) + path)
    sides = (
        [revision, other] if other and not other.startswith(":") else ["--cached", revision] if other else [revision]
    )
    found = _run(["diff", "-z", "-M", "--name-status", "--diff-filter=R", *sides, "--"]).stdout
    entries = iter(os.fsdecode(found).split("\0"))
    return next((old for _, old, new in zip(entries, entries, entries, strict=False) if new == path), "")


def _run(arguments: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    # Not above, since a comparison of two files runs no git.
    import shutil
    import subprocess

    program = shutil.which("git")
    if program is None:
        raise GitError(_MISSING)
    return subprocess.run([program, *arguments], capture_output=True, check=False)  # noqa: S603 (without a shell)


# git searches commit messages for a name that begins with `:/`.
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
        """Return the file's content in its revision; errors suggest its name there if ``other`` has it renamed."""
        try:
            return read_blob(self.revision, self.path)
        except GitError as error:
            old = self._find_old_name(other) if other is not None else ""
            if not old:
                raise
            raise GitError(
                f"{self.name}: no such file; git says that {old} was renamed to it; compare {self.revision}:{old}"
            ) from error

    def _find_old_name(self, other: Side) -> str:
        if self.revision.startswith(":") or not is_revision(self.revision):
            return ""
        if other.revision and not other.revision.startswith(":") and not is_revision(other.revision):
            return ""
        return find_rename(self.path, self.revision, other.revision)


def sides(words: Sequence[str], paths: int = 0) -> tuple[Side, Side]:
    """Return the two sides that the arguments of a command line name.

    ``A B`` are two files; each may be ``REVISION:PATH``, ``:PATH`` or ``:STAGE:PATH``. ``REVISION PATH`` is the file
    then and now, and ``REVISION REVISION PATH`` the file in both. A word that names a file and a revision is the
    file, with a `GradirWarning`. ``paths`` is the number of words after ``--``.

    >>> [side.revision for side in sides(["HEAD~1", "HEAD", "model.gir"])]
    ['HEAD~1', 'HEAD']
    >>> sides(["a:b.gir", "-b.gir"], paths=2)
    (Side(path='a:b.gir', revision=''), Side(path='-b.gir', revision=''))
    >>> sides([":2:model.gir", ":3:model.gir"])
    (Side(path='model.gir', revision=':2'), Side(path='model.gir', revision=':3'))
    """
    if len(words) == 3:
        before, after, path = words
        return Side(_relative(path), before), Side(_relative(path), after)
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
        return Side(_relative(second), first), Side(second)
    if not _is_file(first) and ":" not in first:
        _check_revision(first, second)
        return Side(_relative(second), first), Side(second)
    may_be_revision = ":" not in first and first != "-" and ".gir" not in first
    if not paths and may_be_revision and has_git() and is_revision(first):
        warn(f"{first}: the file is compared, and not the revision of this name: write {first} -- {second} for that")
    return side(first), side(second)


def _check_revision(revision: str, file: str) -> None:
    if not has_git() or not is_revision(revision):
        raise GradirError(f"{revision}: neither a file nor a revision that git knows")
    if not _is_file(file) and is_revision(file):
        raise GradirError(f"{revision} and {file} are revisions; name a file too: {revision} {file} -- model.gir")


def side(word: str) -> Side:
    """Return the side that one word names, such as ``HEAD:model.gir`` or ``:model.gir``."""
    if (found := _IN_INDEX.fullmatch(word)) and not _is_file(word):
        return Side(found["path"], f":{found['stage'] or 0}")
    revision, colon, path = word.partition(":")
    drive = os.name == "nt" and len(revision) == 1
    if colon and path and revision and not drive and not _is_file(word):
        return Side(path, revision)
    return Side(word)


def _relative(path: str) -> str:
    inside = answer(["rev-parse", "--is-inside-work-tree"]) == b"true\n"
    return f"./{os.path.relpath(path)}" if inside else path


def _is_file(word: str) -> bool:
    return word == "-" or os.path.exists(word)  # noqa: PTH110 (a word may be too long for a path)
