"""Finds exporters, renderers, passes and front-ends by entry point, and fills in the options of those that write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gradir.entrypoints import EntryPoint, entry_points
from gradir.errors import ExportError, GradirError, PassError, warn
from gradir.gcpause import paused_gc
from gradir.hints import did_you_mean
from gradir.ir import Graph
from gradir.options import OptionError, Options, filled
from gradir.pictures import PICTURES
from gradir.protocols import Exporter, Frontend, Pass, Renderer

if TYPE_CHECKING:
    from gradir.review.comparison import Comparison

__all__ = [
    "DRAWN",
    "export",
    "exporter",
    "exporter_names",
    "exporter_options",
    "frontend",
    "frontend_names",
    "passes",
    "rendered",
    "renderer",
    "renderer_names",
    "renderer_options",
    "run_pass",
    "suffix",
]


DRAWN: Final = "svg"
"""The picture that a diff can be drawn as, from the text of its renderer ``dot``."""


class _Group(NamedTuple):
    """A kind of plug-in: the group of its entry points, what one is called, and what is raised where one fails."""

    name: str
    noun: str
    error: type[GradirError]


_EXPORTERS: Final = _Group("gradir.exporters", "exporter", ExportError)
_RENDERERS: Final = _Group("gradir.renderers", "renderer", ExportError)
_FRONTENDS: Final = _Group("gradir.frontends", "front-end", GradirError)
_PASSES: Final = _Group("gradir.passes", "pass", PassError)


def exporter_names() -> tuple[str, ...]:
    """The names of the installed exporters, sorted."""
    return tuple(sorted(_found(_EXPORTERS)))


def renderer_names() -> tuple[str, ...]:
    """The names of the installed renderers of a diff, sorted."""
    return tuple(sorted(_found(_RENDERERS)))


def frontend_names() -> tuple[str, ...]:
    """The names of the installed front-ends, sorted."""
    return tuple(sorted(_found(_FRONTENDS)))


def exporter(name: str) -> Exporter[Any]:
    """The exporter of that name.

    Raises:
        ExportError: there is none, its module cannot be imported, or it is no exporter.
    """
    found: Exporter[Any] = _loaded(_EXPORTERS, name)
    return found


def export(name: str, graph: Graph, values: Mapping[str, object]) -> str:
    """Run the exporter of that name with options given as values or as text, the cyclic garbage collector paused.

    Raises:
        ExportError: there is no such exporter or option, the format cannot hold the graph, or the exporter fails.
    """
    options = exporter_options(name, values)
    return _text_of(f"exporter {name!r}", lambda: exporter(name).export(graph, options))


def renderer(name: str) -> Renderer[Any]:
    """The renderer of that name.

    Raises:
        ExportError: there is none, its module cannot be imported, or it is no renderer.
    """
    found: Renderer[Any] = _loaded(_RENDERERS, name)
    return found


def rendered(name: str, comparison: Comparison, values: Mapping[str, object]) -> str:
    """Run the renderer of that name with options given as values or as text.

    Raises:
        ExportError: there is no such renderer or option, the format cannot hold the diff, or the renderer fails.
    """
    options = renderer_options(name, values)
    return _text_of(f"renderer {name!r}", lambda: renderer(name).render(comparison, options))


def _text_of(whose: str, make: Callable[[], object]) -> str:
    """What a plug-in makes, the cyclic garbage collector paused; whatever it raises beside errors is its failure."""
    try:
        with paused_gc():
            text = make()
    except (GradirError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise ExportError(f"{whose} failed: {_said(error)}") from error
    if not isinstance(text, str):
        raise ExportError(f"{whose} failed: it returned {type(text).__name__}, not text")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ExportError(f"{whose} failed: its text holds {text[error.start]!r}, which no file can") from error
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


def exporter_options(name: str, values: Mapping[str, object], whose: str = "") -> Options:
    """The options of the named exporter; a value given as text is read as its option's type.

    Errors say ``whose`` options these are: where nothing is given, the exporter's.

    Raises:
        ExportError: an option that the exporter does not have, or a value that the option does not take.
    """
    return _options(exporter(name).options, values, whose or f"exporter {name!r}")


def renderer_options(name: str, values: Mapping[str, object]) -> Options:
    """The options of the named renderer; a value given as text is read as its option's type.

    Raises:
        ExportError: an option that the renderer does not have, or a value that the option does not take.
    """
    return _options(renderer(name).options, values, f"renderer {name!r}")


def _options(kind: type[Options], values: Mapping[str, object], whose: str) -> Options:
    try:
        return filled(kind, values, whose, strict=False)
    except OptionError as error:
        raise ExportError(str(error)) from error


@cache
def passes() -> Mapping[str, Pass[Any]]:
    """The installed passes by name, in the order in which they run. One that is broken is warned of and left out.

    >>> list(passes())[-2:]
    ['rollup', 'fold']
    """
    found: dict[str, Pass[Any]] = {}
    options: dict[str, str] = {}
    # Whoever else takes an option of gradir's own passes is left out, wherever it is installed.
    for name in sorted(_found(_PASSES), key=lambda name: (not _is_own(_PASSES, name), name)):
        try:
            each: Pass[Any] = _loaded(_PASSES, name)
        except PassError as error:
            warn(str(error))
            continue
        taken = next((option for option in each.options.__struct_fields__ if option in options), None)
        if taken is not None:
            warn(f"pass {name!r} is left out: the pass {options[taken]!r} has the option {taken} too")
            continue
        options.update(dict.fromkeys(each.options.__struct_fields__, name))
        found[name] = each
    return dict(sorted(found.items(), key=lambda item: (item[1].order, item[0])))


def run_pass(name: str, graph: Graph, options: Options) -> Graph:
    """Run the pass of that name.

    Raises:
        PassError: it cannot do what the options ask for, or fails.
    """
    try:
        left = passes()[name].run(graph, options)
    except (GradirError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise PassError(f"pass {name!r} failed: {_said(error)}") from error
    if not isinstance(left, Graph):
        raise PassError(f"pass {name!r} failed: it returned {type(left).__name__}, not a graph")
    return left


def frontend(name: str) -> Frontend:
    """The front-end of that name.

    Raises:
        GradirError: there is none, or its module cannot be imported.
    """
    found: Frontend = _loaded(_FRONTENDS, name)
    return found


@cache
def _found(group: _Group) -> Mapping[str, tuple[EntryPoint, ...]]:
    found: dict[str, dict[str, EntryPoint]] = {}
    for point in entry_points(group.name):
        # One package seen twice on the path registers the same value twice.
        found.setdefault(point.name, {}).setdefault(point.value, point)
    return {name: tuple(points.values()) for name, points in found.items()}


def _is_own(group: _Group, name: str) -> bool:
    return any(point.value.startswith("gradir.") for point in _found(group)[name])


@cache
def _loaded(group: _Group, name: str) -> Any:
    """The plug-in of that name, made once."""
    point = _find(group, name)
    try:
        found = point.load()()
        for problem in _problems(group, found):
            raise TypeError(problem)
    except (GradirError, KeyboardInterrupt):
        raise
    except BaseException as error:
        # To leave the program is not for a plug-in: whatever it raises is its failure.
        raise group.error(f"{group.noun} {name!r} ({point.value}) cannot be loaded: {_said(error)}") from error
    return found


def _find(group: _Group, name: str) -> EntryPoint:
    noun, found = group.noun, _found(group)
    if not found:
        raise group.error(f"no {noun} at all is registered: gradir is not installed, or what is beside it hides that")
    if name not in found:
        raise group.error(f"unknown {noun} {name!r}{_advice(group, name, found)}")
    if len(found[name]) > 1:
        values = " and ".join(sorted(point.value for point in found[name]))
        raise group.error(f"two packages register the {noun} {name!r}: {values}; uninstall one of them")
    return found[name][0]


def _advice(group: _Group, name: str, registered: Mapping[str, object]) -> str:
    choices = f"choose from {', '.join(sorted(registered))}"
    if group == _RENDERERS:
        drawn = f"{DRAWN} is a picture, drawn by 'gradir diff --format {DRAWN}'"
        near = did_you_mean(name.lower(), [*registered, DRAWN])
        return f": {drawn}" if name == DRAWN else f"{near}: {choices}; {drawn}"
    if group != _EXPORTERS:
        return f"{did_you_mean(name.lower(), registered)}: {choices}"
    *most, last = PICTURES
    drawn = f"{', '.join(most)} and {last} are pictures, drawn by gradir.render and 'gradir export'"
    if name in PICTURES:
        return f": {drawn}"
    return f"{did_you_mean(name.lower(), [*registered, *PICTURES])}: {choices}; {drawn}"


def _problems(group: _Group, loaded: object) -> Iterator[str]:
    """What makes a loaded object no plug-in of its group."""
    if group == _FRONTENDS:
        return
    options = getattr(loaded, "options", None)
    if not (isinstance(options, type) and issubclass(options, Options)):
        yield "its 'options' are not a subclass of gradir.Options"
    method = {_EXPORTERS: "export", _RENDERERS: "render"}.get(group, "")
    if method and not (callable(getattr(loaded, method, None)) and isinstance(getattr(loaded, "suffix", None), str)):
        yield f"it needs a method {method!r} and a file 'suffix'"
    if group == _PASSES and not (
        callable(getattr(loaded, "run", None)) and isinstance(getattr(loaded, "order", None), int)
    ):
        yield "it needs a method 'run' and a number 'order'"


def _said(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
