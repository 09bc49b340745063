"""Let the front-end of a request capture, verify, explain or observe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any, BinaryIO, NamedTuple, TypeVar

from msgspec.structs import replace

from gradir import claims, fallbacks, protocols, registry
from gradir.errors import CaptureError
from gradir.explanations.model import Explanation
from gradir.ir import Graph
from gradir.request import FEATURES, CaptureRequest
from gradir.spec import calling_on_import

T = TypeVar("T")


class Both(NamedTuple):
    """Both graphs of one run, or in ``missing`` the reason why there is no forward graph."""

    graph: Graph
    forward: Graph | None = None
    missing: str = ""
    checked: protocols.Verification | None = None


class _Ran(NamedTuple):
    """A front-end's name, its capture, and the request as it took that."""

    name: str
    live: protocols.LiveCapture
    own: CaptureRequest


def captured(request: CaptureRequest) -> Graph:
    """Return the graph that a request asks for."""
    if request.graph == "both":
        told = claims.spelled_option(request, "graph")
        raise CaptureError(f"{told} captures two graphs, but this needs one; choose autograd or forward")
    return _captured(request).live.graph


def captured_both(request: CaptureRequest, *, verify: bool = False) -> Both:
    """Return the autograd graph and, if the front-end records it, the forward graph of the same run."""
    expect_possible(request, verify=verify)
    name = claims.frontend_of(request)
    can = "flow" in registry.frontend(name).features
    ran = _captured(replace(request, graph="both" if can else None))
    live = ran.live
    forward: Graph | str = getattr(live, "forward", "") or f"front-end {name!r} cannot {FEATURES['flow']}"
    checked = _verified(ran, is_program=request.is_program, keep_graph=False) if verify else None
    if isinstance(forward, str):
        return Both(live.graph, missing=forward, checked=checked)
    return Both(live.graph, forward, checked=checked)


def verified(request: CaptureRequest, *, keep_graph: bool) -> tuple[Graph, protocols.Verification]:
    """Capture a graph and compare it with the framework's engine, or with itself; see `gradir.verify`."""
    expect_possible(request, verify=True)
    ran = _captured(request)
    return ran.live.graph, _verified(ran, is_program=request.is_program, keep_graph=keep_graph)


def run_alike(request: CaptureRequest, path: str, pairs: Mapping[str, str] | None = None) -> protocols.Alike | None:
    """Run a program beside another one with equal weights and inputs; see `gradir.protocols.Frontend.run_alike`."""
    name, own = _prepared(request)
    found = claims.able(name, "run_alike", "--run")
    with _failing(name, request):
        return found.run_alike(own, path, pairs)


def explained(request: CaptureRequest) -> Explanation:
    """Explain which parameters get a gradient and why others do not; see `gradir.explain`."""
    name = claims.frontend_of(request)
    found = registry.frontend(name)
    if "explain" not in found.features:
        # Without a backward there are no values, which is what False asks for.
        plain = replace(request, flow="flow" in found.features, values=request.values or None)
        graph = captured(replace(plain, graph="joint") if "joint" in found.features else plain)
        return fallbacks.explanation_of(name, graph)
    name, own = _prepared(request)
    with _failing(name, request):
        try:
            return found.explain(own)
        except protocols.MadeOtherError as error:
            made = _of_made(request, error.made)
    return explained(made)


def expect_possible(request: CaptureRequest, *, verify: bool = False) -> None:
    """Refuse options that exclude each other, or a verification."""
    told = partial(claims.spelled_option, request)
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


def recording(request: CaptureRequest) -> protocols.Recorder:
    """Return a recorder of the front-end; see `gradir.record`."""
    if request.frontend is not None or request.model is not None:
        name = claims.claiming(request.model, chosen=request.frontend)
    else:
        around = claims.usable_kinds()
        name = claims.only_one(
            [name for name, kind in around.items() if "record" in kind.features] or around, "what runs"
        )
    claims.able(name, "record")
    _expect_features(name, request)
    return registry.frontend(name).record(request)


def read(file: BinaryIO, path: str) -> Graph:
    """Return the graph in an open file that a front-end reads."""
    name, _ = claims.reader_of(path)
    with registry.frontend.failing(name):
        found: Any = registry.frontend(name)
        graph: object = found.read(file)
    return registry.expect_graph(name, graph)


