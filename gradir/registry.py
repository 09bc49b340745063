"""Finds exporters and front-ends by entry point, and fills in an exporter's options."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

import msgspec

from gradir.entrypoints import EntryPoint, entry_points
from gradir.errors import ExportError, GradirError
from gradir.gcpause import paused_gc
from gradir.ir import Graph
from gradir.protocols import Exporter, Frontend, Options

__all__ = [
    "export",
    "exporter",
    "exporter_names",
    "exporter_options",
    "frontend",
    "frontend_names",
    "option_choices",
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
    except (Exception, SystemExit) as error:
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
    except GradirError:
        raise
    except Exception as error:
        raise ExportError(f"exporter {name!r} failed: {_said(error)}") from error
    if not isinstance(text, str):
        raise ExportError(f"exporter {name!r} failed: it returned {type(text).__name__}, not text")
    return text


def frontend(name: str) -> Frontend:
    """The front-end of that name.

    Raises:
        GradirError: there is none, or its module cannot be imported.
    """
    point = _find(FRONTENDS, name, "front-end", GradirError)
    try:
        found: Frontend = point.load()()
    except GradirError:
        raise
    except (Exception, SystemExit) as error:
        raise GradirError(f"front-end {name!r} ({point.value}) cannot be loaded: {_said(error)}") from error
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
        raise ExportError(f"exporter {name!r}: {_wrong_value(kind, values, str(error))}") from error


def option_choices(kind: type[Options], option: str) -> str:
    """What the named option takes, in a few words: ``TB|LR``, ``true|false``, ``integer``.

    >>> from gradir.protocols import Options
    >>> class Mine(Options, frozen=True, kw_only=True):
    ...     shapes: bool = True
    >>> option_choices(Mine, "shapes")
    'true|false'
    """
    (field,) = (field for field in msgspec.structs.fields(kind) if field.name == option)
    schema = msgspec.json.schema(field.type)
    branches = [branch for branch in schema.get("anyOf", [schema]) if branch.get("type") != "null"]
    return "|".join(words for branch in branches for words in _words(branch))


def _words(schema: Mapping[str, Any]) -> list[str]:
    if "enum" in schema:
        return [str(word) for word in schema["enum"]]
    return ["true", "false"] if schema.get("type") == "boolean" else [str(schema.get("type", "value"))]


def _wrong_value(kind: type[Options], values: Mapping[str, object], message: str) -> str:
    match = re.search(r"\$\.(\w+)", message)
    if match is None or match[1] not in values:
        return message
    option = match[1]
    bound = f" ({message.partition(' - at ')[0]})" if "=" in message else ""
    return f"option {option} is {option_choices(kind, option)}, not {values[option]!r}{bound}"


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
        raise error_type(f"unknown {noun} {name!r}{_hint(name, found)}: choose from {', '.join(sorted(found))}")
    if len(found[name]) > 1:
        values = " and ".join(sorted(point.value for point in found[name]))
        raise error_type(f"two packages register the {noun} {name!r}: {values}; uninstall one of them")
    return found[name][0]


def _check_exporter(found: object) -> None:
    options = getattr(found, "options", None)
    if not (isinstance(options, type) and issubclass(options, Options)):
        raise TypeError("its 'options' are not a subclass of gradir.Options")
    if not callable(getattr(found, "export", None)) or not isinstance(getattr(found, "suffix", None), str):
        raise TypeError("it needs a method 'export' and a file 'suffix'")


def _said(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _hint(wanted: str, known: Iterable[str]) -> str:
    import difflib

    close = difflib.get_close_matches(wanted, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
