"""Edit git's configuration and attributes files."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, Literal

from gradir.errors import GradirError
from gradir.git.repository import git_path

# One repository with all its worktrees, or all repositories of the user.
Where = Literal["local", "global"]
# The sections as git wrote them, without edits; earlier releases of gradir set no merge, or more keys.
_SECTIONS: Final = re.compile(
    rb'^\[diff "gradir"\]\n(?:\t(?:textconv|cachetextconv|made|unended) = .*\n)+'
    rb'\[difftool "gradir"\]\n(?:\tcmd = .*\n)+(?:\[merge "gradir"\]\n(?:\tdriver = .*\n)+)?(?=\[|\Z)',
    re.MULTILINE,
)
_BEGIN: Final = "# gradir: begin"
_END: Final = "# gradir: end"
_MARK: Final = re.compile(r"^[ \t]*# gradir: (?:begin(?:,.*)?|end)[ \t\r]*$", re.MULTILINE)
# An earlier release wrote more words after the first ones.
_BLOCK: Final = re.compile(
    rf"^[ \t]*{_BEGIN}(?:,.*)?\n(?:(?![ \t]*# gradir: ).*\n)*[ \t]*{_END}[ \t\r]*$\n?", re.MULTILINE
)


def config_path(where: Where) -> Path:
    """Return the file that ``git config --local`` or ``--global`` would write."""
    if where == "local":
        return git_path("config")
    if "GIT_CONFIG_GLOBAL" in os.environ:
        return Path(os.environ["GIT_CONFIG_GLOBAL"])
    own, shared = Path("~/.gitconfig").expanduser(), config_home() / "config"
    return shared if not os.access(own, os.R_OK) and os.access(shared, os.R_OK) else own


def config_home() -> Path:
    """Return the folder of git's files outside the home directory itself."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()) / "git"


def remove_sections(data: bytes) -> bytes:
    """Return a configuration without gradir's sections, if they are unchanged."""
    # git can unset them too, but leaves the name of a section below a comment.
    return _SECTIONS.sub(b"", data, count=1)


def add_block(text: str, lines: list[str]) -> str:
    """Return the text with exactly one block of these lines, at its end."""
    rest = remove_block(text)
    end = "\n" if rest and not rest.endswith("\n") else ""
    return "".join([rest, end, *(f"{line}\n" for line in (_BEGIN, *lines, _END))])


def remove_block(text: str) -> str:
    """Return the text without the blocks of `add_block`."""
    rest = _BLOCK.sub("", text)
    if has_block(rest):
        raise GradirError(f"the attributes have {_BEGIN!r} without {_END!r}, or the reverse; correct them by hand")
    return rest


def has_block(text: str) -> bool:
    """Return whether the text has the beginning or end of a block."""
    return _MARK.search(text) is not None
