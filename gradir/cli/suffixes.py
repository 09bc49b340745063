"""Which format the name of a file to write asks for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from gradir.errors import ExportError, GradirError
from gradir.pictures import PICTURES

__all__ = ["check_suffix", "format_of"]

_ALSO: Final[Mapping[str, str]] = {".gv": ".dot", ".htm": ".html", ".mermaid": ".mmd"}
"""Further names of formats."""
_TEXT: Final = ".txt"
"""What any text may be called."""
_JSON: Final = {".cyjs": ".json"}
"""Formats that are another one too."""
_GRAPHS: Final = (".gir", ".gir.gz", ".gir.zst")


def format_of(output: str) -> str:
    """The exporter, or the picture, that the name of a file asks for.

    Raises:
        ExportError: it asks for none, or for one of several.
    """
    end = _suffix(output)
    names = _named(end) if end else []
    if len(names) == 1:
        return names[0]
    if names:
        raise ExportError(f"{output} may be {_either(names)}: choose one with --to NAME")
    offers = "-o with a name such as x.svg says the format, or --to NAME; see gradir export --help"
    raise ExportError(f"{output}: no exporter writes {end}; {offers}" if end else f"which format? {offers}")


def check_suffix(output: str, name: str, own: str, *, fenced: bool = False) -> None:
    """Refuse a name that asks for another format than the one that was chosen, whose own suffix is given.

    Raises:
        ExportError: it does.
    """
    end = _suffix(output)
    if end in {"", own, _JSON.get(own, own)} or (end == _TEXT and name not in PICTURES) or (fenced and end == ".md"):
        return
    others = ["a graph"] if output.lower().endswith(_GRAPHS) else _named(end)
    if others and name not in others:
        raise ExportError(f"{output} is the name of {_either(others)}, and --to says {name}: change one of them")


def _suffix(output: str) -> str:
    # No path: a command that writes to standard output starts without what makes one.
    end = os.path.splitext(output)[1].lower() if output != "-" else ""  # noqa: PTH122
    return _ALSO.get(end, end)


def _named(suffix: str) -> list[str]:
    """All that have a suffix."""
    from gradir import registry

    found = [name for name in PICTURES if suffix == f".{name}"]
    for name in registry.exporter_names():
        try:
            kind = registry.exporter.kind(name)
        except GradirError:
            # It says so to whoever names it.
            continue
        if suffix in {kind.suffix, _JSON.get(kind.suffix)} and name not in found:
            found.append(name)
    return found


def _either(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]
