"""How the file of a source line is shown: the same wherever the program and its libraries lie."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from gradir.frontends.texts import plain_text
from gradir.ir.text import printable
from gradir.lines import remember

_INSTALLED: Final = ("site-packages", "dist-packages")
# The folder of the cells of a notebook is named after its process.
_CELL: Final = re.compile(r"ipykernel_\d+")


class ShownPaths:
    """Shows a file relative to the deepest known folder around it.

    Those are the working directory and the folders of installed packages, else the folders to import from.
    """

    def __init__(self) -> None:
        self._roots = _standard()
        # The working directory may have been deleted.
        with suppress(OSError):
            self._roots.append(Path.cwd())
        self._imports = [Path(entry) for entry in sys.path if entry]
        self._known: dict[str, str] = {}

    def __call__(self, filename: str) -> str:
        """Return the file that Python calls so."""
        shown = self._known.get(filename)
        if shown is None:
            shown = self._known[filename] = printable(plain_text(self._relative(Path(filename)).as_posix()))
            remember(shown, filename)
        return shown

    def _relative(self, path: Path) -> Path:
        if not path.is_absolute():
            return path
        name = Path(path.name)
        if _CELL.fullmatch(path.parent.name):
            return name
        spellings = [path, *_real([path])]
        for roots in (self._roots, self._imports):
            for spelling in spellings:
                folders = [*roots, *_real(roots), *_installed(spelling)]
                found = [root for root in folders if spelling.is_relative_to(root)]
                if found:
                    return spelling.relative_to(max(found, key=lambda root: len(root.parts)))
        return name


def is_installed(filename: str) -> bool:
    """Return whether a file is a library's, installed or of Python itself, and not the user's own."""
    path = Path(filename)
    return any(True for _ in _installed(path)) or any(path.is_relative_to(root) for root in _standard())


def _standard() -> list[Path]:
    paths = sysconfig.get_paths()
    return [Path(paths[name]) for name in ("stdlib", "platstdlib") if paths.get(name)]


def _installed(path: Path) -> Iterator[Path]:
    return (parent for parent in path.parents if parent.name in _INSTALLED)


def _real(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        # A name that a program makes up may hold what no path does.
        with suppress(OSError, ValueError):
            yield Path(os.path.realpath(path))
