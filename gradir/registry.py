"""Finds exporters and front-ends by entry point, and fills in an exporter's options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

from gradir.entrypoints import EntryPoint, entry_points
from gradir.errors import ExportError, GradirError
from gradir.gcpause import paused_gc
from gradir.ir import Graph
from gradir.options import OptionError, filled
from gradir.pictures import PICTURES
from gradir.protocols import Exporter, Frontend, Options

__all__ = [
    "export",
    "exporter",
    "exporter_names",
    "exporter_options",
    "frontend",
    "frontend_names",
    "suffix",
]

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
        ExportError: there is none, its module cannot be imported, or it is no exporter.
    """
    point = _find(EXPORTERS, name, "exporter", ExportError)
    try:
        found: Exporter[Any] = point.load()()
        _check_exporter(found)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # To leave the program is not for a plug-in: whatever it raises is its failure.
        raise ExportError(f"exporter {name!r} ({point.value}) cannot be loaded: {_said(error)}") from error
    return found


def export(name: str, graph: Graph, values: Mapping[str, object]) -> str:
    """Run the exporter of that name with options given as values or as text, the cyclic garbage collector paused.

    Raises:
        ExportError: there is no such exporter or option, the format cannot hold the graph, or the exporter fails.
    """
    options = exporter_options(name, values)
    try:
        with paused_gc():
            text = exporter(name).export(graph, options)
    except (GradirError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise ExportError(f"exporter {name!r} failed: {_said(error)}") from error
    if not isinstance(text, str):
        raise ExportError(f"exporter {name!r} failed: it returned {type(text).__name__}, not text")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ExportError(
            f"exporter {name!r} failed: its text holds {text[error.start]!r}, which no file can"
        ) from error
    return text


def suffix(name: str, values: Mapping[str, object]) -> str:
    """The file suffix of what the exporter of that name gives with these options.

    Raises:
        ExportError: there is no such exporter or option.

    >>> suffix("tree", {}), suffix("summary", {"style": "markdown"})
    ('.txt', '.md')
    """
    options = exporter_options(name, values)
    found = exporter(name)
    suffix_for = getattr(found, "suffix_for", None)
    return found.suffix if suffix_for is None else str(suffix_for(options))


def frontend(name: str) -> Frontend:
    """The front-end of that name.

    Raises:
        GradirError: there is none, or its module cannot be imported.
    """
    point = _find(FRONTENDS, name, "front-end", GradirError)
    try:
        found: Frontend = point.load()()
    except (GradirError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise GradirError(f"front-end {name!r} ({point.value}) cannot be loaded: {_said(error)}") from error
    return found


def exporter_options(name: str, values: Mapping[str, object], whose: str = "") -> Options:
    """The options of the named exporter; a value given as text is read as its option's type.

    Errors say ``whose`` options these are: where nothing is given, the exporter's.

    Raises:
        ExportError: an option that the exporter does not have, or a value that the option does not take.
    """
    kind = exporter(name).options
    try:
        return filled(kind, values, whose or f"exporter {name!r}", strict=False)
    except OptionError as error:
        raise ExportError(str(error)) from error


@cache
def _found(group: str) -> Mapping[str, tuple[EntryPoint, ...]]:
    found: dict[str, dict[str, EntryPoint]] = {}
    for point in entry_points(group):
        # One package seen twice on the path registers the same value twice.
        found.setdefault(point.name, {}).setdefault(point.value, point)
    return {name: tuple(points.values()) for name, points in found.items()}


def _find(group: str, name: str, noun: str, error_type: type[GradirError]) -> EntryPoint:
    found = _found(group)
    if not found:
        raise error_type(f"no {noun} at all is registered: gradir is not installed, or what is beside it hides that")
    if name not in found:
        raise error_type(f"unknown {noun} {name!r}{_advice(group, name, found)}")
    if len(found[name]) > 1:
        values = " and ".join(sorted(point.value for point in found[name]))
        raise error_type(f"two packages register the {noun} {name!r}: {values}; uninstall one of them")
    return found[name][0]


def _advice(group: str, name: str, registered: Mapping[str, object]) -> str:
    choices = f"choose from {', '.join(sorted(registered))}"
    if group != EXPORTERS:
        return f"{_hint(name, registered)}: {choices}"
    *most, last = PICTURES
    drawn = f"{', '.join(most)} and {last} are pictures, drawn by gradir.render and 'gradir export'"
    return f": {drawn}" if name in PICTURES else f"{_hint(name, [*registered, *PICTURES])}: {choices}; {drawn}"


def _check_exporter(loaded: object) -> None:
    options = getattr(loaded, "options", None)
    if not (isinstance(options, type) and issubclass(options, Options)):
        raise TypeError("its 'options' are not a subclass of gradir.Options")
    if not callable(getattr(loaded, "export", None)) or not isinstance(getattr(loaded, "suffix", None), str):
        raise TypeError("it needs a method 'export' and a file 'suffix'")


def _said(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _hint(wanted: str, known: Iterable[str]) -> str:
    import difflib

    close = difflib.get_close_matches(wanted.lower(), list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
