"""Convert text, numbers and paths of live objects to values for files, which are the same in every process."""

from __future__ import annotations

import math
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, cast

from gradir.ir.model import AttrScalar, NonFinite
from gradir.ir.text import escape_unprintable
from gradir.lines import remember

_INT64 = range(-(2**63), 2**63)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
# Python writes an int as decimal slowly, and may refuse to from 640 digits on.
_MAX_DECIMAL_BITS = 2_000


def plain_int(value: int) -> AttrScalar:
    """Return an integer of 64 bits unchanged, and a longer one as decimal or, if it is very long, hexadecimal text."""
    if value in _INT64:
        return value
    return str(value) if value.bit_length() <= _MAX_DECIMAL_BITS else hex(value)


def plain_float(value: float) -> AttrScalar:
    """Return a float as the value for a file."""
    if math.isfinite(value):
        return value
    return NonFinite("nan" if math.isnan(value) else "inf" if value > 0 else "-inf")


def text_of(value: object) -> str:
    """Return the characters of a str, also with another ``__str__``, and ``str`` of others if it works."""
    try:
        return plain_text(cast("str", value) if issubclass(type(value), str) else str(value))
    except Exception:  # noqa: BLE001 (a user's __str__ must not break a capture)
        return type(value).__name__


def plain_texts(texts: list[str]) -> list[str]:
    """Return the `plain_text` of each text."""
    # Most texts are plain, so check all of them at once.
    together = "".join(texts)
    are_plain = {*map(type, texts)} == {str} and plain_text(together) is together
    return texts if are_plain else list(map(plain_text, texts))


def plain_text(text: str) -> str:
    """Return a plain str without object addresses, which vary between runs, or lone surrogates, which fit no file."""
    if type(text) is not str:
        text = "".join((text,))
    if " at 0x" in text:
        text = _ADDRESS.sub("", text)
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


_INSTALLED: Final = ("site-packages", "dist-packages")
# The folder of a notebook's cells has the number of the process in its name.
_CELL: Final = re.compile(r"ipykernel_\d+")
# The name of generated code counts in the process, as that of sympy, and may name a file, as that of torch.fx.
_GENERATED: Final = re.compile(r"(<\w+)(?:>\.\d+.*|-\d+>)")


class ShownPaths:
    """Shows a file relative to the deepest known folder around it.

    Known are the working directory and the folders of installed packages, or else the folders to import from.
    """

    def __init__(self) -> None:
        self._roots = [*_standard_folders()]
        # The working directory may no longer exist.
        with suppress(OSError):
            self._roots.append(Path.cwd())
        self._imports = [Path(entry) for entry in sys.path if entry]
        self._known: dict[str, str] = {}

    def __call__(self, filename: str) -> str:
        """Return the path to show for a file name of Python."""
        shown = self._known.get(filename)
        if shown is None:
            shown = self._known[filename] = escape_unprintable(plain_text(self._relative(Path(filename)).as_posix()))
            remember(shown, filename)
        return shown

    def _relative(self, path: Path) -> Path:
        if not path.is_absolute():
            return Path(_GENERATED.sub(r"\1>", str(path)))
        name = Path(path.name)
        if _CELL.fullmatch(path.parent.name):
            return name
        spellings = [path, *_resolve([path])]
        for roots in (self._roots, self._imports):
            for spelling in spellings:
                folders = [*roots, *_resolve(roots), *_package_folders(spelling)]
                found = [root for root in folders if spelling.is_relative_to(root)]
                if found:
                    return spelling.relative_to(max(found, key=lambda root: len(root.parts)))
        return name


def is_installed(filename: str) -> bool:
    """Return whether a file belongs to Python or to an installed library, and not to the user."""
    path = Path(filename)
    return any(True for _ in _package_folders(path)) or any(path.is_relative_to(root) for root in _standard_folders())


# Python reads its paths anew at each call, which takes 0.25 ms.
@cache
def _standard_folders() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    return tuple(Path(paths[name]) for name in ("stdlib", "platstdlib") if paths.get(name))


def _package_folders(path: Path) -> Iterator[Path]:
    return (parent for parent in path.parents if parent.name in _INSTALLED)


def _resolve(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        # A program may invent a name that is no valid path.
        with suppress(OSError, ValueError):
            yield Path(os.path.realpath(path))
