"""Find the front-end for a request and let it capture. Finding one imports no framework."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from msgspec.structs import replace

from gradir import registry
from gradir.errors import CaptureError, GradirError, warn
from gradir.protocols import (
    Alike,
    Frontend,
    LiveCapture,
    MadeOtherError,
    Reached,
    Recorder,
    Running,
    Told,
    Verification,
    Watching,
)
from gradir.request import FEATURES, CaptureRequest, declared
from gradir.spec import calling_on_import

if TYPE_CHECKING:
    from gradir.explanations.model import Explanation
    from gradir.ir import Graph

T = TypeVar("T")

_CAPTURE: Final = "e.g. gradir capture net.py:Net --input 'float32[1,3]' -o net.gir"
_OTHER_FORMATS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (".safetensors", ".npz", ".h5"), f"a file of weights, without a graph; capture the model, {_CAPTURE}"
    ),
    ".onnx": f"an ONNX model, which has no autograd graph; capture the program that it was exported from, {_CAPTURE}",
    ".ipynb": "a notebook; call gradir.capture(loss).save('loss.gir') in a cell, or move the model to a .py file",
}
"""Files that people have beside their models, by suffix; a front-end knows those of its framework."""


class Both(NamedTuple):
    """Both graphs of one run, or in ``missing`` the reason why there is no forward graph."""

    graph: Graph
    forward: Graph | None = None
    missing: str = ""
    checked: Verification | None = None


def captured(request: CaptureRequest) -> Graph:
    """Return the graph that a request asks for.

    Raises:
        StoppedError: a forward graph was requested, and the program raised after an operation.
        CaptureError: there is none, no front-end takes the target, or it lacks a feature.
        GradirError: the chosen front-end is unknown.
    """
    if request.graph == "both":
        told = _spelled(request, "graph")
        raise CaptureError(f"{told} captures two graphs, but this needs one; choose autograd or forward")
    return _captured(request)[1].graph


def captured_both(request: CaptureRequest, *, verify: bool = False) -> Both:
    """Return the autograd graph and, if the front-end records it, the forward graph of the same run.

    Raises:
        CaptureError: there is no autograd graph, or it cannot be verified on request.
    """
    expect_possible(request, verify=verify)
    name = frontend_of(request)
    can = "flow" in registry.frontend(name).features
    live, own = _captured(replace(request, graph="both" if can else None))[1:]
    forward: Graph | str = getattr(live, "forward", "") or f"front-end {name!r} cannot {FEATURES['flow']}"
    checked = _verified(name, live, own, request, keep_graph=False) if verify else None
    return (
        Both(live.graph, None, forward, checked) if isinstance(forward, str) else Both(live.graph, forward, "", checked)
    )


def verified(request: CaptureRequest, *, keep_graph: bool) -> tuple[Graph, Verification]:
    """Capture a graph and compare it with the framework's engine, or with itself; see `gradir.verify`.

    Raises:
        CaptureError: also if a backward cannot run, or runs only once and the graph is kept.
    """
    expect_possible(request, verify=True)
    name, live, own = _captured(request)
    return live.graph, _verified(name, live, own, request, keep_graph=keep_graph)


def run_alike(request: CaptureRequest, path: str, pairs: Mapping[str, str] | None = None) -> Alike | None:
    """Run a program beside another one with equal weights and inputs; see `gradir.protocols.Frontend.run_alike`.

    Raises:
        CaptureError: it cannot be run, or its front-end cannot do that.
    """
    name, own = _prepared(request)
    found = able(name, "run_alike", "--run")
    with _failing(name, request):
        return found.run_alike(own, path, pairs)


def explained(request: CaptureRequest) -> Explanation:
    """Explain which parameters get a gradient and why others do not; see `gradir.explain`.

    Raises:
        CaptureError: there are no tensors, no front-end takes the target, or it captures a forward pass only.
        GradirError: the chosen front-end is unknown.
    """
    from gradir import fallbacks

    name = frontend_of(request)
    found = registry.frontend(name)
    if "explain" not in found.features:
        # Without a backward there are no values, which is what False asks for.
        plain = replace(request, flow="flow" in found.features, values=request.values or None)
        return fallbacks.explanation_of(name, captured(plain))
    name, own = _prepared(request)
    with _failing(name, request):
        return found.explain(own)


def expect_possible(request: CaptureRequest, *, verify: bool = False) -> None:
    """Refuse options that exclude each other, or a verification.

    Raises:
        CaptureError: there are some.
    """
    told = partial(_spelled, request)
    if request.graph == "both" and request.collectives:
        raise CaptureError(
            f"cannot use {told('collectives')} with {told('graph')}: only the first runs a backward; choose one"
        )
    if request.graph in {"forward", "joint", "compiled"} and (verify or request.collectives or request.cost):
        why = "verifying" if verify else told("collectives" if request.collectives else "cost")
        raise CaptureError(f"{why} needs an autograd graph, which {told('graph')} does not capture; choose one")
    if verify and request.collectives:
        raise CaptureError(f"verifying needs an autograd graph, which {told('collectives')} uses up; choose one")
    if request.dry and not request.collectives:
        raise CaptureError("--dry needs --collectives")
    if request.step != 1 and not request.collectives:
        raise CaptureError("--step needs --collectives")


def recording(request: CaptureRequest) -> Recorder:
    """Return a recorder of the front-end; see `gradir.record`.

    Raises:
        CaptureError: no or several front-ends are possible, or the chosen one lacks a feature.
        GradirError: the chosen front-end is unknown.
    """
    if request.frontend is not None or request.model is not None:
        name = claiming(request.model, chosen=request.frontend)
    else:
        around = _usable()
        name = _only([name for name, kind in around.items() if "record" in kind.features] or around, "what runs")
    able(name, "record")
    _expect_features(name, request)
    return registry.frontend(name).record(request)


def frontend_of(request: CaptureRequest) -> str:
    """Return the name of the front-end for a request: the chosen one, or the one that claims its objects.

    Raises:
        CaptureError: there is none, or there are several.
        GradirError: the chosen front-end is unknown.
    """
    target = request.target
    if request.frontend is None and request.is_program and callable(target):
        return _only(_claimants(_loaded(), target, _needed(request)) or _general(_usable()), _told(target))
    around = () if request.is_program else (request.inputs, request.kwargs, request.model, request.params)
    return claiming(target, *around, chosen=request.frontend, needed=_needed(request))


def claiming(*objects: object, chosen: str | None = None, needed: Collection[str] = ()) -> str:
    """Return the chosen front-end, or the one that claims an object or the content of a container.

    If several do, choose the one with all ``needed`` features. If none does, choose the only front-end whose
    framework is loaded, since it reports best what is wrong.

    Raises:
        CaptureError: no front-end or several claim an object.
        GradirError: the chosen front-end is unknown.
    """
    if chosen is not None:
        registry.frontend(chosen)
        return chosen
    loaded = _loaded()
    for part in _parts(objects):
        names = _claimants(loaded, part, needed)
        if names:
            return _only(names, _told(part))
    general = _general(loaded)
    return _only(general if len(general) == 1 else (), _told(objects[0]))


def able(name: str, feature: str, spelled: str = "") -> Frontend:
    """Return the front-end of a name, which must have a feature; ``spelled`` is the option that asks for it.

    Raises:
        CaptureError: it lacks the feature.
    """
    found = registry.frontend(name)
    if feature in found.features:
        return found
    others = [other for other, kind in kinds().items() if feature in kind.features and _is_there(kind.framework)]
    have = f"of those installed {' and '.join(others) or 'none'} can"
    told = f" ({spelled})" if spelled else ""
    what = f"{FEATURES[feature]}{told}" if feature in FEATURES else f"take {spelled or feature}"
    raise CaptureError(f"front-end {name!r} cannot {what}: {have}")


def unable(feature: str) -> Iterator[str]:
    """Yield a sentence for each loaded front-end that lacks a feature."""
    loaded = _loaded()
    for name in _general(loaded):
        if feature not in loaded[name].features:
            yield f"front-end {name!r} cannot {FEATURES[feature]}"


@cache
def kinds() -> Mapping[str, type[Frontend]]:
    """Return the classes of the installed front-ends by name, and warn of broken ones."""
    found = {}
    for name in registry.frontend.names():
        try:
            kind = registry.frontend.kind(name)
        except GradirError as error:
            warn(str(error))
            continue
        found[name] = kind
    return found


def other_format(path: str) -> str:
    """Describe a file by its name with the command that works instead; return an empty text if it is unknown.

    >>> other_format("model.onnx").partition(",")[0], other_format("model.gir")
    ('an ONNX model', '')
    """
    suffix = path[path.rfind(".") :].lower() if "." in path else ""
    known = _OTHER_FORMATS.get(suffix, "")
    return known or next(filter(None, (getattr(kind, "files", {}).get(suffix) for kind in kinds().values())), "")


def reader_of(path: str) -> tuple[str, str]:
    """Return the front-end that reads files of this name, and their description; both are empty if none does.

    >>> reader_of("net.gir")
    ('', '')
    """
    suffix = path[path.rfind(".") :].lower() if "." in path else ""
    readers = ((name, getattr(kind, "reads", {}).get(suffix, "")) for name, kind in kinds().items())
    return next((found for found in readers if found[1]), ("", ""))


def read(data: bytes, path: str) -> Graph:
    """Return the graph in the bytes of a file that a front-end reads.

    Raises:
        FormatError: it holds no graph, or none that can be read.
        CaptureError: the framework is not there.
    """
    name, _ = reader_of(path)
    with registry.frontend.failing(name):
        found: Any = registry.frontend(name)
        graph: object = found.read(data)
    return registry.expect_graph(name, graph)


def releasing() -> Iterator[Frontend]:
    """Return the front-ends that may keep graphs."""
    return (each for each in map(registry.frontend, _loaded()) if "release" in each.features)


def seeding(number: int) -> AbstractContextManager[None]:
    """Seed every framework: now if it is loaded, else when it is imported inside the context."""
    return _calling_once_loaded("seed", lambda _, found: found.seed(number))


def standing_in(rank: int, world: int, chosen: str | None) -> AbstractContextManager[None]:
    """Let the program inside run as one rank of many, with the chosen or a capable front-end.

    Raises:
        CaptureError: none can, or there are several.
    """
    if chosen is None:
        usable = {name: kind for name, kind in _usable().items() if "standing_in" in kind.features}
        chosen = _only(usable or _usable(), "a rank without the others")
    return able(chosen, "standing_in").standing_in(rank, world)


def running(request: CaptureRequest, reached: Reached) -> AbstractContextManager[Mapping[str, Running]]:
    """Let every front-end that can record the program inside; yield the results by name."""
    return _seeing("running", lambda found: found.running(request, reached))


def watching(told: Told) -> AbstractContextManager[Mapping[str, Watching]]:
    """Let every front-end that can watch the training inside; yield the results by name."""
    return _seeing("watching", lambda found: found.watching(told))


@contextmanager
def _seeing(feature: str, look: Callable[[Frontend], AbstractContextManager[T]]) -> Iterator[Mapping[str, T]]:
    seeing: dict[str, T] = {}
    with ExitStack() as entered:

        def see(name: str, found: Frontend) -> None:
            seeing[name] = entered.enter_context(look(found))

        with _calling_once_loaded(feature, see):
            yield seeing


def advice(error: BaseException | None) -> str:
    """Return how to install the framework that an import did not find, for the end of an error."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    installs = dict.fromkeys(kind.install for kind in kinds().values() if kind.framework == name)
    return "".join(f"; {install}" for install in installs)


