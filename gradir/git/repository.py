"""Run git, and read files of any revision."""

from __future__ import annotations

import os
import posixpath
from typing import TYPE_CHECKING, Final

from gradir.errors import GradirError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence
    from pathlib import Path

_MISSING: Final = "cannot run git: it is not on PATH; install git"


class GitError(GradirError):
    """git is missing, or refused to do something."""


class NoRepositoryError(GitError):
    """There is no repository here, or none that git would use."""


def output(arguments: Sequence[str]) -> bytes:
    """Return git's standard output.

    Raises:
        GitError: git is not installed or failed; the message is what it said.
    """
    done = _run(arguments)
    if done.returncode != 0:
        said = " ".join(done.stderr.decode(errors="replace").split())
        raise GitError(f"git {arguments[0]}: {said.removeprefix('fatal: ') or f'exit status {done.returncode}'}")
    return done.stdout


def git_path(name: str) -> Path:
    """Return the path of git's own file, such as ``config``; the same for all worktrees.

    Raises:
        NoRepositoryError: this is no repository.
        GitError: git is not installed.
    """
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

    Raises:
        GitError: there is no such revision, or no such file in it.
    """
    if revision.startswith(":"):
        return output(["cat-file", "--filters", f"{revision}:{path}"])
    if not is_revision(revision):
        raise GitError(f"{revision}: git knows no such revision here")
    try:
        return output(["cat-file", "--filters", f"{revision}:{path}"])
    except GitError:
        if submodule := _submodule(revision, path):
            raise GitError(f"{revision}:{path}: {submodule} is a submodule: run this in it") from None
        raise


def renamed(path: str, revision: str, other: str) -> str:
    """Return the name of another revision's file in this one, or an empty text."""
    # `other` may be the index or, empty, the working tree.
    if path.startswith("./"):
        path = posixpath.normpath(os.fsdecode(output(["rev-parse", "--show-prefix"]).strip(b"\n")) + path)
    sides = (
        [revision, other] if other and not other.startswith(":") else ["--cached", revision] if other else [revision]
    )
    found = _run(["diff", "-z", "-M", "--name-status", "--diff-filter=R", *sides, "--"]).stdout
    entries = iter(os.fsdecode(found).split("\0"))
    return next((old for _, old, new in zip(entries, entries, entries, strict=False) if new == path), "")


def _submodule(revision: str, path: str) -> str:
    names = path.split("/")
    above = ["/".join(names[:count]) for count in range(1, len(names))]
    question = ["ls-tree", "-z", *([] if path.startswith("./") else ["--full-tree"]), revision, "--", *above]
    found = _run(question).stdout.split(b"\0") if above else []
    return next((os.fsdecode(line.partition(b"\t")[2]) for line in found if line.startswith(b"160000 ")), "")


def _run(arguments: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    # Imported when git is run: to compare two files it is not.
    import shutil
    import subprocess

    program = shutil.which("git")
    if program is None:
        raise GitError(_MISSING)
    return subprocess.run([program, *arguments], capture_output=True, check=False)  # noqa: S603 (without a shell)