def releasing() -> Iterator[protocols.Frontend]:
    """Return the front-ends that may keep graphs."""
    return (each for each in map(registry.frontend, claims.loaded_kinds()) if "release" in each.features)


def seeding(number: int) -> AbstractContextManager[None]:
    """Seed every framework: now if it is loaded, else when it is imported inside the context."""
    return _calling_once_loaded("seed", lambda _, found: found.seed(number))


def standing_in(rank: int, world: int, chosen: str | None) -> AbstractContextManager[None]:
    """Let the program inside run as one rank of many, with the chosen or a capable front-end."""
    if chosen is None:
        usable = {name: kind for name, kind in claims.usable_kinds().items() if "standing_in" in kind.features}
        chosen = claims.only_one(usable or claims.usable_kinds(), "a rank without the others")
    return claims.able(chosen, "standing_in").standing_in(rank, world)


def running(
    request: CaptureRequest, reached: protocols.Reached
) -> AbstractContextManager[Mapping[str, protocols.Running]]:
    """Let every front-end that can record the program inside; yield the results by name."""
    return _seeing("running", lambda found: found.running(request, reached))


def watching(told: protocols.Told) -> AbstractContextManager[Mapping[str, protocols.Watching]]:
    """Let every front-end that can watch the training inside; yield the results by name."""
    return _seeing("watching", lambda found: found.watching(told))


@contextmanager
def _seeing(feature: str, look: Callable[[protocols.Frontend], AbstractContextManager[T]]) -> Iterator[Mapping[str, T]]:
    seeing: dict[str, T] = {}
    with ExitStack() as entered:

        def see(name: str, found: protocols.Frontend) -> None:
            seeing[name] = entered.enter_context(look(found))

        with _calling_once_loaded(feature, see):
            yield seeing


def _captured(request: CaptureRequest) -> _Ran:
    expect_possible(request)
    name, own = _prepared(request)
    with _failing(name, request):
        try:
            return _Ran(name, registry.expect_live(name, registry.frontend(name).capture(own)), own)
        except protocols.MadeOtherError as error:
            made = _of_made(request, error.made)
    return _captured(made)


def _of_made(request: CaptureRequest, made: object) -> CaptureRequest:
    """Return the request for what a program made: whoever claims it has nothing to run, without data or from a seed."""
    return replace(request, target=made, is_program=False, seed=None, fake=False, inputs=(), kwargs=None)


def _prepared(request: CaptureRequest) -> tuple[str, CaptureRequest]:
    """Return the front-end for a request, and the request as that front-end takes it."""
    name = claims.frontend_of(request)
    _expect_features(name, request)
    found = registry.frontend(name)
    if ("program" if request.is_program else "inputs") in found.features:
        return name, request
    with _failing(name, request):
        return name, fallbacks.run(found, request)


def _verified(ran: _Ran, *, is_program: bool, keep_graph: bool) -> protocols.Verification:
    name, live, own = ran
    found = registry.frontend(name)
    with registry.frontend.failing(name) if is_program else nullcontext():
        if "verify" in found.features:
            return found.verify(live, keep_graph=keep_graph)
        # To run a program a second time may give something else.
        again = None if own.is_program else registry.expect_live(name, found.capture(own)).graph
    return fallbacks.verification_of(name, live.graph, again)


def _expect_features(name: str, request: CaptureRequest) -> None:
    runs_itself = "program" in registry.frontend(name).features
    for option, feature in claims.features_of(request):
        if runs_itself or feature != "inputs":
            claims.able(name, feature, claims.spelled_option(request, option))


def _failing(name: str, request: CaptureRequest) -> AbstractContextManager[None]:
    """Report what the front-end raises as its failure, except in Python, where it may run the user's model."""
    return registry.frontend.failing(name) if request.is_program else nullcontext()


def _calling_once_loaded(feature: str, call: Callable[[str, protocols.Frontend], None]) -> AbstractContextManager[None]:
    def calling(names: Iterable[str]) -> None:
        for name in names:
            call(name, registry.frontend(name))

    # One framework may have several front-ends.
    able_ones: dict[str, list[str]] = {}
    for name, kind in claims.kinds().items():
        if feature in kind.features:
            able_ones.setdefault(kind.framework, []).append(name)
    calls = {framework: partial(calling, names) for framework, names in able_ones.items()}
    for framework, loaded in calls.items():
        if sys.modules.get(framework) is not None:
            loaded()
    return calling_on_import(calls)
