"""Runs git, and reads files of any revision."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from gradir.errors import GradirError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["GitError", "NoRepositoryError", "git_path", "has_git", "is_revision", "output", "read_blob", "succeeds"]


_MISSING: Final = "this needs git, which is not on the PATH"


class GitError(GradirError):
    """git is missing, or refused to do something."""


class NoRepositoryError(GitError):
    """There is no repository here, or none that git would use."""


def output(arguments: Sequence[str]) -> bytes:
    """What git prints on standard output.

    Raises:
        GitError: git is not installed or failed; the message is what it said.
    """
    done = _run(arguments)
    if done.returncode != 0:
        said = " ".join(done.stderr.decode(errors="replace").split())
        raise GitError(f"git {arguments[0]}: {said.removeprefix('fatal: ') or f'exit status {done.returncode}'}")
    return done.stdout


def git_path(name: str) -> Path:
    """Where the repository has a file of git's own, such as ``config``; the same for all its worktrees.

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
    """Whether git is installed."""
    return _program() is not None


def succeeds(arguments: Sequence[str]) -> bool:
    """Whether git exits with status 0.

    Raises:
        GitError: git is not installed.
    """
    return _run(arguments).returncode == 0


def is_revision(name: str) -> bool:
    """Whether git knows a commit of this name here."""
    return succeeds(["rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"])


def read_blob(revision: str, path: str) -> bytes:
    """The content of a file in a revision, as git would check it out.

    A path that starts with ``./`` is relative to the working directory, any other to the root of the repository.

    Raises:
        GitError: there is no such revision, or no such file in it.
    """
    if not is_revision(revision):
        raise GitError(f"{revision}: git knows no such revision here")
    return output(["cat-file", "--filters", f"{revision}:{path}"])


def _run(arguments: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    # Imported when git is run: to compare two files it is not.
    import subprocess

    program = _program()
    if program is None:
        raise GitError(_MISSING)
    return subprocess.run([program, *arguments], capture_output=True, check=False)  # noqa: S603 (without a shell)


def _program() -> str | None:
    import shutil

    return shutil.which("git")