def _captured(request: CaptureRequest) -> tuple[str, LiveCapture, CaptureRequest]:
    """Return a capture, the name of its front-end, and the request as that front-end took it."""
    expect_possible(request)
    name, own = _prepared(request)
    with _failing(name, request):
        try:
            return name, registry.expect_live(name, registry.frontend(name).capture(own)), own
        except MadeOtherError as error:
            # Whoever claims what was made has nothing to run, without data or from a seed.
            made = replace(request, target=error.made, is_program=False, seed=None, fake=False, inputs=(), kwargs=None)
    return _captured(made)


def _prepared(request: CaptureRequest) -> tuple[str, CaptureRequest]:
    """Return the front-end for a request, and the request as that front-end takes it."""
    name = frontend_of(request)
    _expect_features(name, request)
    found = registry.frontend(name)
    if ("program" if request.is_program else "inputs") in found.features:
        return name, request
    from gradir import fallbacks

    with _failing(name, request):
        return name, fallbacks.run(found, request)


def _verified(
    name: str, live: LiveCapture, own: CaptureRequest, request: CaptureRequest, *, keep_graph: bool
) -> Verification:
    """Compare a capture with a real backward pass, or if the front-end runs none, with a second capture."""
    found = registry.frontend(name)
    with _failing(name, request):
        if "verify" in found.features:
            return found.verify(live, keep_graph=keep_graph)
    from gradir import fallbacks

    def again() -> Graph:
        with _failing(name, request):
            return registry.expect_live(name, found.capture(own)).graph

    # To run a program a second time may give something else.
    return fallbacks.verification_of(name, live.graph, None if own.is_program else again)


