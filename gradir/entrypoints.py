"""Find entry points quickly.

`importlib.metadata` also imports parsers of mail headers and zip archives, which takes a fifth of the time of a small
export. This module reads the files of installed distributions itself and uses `importlib.metadata` only for archives
and eggs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from importlib.machinery import PathFinder
from typing import Any, Final, NamedTuple

_INFO: Final = (".dist-info", ".egg-info")
_FILE: Final = "entry_points.txt"


class EntryPoint(NamedTuple):
    """A name, and the object to import as ``module:attribute``."""

    name: str
    value: str

    def load(self) -> Any:
        """Import the object."""
        module, _, attributes = self.value.partition("[")[0].partition(":")
        found: Any = import_module(module.strip())
        for name in filter(None, attributes.strip().split(".")):
            found = getattr(found, name)
        return found


def entry_points(group: str) -> list[EntryPoint]:
    """Return the entry points of a group in all installed distributions."""
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_distributions")]
    # Programs also add paths of other types.
    path: list[object] = [*sys.path]
    if finders == [PathFinder] and not any(
        not isinstance(entry, str) or entry.lower().endswith(".egg") or os.path.isfile(entry) for entry in path
    ):
        return [point for data in _read_files(tuple(sys.path)) for point in _parse_group(data, group)]
    from importlib import metadata

    return [EntryPoint(point.name, point.value) for point in metadata.entry_points(group=group)]


@lru_cache(1)
def _read_files(path: tuple[str, ...]) -> list[bytes]:
    found = []
    for directory in _find_metadata(path):
        # Most distributions register nothing.
        with suppress(OSError), open(os.path.join(directory, _FILE), "rb") as file:
            found.append(file.read())
    return found


def _find_metadata(path: Iterable[str]) -> Iterator[str]:
    """Yield the metadata directory of each distribution, the first on the path."""
    seen = set()
    for entry in path:
        children: list[str] = []
        # An entry may be missing or unreadable.
        with suppress(OSError):
            children = sorted(os.listdir(entry or "."))
        for child in children:
            stem, suffix = os.path.splitext(child.lower())
            # PEP 503: names that differ in case or in these characters are one distribution.
            name = stem.partition("-")[0].replace("_", "-").replace(".", "-")
            if suffix in _INFO and name not in seen:
                seen.add(name)
                yield os.path.join(entry, child)


def _parse_group(data: bytes, group: str) -> Iterator[EntryPoint]:
    if group.encode() not in data:
        return
    section = ""
    for line in map(str.strip, data.decode(errors="replace").splitlines()):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        elif section == group and line and not line.startswith("#"):
            name, _, value = line.partition("=")
            yield EntryPoint(name.strip(), value.strip())
