"""The file that git keeps its settings in, and the sections in it that are gradir's own."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, Literal

from gradir.git.repository import git_path

__all__ = ["Where", "config_home", "config_path", "without_sections"]

Where = Literal["local", "global"]
"""For one repository with all its worktrees, or for all repositories of the user."""

_SECTIONS: Final = re.compile(
    rb'^\[diff "gradir"\]\n(?:\t(?:textconv|cachetextconv|made|unended) = .*\n)+'
    rb'\[difftool "gradir"\]\n(?:\tcmd = .*\n)+(?=\[|\Z)',
    re.MULTILINE,
)
"""Both sections where git wrote them one after the other and nobody has put anything else in."""


def config_path(where: Where) -> Path:
    """The file that ``git config --local`` or ``--global`` would write, whether it is there or not.

    Raises:
        GitError: git is missing, or this is no repository (`NoRepositoryError`).
    """
    if where == "local":
        return git_path("config")
    if "GIT_CONFIG_GLOBAL" in os.environ:
        return Path(os.environ["GIT_CONFIG_GLOBAL"])
    own, shared = Path("~/.gitconfig").expanduser(), config_home() / "config"
    return shared if not os.access(own, os.R_OK) and os.access(shared, os.R_OK) else own


def config_home() -> Path:
    """The folder of git's files that are not in the home itself."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()) / "git"


def without_sections(data: bytes, *, unended: bool) -> bytes:
    r"""A configuration without gradir's sections, where they stand as they were written; otherwise as it is.

    git can unset them too, but leaves the name of a section below a comment and takes an empty one of the user.
    ``unended`` says that the file did not end in a newline when git appended to it.

    >>> ours = b'[diff "gradir"]\n\ttextconv = x\n[difftool "gradir"]\n\tcmd = y\n'
    >>> without_sections(b"# mine\n" + ours, unended=True)
    b'# mine'
    """
    found = _SECTIONS.search(data)
    if found is None:
        return data
    before, after = data[: found.start()], data[found.end() :]
    if unended and not after:
        before = before.removesuffix(b"\n")
    return before + after