def _expect_features(name: str, request: CaptureRequest) -> None:
    runs_itself = "program" in registry.frontend(name).features
    for option, feature in _features(request):
        if runs_itself or feature != "inputs":
            able(name, feature, _spelled(request, option))


def _features(request: CaptureRequest) -> Iterator[tuple[str, str]]:
    """Yield the options given in a request, each with the feature that it needs."""
    for option, each in declared().items():
        value = getattr(request, option)
        # What compares in its own way, as a tensor does, is never a default.
        is_default = value is each.default or (isinstance(value, (bool, int, str, tuple)) and value == each.default)
        feature = each.option.values.get(value, each.option.needs) if isinstance(value, str) else each.option.needs
        if feature and not is_default:
            yield option, feature


def _spelled(request: CaptureRequest, option: str) -> str:
    value = getattr(request, option)
    if not request.is_program:
        return f"{option}={value!r}" if isinstance(value, (bool, int, str)) else option
    flag = str(declared()[option].flag)
    return f"{flag} {value}" if isinstance(value, str) else flag


def _failing(name: str, request: CaptureRequest) -> AbstractContextManager[None]:
    """Report what the front-end raises as its failure, except in Python, where it may run the user's model."""
    return registry.frontend.failing(name) if request.is_program else nullcontext()


