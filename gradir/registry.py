"""Find exporters, renderers, passes and front-ends by entry point, and fill in their options."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from functools import cache, cached_property
from types import FunctionType
from typing import Any, Final, Generic, TypeVar, Union

from gradir.entrypoints import EntryPoint, entry_points
from gradir.errors import ExportError, FrontendError, GradirError, PassError, did_you_mean, failing, warn
from gradir.gcpause import pause_gc
from gradir.ir import Graph
from gradir.options import OptionError, Options, expect_sound, fill_options
from gradir.pictures import PICTURES
from gradir.progress import stage
from gradir.protocols import Exporter, Frontend, LiveCapture, Pass, Renderer

# The format of a diff's picture, which gradir draws from the text of the renderer ``dot``.
DRAWN: Final = "svg"

_OWN: Final = ("gradir.", "gradir_exporters.")
# The arguments of `gradir.export` and `Graph.to` beside options.
_OF_EXPORT: Final = ("self", "graph", "exporter")

P = TypeVar("P")
T = TypeVar("T")
W = TypeVar("W", bound=Union[Exporter[Any], Renderer[Any]])


class Finder(Generic[P]):
    """Finds the plug-ins of one group; call it with a name to get a plug-in.

    A plug-in must have ``members``, and no options with ``reserved`` names.
    """

    def __init__(
        self, group: str, noun: str, error: type[GradirError], reserved: Collection[str] = (), **members: Any
    ) -> None:
        self._group, self._noun, self._error, self._members = group, noun, error, members
        self._reserved = reserved
        self._made: dict[str, P] = {}

    def names(self) -> tuple[str, ...]:
        """Return the sorted names of the installed plug-ins."""
        return tuple(sorted(self._found))

    def __call__(self, name: str) -> P:
        """Return the plug-in of a name."""
        self._expect_name(name)
        if name not in self._made:
            self._made[name] = self._load(name, lambda point: point.load()())
        return self._made[name]

    def kind(self, name: str) -> type[P]:
        """Return the class of a plug-in, without making one."""
        found: type[P] = self._load(name, EntryPoint.load)
        return found

    def working(self, load: Callable[[str], T]) -> dict[str, T]:
        """Return each plug-in by name as ``load`` returns it, and warn of those that it cannot load."""
        found = {}
        for name in self.names():
            try:
                each = load(name)
            except GradirError as error:
                warn(str(error))
                continue
            found[name] = each
        return found

    def failing(self, name: str) -> AbstractContextManager[None]:
        """Report anything that a plug-in raises inside as its failure."""
        return failing(f"{self._noun} {name!r} failed", self._error)

    def is_own(self, name: str) -> bool:
        """Return whether a plug-in is part of gradir."""
        return any(point.value.startswith(_OWN) for point in self._found[name])

    @cached_property
    def _found(self) -> Mapping[str, tuple[EntryPoint, ...]]:
        found: dict[str, tuple[EntryPoint, ...]] = {}
        # A package that is on the path twice registers the same value twice.
        for point in dict.fromkeys(entry_points(self._group)):
            found[point.name] = (*found.get(point.name, ()), point)
        return found

    def _load(self, name: str, load: Callable[[EntryPoint], Any]) -> Any:
        """Load a plug-in and check its members."""
        point = self._point(name)
        with failing(f"{self._noun} {name!r} ({point.value}) cannot be loaded", self._error):
            found = load(point)
            for member, kind in self._members.items():
                _expect_member(found, member, kind)
            # The check is slower than some commands, and tests cover gradir's own plug-ins.
            if Options in self._members.values() and not point.value.startswith(_OWN):
                expect_sound(found.options, self._reserved)
            for feature in sorted(found.features) if Set in self._members.values() else ():
                if hasattr(Frontend, feature) and not callable(getattr(found, feature, None)):
                    raise TypeError(f"it has the feature {feature!r}, and no method of that name")
        return found

    def _expect_name(self, name: object) -> None:
        if not isinstance(name, str):
            kind = f"the class {name.__name__}" if isinstance(name, type) else f"a value of type {type(name).__name__}"
            example = "".join(f", such as {known!r}" for known in self.names()[:1])
            raise TypeError(f"a {self._noun} is chosen by its name{example}, and this is {kind}")

    def _point(self, name: str) -> EntryPoint:
        noun, found = self._noun, self._found
        if not found:
            raise self._error(f"no {noun} is registered: gradir is not installed, or another package hides it")
        if name not in found:
            raise self._error(f"unknown {noun} {name!r}{self._advice(name)}")
        if len(found[name]) > 1:
            values = " and ".join(sorted(point.value for point in found[name]))
            raise self._error(f"two packages register the {noun} {name!r}: {values}; uninstall one of them")
        return found[name][0]

    def _advice(self, name: str) -> str:
        return f"{did_you_mean(name.lower(), self.names())}: choose from {', '.join(self.names())}"


class Writers(Finder[W]):
    """Finds plug-ins whose ``method`` writes text; ``pictures`` are formats without a plug-in."""

    def __init__(
        self, group: str, noun: str, method: str, pictures: Sequence[str], drawn: str, *, reserved: Collection[str]
    ) -> None:
        super().__init__(group, noun, ExportError, reserved, options=Options, suffix=str, **{method: Callable})
        self._method, self._pictures, self._drawn = method, pictures, drawn

    def options(self, name: str, values: Mapping[str, object], owner: str = "") -> Options:
        """Return the options of a plug-in, after parsing texts."""
        try:
            return fill_options(self(name).options, values, owner or f"{self._noun} {name!r}", strict=False)
        except OptionError as error:
            raise ExportError(str(error)) from error

    def text(self, name: str, source: object, values: Mapping[str, object]) -> str:
        """Run a plug-in with options as values or text, and return its text."""
        options, write = self.options(name, values), getattr(self(name), self._method)
        owner = f"{self._noun} {name!r}"
        with self.failing(name), pause_gc(), stage(f"writing: {owner}"):
            text = write(source, options)
        if not isinstance(text, str):
            raise ExportError(f"{owner} failed: it returned {type(text).__name__}, not text")
        try:
            # Python accepts half of a surrogate pair in a name, but no file can.
            text.encode()
        except UnicodeEncodeError as error:
            raise ExportError(f"{owner} failed: its text contains {text[error.start]!r}, which no file can") from error
        return text

    def _advice(self, name: str) -> str:
        if name in self._pictures:
            return f": {self._drawn}"
        near = did_you_mean(name.lower(), [*self.names(), *self._pictures])
        return f"{near}: choose from {', '.join(self.names())}; {self._drawn}"


exporter: Final = Writers[Exporter[Any]](
    "gradir.exporters",
    "exporter",
    "export",
    PICTURES,
    f"{', '.join(PICTURES[:-1])} and {PICTURES[-1]} are pictures, drawn by gradir.render and 'gradir export'",
    reserved=_OF_EXPORT,
)
renderer: Final = Writers[Renderer[Any]](
    "gradir.renderers",
    "renderer",
    "render",
    (DRAWN,),
    f"{DRAWN} is a picture, drawn by 'gradir diff --format {DRAWN}'",
    reserved=("self", "diff", "renderer"),
)
frontend: Final = Finder[Frontend](
    "gradir.frontends",
    "front-end",
    FrontendError,
    framework=str,
    takes=str,
    install=str,
    features=Set,
    claims=classmethod,
    capture=Callable,
)
pass_: Final = Finder[Pass[Any]](
    "gradir.passes", "pass", PassError, _OF_EXPORT, options=Options, order=int, run=Callable
)

exporter_names: Final = exporter.names
exporter_options: Final = exporter.options
export: Final = exporter.text
renderer_names: Final = renderer.names
renderer_options: Final = renderer.options
render: Final = renderer.text


def suffix(name: str, values: Mapping[str, object]) -> str:
    """Return the file suffix of an exporter with these options.

    >>> suffix("tree", {}), suffix("summary", {"style": "markdown"})
    ('.txt', '.md')
    """
    options = exporter_options(name, values)
    found = exporter(name)
    suffix_for = getattr(found, "suffix_for", None)
    return found.suffix if suffix_for is None else str(suffix_for(options))


def expect_nodes(name: str) -> None:
    """Raise if an exporter shows no nodes, which an overlay needs."""
    if not getattr(exporter(name), "shows_nodes", True):
        raise ExportError(f"{name} shows modules and no nodes, so it cannot show an overlay: use tree, dot or mermaid")


def shows_channels(name: str) -> bool:
    """Return whether an exporter shows every channel of an overlay; most show one."""
    return bool(getattr(exporter(name), "shows_channels", False))


# The cache makes gradir report a broken pass once.
@cache
def passes() -> Mapping[str, Pass[Any]]:
    """Return the installed passes by name in the order in which they run, and warn of broken ones."""
    found: dict[str, Pass[Any]] = {}
    options: dict[str, str] = {}
    # gradir's own passes come first and keep their options, wherever others are installed.
    for name, each in sorted(pass_.working(pass_).items(), key=lambda item: (not pass_.is_own(item[0]), item[0])):
        taken = next((option for option in each.options.__struct_fields__ if option in options), None)
        if taken is not None:
            warn(f"pass {name!r} is left out: the pass {options[taken]!r} has the option {taken} too")
            continue
        options.update(dict.fromkeys(each.options.__struct_fields__, name))
        found[name] = each
    return dict(sorted(found.items(), key=lambda item: (item[1].order, item[0])))


def run_pass(name: str, graph: Graph, options: Options) -> Graph:
    """Run a pass and return its graph."""
    with pass_.failing(name), stage(f"pass {name}"):
        result = passes()[name].run(graph, options)
    if not isinstance(result, Graph):
        raise PassError(f"pass {name!r} failed: it returned {type(result).__name__}, not a graph")
    return result


def expect_live(name: str, found: LiveCapture) -> LiveCapture:
    """Return the capture of a front-end, or raise if it is not one."""
    with frontend.failing(name):
        graph = getattr(found, "graph", None)
    if not isinstance(graph, Graph):
        kind = type(found).__name__
        raise FrontendError(f"front-end {name!r} failed: it returned {kind}, not an object whose 'graph' is a Graph")
    return found


def _expect_member(found: object, member: str, kind: Any) -> None:
    """Raise TypeError if a plug-in lacks a member; a ``classmethod`` needs no instance."""
    if not hasattr(found, member):
        raise TypeError(f"it has no {member!r}")
    value = getattr(found, member)
    if kind is Options:
        fits = isinstance(value, type) and issubclass(value, Options)
    elif kind is classmethod:
        owner = found if isinstance(found, type) else type(found)
        # Only the declaration distinguishes a static method from a method.
        declared = next((vars(base)[member] for base in owner.__mro__ if member in vars(base)), None)
        fits = callable(value) and not isinstance(declared, FunctionType)
    else:
        fits = isinstance(value, kind)
    if not fits:
        raise TypeError(f"its {member!r} is no {kind.__name__}")
    if member == "suffix" and not str(value).startswith("."):
        raise TypeError(f"its 'suffix' is {value!r}, which has no dot in front")
