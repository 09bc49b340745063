"""Read the table ``[tool.gradir]`` of a project's pyproject.toml."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

from gradir.errors import FileError, GradirError, did_you_mean
from gradir.files import working_folder

_FILE: Final = "pyproject.toml"
_KEYS: Final = ("allow",)
_MOST_BYTES: Final = 2**20
_MOST_PATTERNS: Final = 1000
# Parsing a dotted key takes time quadratic in its parts; this is some seconds.
_MOST_WORK: Final = 10**8


class Project(NamedTuple):
    """The settings: the patterns of cuts to ``allow`` in explanations, and their file ``where``."""

    allow: tuple[str, ...] = ()
    where: str = ""


def project(folder: str | os.PathLike[str] | None = None) -> Project:
    """Return the table of the nearest pyproject.toml in or above a folder, by default the working directory."""
    start = working_folder() if folder is None else folder
    for above in (Path(start), *Path(start).parents) if start else ():
        # `Path.is_file` raises if the folder is unreadable.
        if os.path.isfile(above / _FILE):  # noqa: PTH113
            where = os.path.relpath(above / _FILE)
            if (table := _table(where)) is not None:
                return Project(_read_patterns(table, where), where)
    return Project()


def _table(where: str) -> dict[str, Any] | None:
    try:
        with Path(where).open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise FileError(where, "read", error.strerror, error.errno) from error
    # A file without this table may have any content, so gradir does not parse it.
    if b"gradir" not in data:
        return None
    if len(data) > _MOST_BYTES:
        raise GradirError(f"{where}: is larger than 1 MiB, the limit")
    tool = _parse_toml(data, where).get("tool", {})
    table = tool.get("gradir") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise GradirError(f"{where}: tool.gradir must be a table: write [tool.gradir], and its keys below it")
    return table


def _parse_toml(data: bytes, where: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    if sum(line.count(b".") ** 2 for line in data.splitlines()) > _MOST_WORK:
        raise GradirError(f"{where}: has a key with too many parts")
    try:
        return tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise GradirError(f"{where}: is not TOML: {error}") from error


def _read_patterns(table: dict[str, Any], where: str) -> tuple[str, ...]:
    for key in table:
        if key not in _KEYS:
            raise GradirError(f"{where}: tool.gradir has no key {key!r}{did_you_mean(key, _KEYS)}: it has {_KEYS[0]}")
    allow = table.get("allow", [])
    if not isinstance(allow, list) or not all(isinstance(each, str) and each.strip() for each in allow):
        raise GradirError(f'{where}: tool.gradir.allow must be a list of patterns, such as ["teacher.*"]')
    if len(allow) > _MOST_PATTERNS:
        raise GradirError(f"{where}: tool.gradir.allow has more than {_MOST_PATTERNS:,} patterns: '*' is any text")
    return tuple(allow)