def _calling_once_loaded(feature: str, call: Callable[[str, Frontend], None]) -> AbstractContextManager[None]:
    def calling(names: Iterable[str]) -> None:
        for name in names:
            call(name, registry.frontend(name))

    # One framework may have several front-ends.
    able_ones: dict[str, list[str]] = {}
    for name, kind in kinds().items():
        if feature in kind.features:
            able_ones.setdefault(kind.framework, []).append(name)
    calls = {framework: partial(calling, names) for framework, names in able_ones.items()}
    for framework, loaded in calls.items():
        if sys.modules.get(framework) is not None:
            loaded()
    return calling_on_import(calls)


def _loaded() -> dict[str, type[Frontend]]:
    return {name: kind for name, kind in kinds().items() if sys.modules.get(kind.framework) is not None}


def _claimants(loaded: Mapping[str, type[Frontend]], value: object, needed: Collection[str] = ()) -> list[str]:
    names = []
    for name, kind in loaded.items():
        with registry.frontend.failing(name):
            if kind.claims(value):
                names.append(name)
    fitting = [name for name in names if loaded[name].features >= {*needed}] or names
    preceded = {other for name in fitting for other in getattr(loaded[name], "before", ())}
    return [name for name in fitting if name not in preceded]


def _general(names: Mapping[str, type[Frontend]]) -> list[str]:
    """Return the front-ends that are not for a part of another one's objects."""
    return [name for name, kind in names.items() if not getattr(kind, "before", ())]


def _needed(request: CaptureRequest) -> set[str]:
    return {feature for _, feature in _features(request)}


def _usable() -> dict[str, type[Frontend]]:
    """Return the front-ends whose framework is loaded, or could be if none is."""
    return _loaded() or {name: kind for name, kind in kinds().items() if _is_there(kind.framework)}


def _parts(objects: Iterable[object]) -> Iterator[object]:
    seen: set[int] = set()
    left = [*objects][::-1]
    while left:
        value = left.pop()
        if value is None or isinstance(value, (str, int, float, bytes)) or id(value) in seen:
            continue
        if type(value) not in (tuple, list, dict):
            yield value
        if isinstance(value, (tuple, list, dict)):
            seen.add(id(value))
            left += [*(value.values() if isinstance(value, dict) else value)][::-1]


def _told(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"an object of type {type(value).__name__}"


def _only(names: Iterable[str], what: str) -> str:
    found = [*names]
    if len(found) == 1:
        return found[0]
    if found:
        raise CaptureError(
            f"{' and '.join(found)} may all capture {what}: choose one with frontend={found[0]!r}, "
            f"on the command line --frontend {found[0]}"
        )
    offers = "; ".join(
        f"{name} takes {kind.takes}{_lack(kind.framework, kind.install)}" for name, kind in kinds().items()
    )
    raise CaptureError(f"no front-end captures {what}: {offers or 'none is installed'}")


def _is_there(framework: str) -> bool:
    return sys.modules.get(framework) is not None or find_spec(framework) is not None


def _lack(framework: str, install: str) -> str:
    if sys.modules.get(framework) is not None:
        return ""
    return f" ({framework} is not loaded)" if find_spec(framework) else f" ({framework} is not installed: {install})"
