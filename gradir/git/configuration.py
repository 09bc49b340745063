"""Edit git's configuration and attributes files, and record the additions of an installation."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Final, Literal, NamedTuple

from gradir.errors import GradirError
from gradir.git.repository import answer, git_path, output, succeeds

# One repository with all its worktrees, or all repositories of the user.
Where = Literal["local", "global"]
# The sections as git wrote them, without edits; earlier releases of gradir set no merge.
_SECTIONS: Final = re.compile(
    rb'^\[diff "gradir"\]\n(?:\t(?:textconv|cachetextconv|made|unended) = .*\n)+'
    rb'\[difftool "gradir"\]\n(?:\tcmd = .*\n)+(?:\[merge "gradir"\]\n(?:\tdriver = .*\n)+)?(?=\[|\Z)',
    re.MULTILINE,
)
_MADE: Final = "diff.gradir.made"
_UNENDED: Final = "diff.gradir.unended"
# The settings with the record.
RECORDS: Final = (_MADE, _UNENDED)
_BEGIN: Final = "# gradir: begin"
_BEGIN_UNENDED: Final = "# gradir: begin, after a line that had no end"
_BEGINS: Final = (_BEGIN, _BEGIN_UNENDED)
_END: Final = "# gradir: end"


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


def remove_sections(data: bytes, *, unended: bool) -> bytes:
    r"""Return a configuration without gradir's sections, if they are unchanged.

    git can unset them too, but leaves the name of a section below a comment. ``unended`` means that the file did not
    end in a newline before.

    >>> ours = b'[diff "gradir"]\n\ttextconv = x\n[difftool "gradir"]\n\tcmd = y\n'
    >>> remove_sections(b"# mine\n" + ours, unended=True)
    b'# mine'
    """
    found = _SECTIONS.search(data)
    if found is None:
        return data
    before, after = data[: found.start()], data[found.end() :]
    if unended and not after:
        before = before.removesuffix(b"\n")
    return before + after


class Record(NamedTuple):
    """The created files and folders, and whether the configuration did not end in a newline."""

    made: tuple[Path, ...] = ()
    unended: bool = False


def find_missing(path: Path) -> tuple[Path, ...]:
    """Return a path and the folders above it that do not exist, innermost first."""
    return tuple(place for place in (path, *path.parents) if not place.exists())


def read_record(where: Where) -> Record:
    """Return the record of the installation."""
    names = (answer(["config", f"--{where}", "-z", "--get-all", _MADE]) or b"").split(b"\0")[:-1]
    home = config_path(where).parent if names else Path()
    unended = succeeds(["config", f"--{where}", "--get", _UNENDED])
    return Record(tuple(home / os.fsdecode(name) for name in names), unended)


def add_to_record(where: Where, record: Record) -> None:
    """Add to the record."""
    home = config_path(where).parent
    known = read_record(where).made
    for path in record.made:
        if path not in known:
            # Relative to the configuration, so that both can move together.
            name = path.relative_to(home) if path.is_relative_to(home) else path.absolute()
            output(["config", f"--{where}", "--add", _MADE, str(name)])
    if record.unended:
        output(["config", f"--{where}", "--replace-all", _UNENDED, "true"])


def tidy(record: Record) -> None:
    """Remove created files and folders that are empty now."""
    for path in record.made:
        # Later changes are the user's.
        with contextlib.suppress(OSError):
            place = Path(os.path.realpath(path))
            if place.is_dir():
                place.rmdir()
            elif place.is_file() and not place.stat().st_size:
                place.unlink()


def add_block(text: str, lines: list[str]) -> str:
    r"""Return the text with exactly one block of these lines, at its end.

    >>> add_block("*.png binary\n", ["*.gir diff=gradir"])
    '*.png binary\n# gradir: begin\n*.gir diff=gradir\n# gradir: end\n'
    """
    rest = remove_block(text)
    begin = f"\n{_BEGIN_UNENDED}" if rest and not rest.endswith("\n") else _BEGIN
    return "".join([rest, *(f"{line}\n" for line in (begin, *lines, _END))])


def remove_block(text: str) -> str:
    r"""Return the text as it was before `add_block`.

    >>> remove_block(add_block("*.png binary", ["*.gir diff=gradir"]))
    '*.png binary'
    """
    others: list[str] = []
    inside = unended = False
    marks = [line.strip() for line in text.splitlines()]
    if sum(map(marks.count, _BEGINS)) != marks.count(_END):
        raise GradirError(f"the attributes have {_BEGIN!r} without {_END!r}, or the reverse; correct them by hand")
    for line in text.splitlines(keepends=True):
        mark = line.strip()
        if mark in _BEGINS:
            inside, unended = True, mark == _BEGIN_UNENDED
        elif mark == _END and inside:
            inside = False
        elif not inside:
            others.append(line)
            unended = False
    rest = "".join(others)
    return rest.removesuffix("\n") if unended else rest


def has_block(text: str) -> bool:
    """Return whether the text has a block."""
    return any(line.strip() in _BEGINS for line in text.splitlines())
