"""Finds exporters and front-ends by entry point, and fills in an exporter's options."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

import msgspec

from gradir.errors import ExportError, GradirError
from gradir.protocols import Exporter, Frontend, Options

__all__ = ["exporter", "exporter_names", "exporter_options", "frontend", "frontend_names"]

EXPORTERS: Final = "gradir.exporters"
FRONTENDS: Final = "gradir.frontends"


def exporter_names() -> tuple[str, ...]:
    """The names of the installed exporters, sorted."""
    return tuple(sorted(_found(EXPORTERS)))


def frontend_names() -> tuple[str, ...]:
    """The names of the installed front-ends, sorted."""
    return tuple(sorted(_found(FRONTENDS)))


def exporter(name: str) -> Exporter[Any]:
    """The exporter of that name.

    Raises:
        ExportError: there is none, or its module cannot be imported.
    """
    found: Exporter[Any] = _load(EXPORTERS, name, "exporter", ExportError)()
    return found


def frontend(name: str) -> Frontend:
    """The front-end of that name.

    Raises:
        GradirError: there is none, or its module cannot be imported.
    """
    found: Frontend = _load(FRONTENDS, name, "front-end", GradirError)()
    return found


def exporter_options(name: str, values: Mapping[str, object]) -> Options:
    """The options of the named exporter; a value given as text is read as its option's type.

    Raises:
        ExportError: an option that the exporter does not have, or a value that the option does not take.
    """
    kind = exporter(name).options
    known = kind.__struct_fields__
    for key in values:
        if key not in known:
            choices = f"its options are {', '.join(known)}" if known else "it has no options"
            raise ExportError(f"exporter {name!r} has no option {key!r}{_hint(key, known)}: {choices}")
    try:
        return msgspec.convert(dict(values), kind, strict=False)
    except msgspec.ValidationError as error:
        raise ExportError(f"exporter {name!r}: {error}") from error


@cache
def _found(group: str) -> Mapping[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        other = found.setdefault(point.name, point)
        if other.value != point.value:
            raise GradirError(f"two packages register {point.name!r} in {group}: {other.value} and {point.value}")
    return found


def _load(group: str, name: str, noun: str, error_type: type[GradirError]) -> Any:
    found = _found(group)
    if name not in found:
        raise error_type(f"unknown {noun} {name!r}{_hint(name, found)}: choose from {', '.join(sorted(found))}")
    try:
        return found[name].load()
    except Exception as error:
        raise error_type(f"{noun} {name!r} ({found[name].value}) cannot be loaded: {error}") from error


def _hint(wanted: str, known: Mapping[str, object] | tuple[str, ...]) -> str:
    close = difflib.get_close_matches(wanted, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
