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
    """A front-end's name, its capture, and the request that it got."""

    name: str
    live: protocols.LiveCapture
    request: CaptureRequest


def capture_graph(request: CaptureRequest) -> Graph:
    """Return the graph that a request asks for."""
    if request.graph == "both":
        option = claims.spell_option(request, "graph")
        raise CaptureError(f"{option} captures two graphs, but this needs one; choose autograd or forward")
    return _capture_live(request).live.graph


def capture_both(request: CaptureRequest, *, verify: bool = False) -> Both:
    """Return the autograd graph and, if the front-end records it, the forward graph of the same run."""
    expect_possible(request, verify=verify)
    name = claims.choose_frontend(request)
    has_flow = "flow" in registry.frontend(name).features
    ran = _capture_live(replace(request, graph="both" if has_flow else None))
    forward: Graph | str = getattr(ran.live, "forward", "") or f"front-end {name!r} cannot {FEATURES['flow']}"
    checked = _verify(ran, request, keep_graph=False) if verify else None
    if isinstance(forward, str):
        return Both(ran.live.graph, missing=forward, checked=checked)
    return Both(ran.live.graph, forward, checked=checked)


def capture_and_verify(request: CaptureRequest, *, keep_graph: bool) -> tuple[Graph, protocols.Verification]:
    """Capture a graph and compare it with the framework's engine, or with itself; see `gradir.verify`."""
    expect_possible(request, verify=True)
    ran = _capture_live(request)
    return ran.live.graph, _verify(ran, request, keep_graph=keep_graph)


def run_alike(request: CaptureRequest, path: str, pairs: Mapping[str, str] | None = None) -> protocols.Alike | None:
    """Run a program beside another one with equal weights and inputs; see `gradir.protocols.Frontend.run_alike`."""
    name, prepared = _prepare(request)
    frontend = claims.expect_feature(name, "run_alike", "--run")
    with _failing(name, request):
        return frontend.run_alike(prepared, path, pairs)


def explain_request(request: CaptureRequest) -> Explanation:
    """Explain which parameters get a gradient and why others do not; see `gradir.explain`."""
    name = claims.choose_frontend(request)
    frontend = registry.frontend(name)
    if "explain" not in frontend.features:
        # Without a backward pass there are no values, so False needs no feature.
        plain = replace(request, flow="flow" in frontend.features, values=request.values or None)
        graph = capture_graph(replace(plain, graph="joint") if "joint" in frontend.features else plain)
        return fallbacks.explanation_of(name, graph)
    name, prepared = _prepare(request)
    with _failing(name, request):
        try:
            return frontend.explain(prepared)
        except protocols.MadeOtherError as error:
            made = _replace_target(request, error.made)
    return explain_request(made)


def expect_possible(request: CaptureRequest, *, verify: bool = False) -> None:
    """Refuse options that exclude each other, or a verification."""
    spell = partial(claims.spell_option, request)
    if request.graph == "both" and request.collectives:
        raise CaptureError(
            f"cannot use {spell('collectives')} with {spell('graph')}: only the first runs a backward; choose one"
        )
    if request.graph in {"forward", "joint", "compiled"} and (verify or request.collectives or request.cost):
        why = "verifying" if verify else spell("collectives" if request.collectives else "cost")
        raise CaptureError(f"{why} needs an autograd graph, which {spell('graph')} does not capture; choose one")
    if verify and request.collectives:
        raise CaptureError(f"verifying needs an autograd graph, which {spell('collectives')} uses up; choose one")
    for option, is_given in (("--dry", request.dry), ("--step", request.step != 1)):
        if is_given and not request.collectives:
            raise CaptureError(f"{option} needs --collectives")


def make_recorder(request: CaptureRequest) -> protocols.Recorder:
    """Return a recorder of the front-end; see `gradir.record`."""
    if request.frontend is not None or request.model is not None:
        name = claims.find_claimant(request.model, chosen=request.frontend)
    else:
        name = _choose_usable("record", "what runs")
    claims.expect_feature(name, "record")
    _expect_features(name, request)
    return registry.frontend(name).record(request)


def read(file: BinaryIO, path: str) -> Graph:
    """Return the graph in an open file that a front-end reads."""
    name, _ = claims.reader_of(path)
    with registry.frontend.failing(name):
        found: Any = registry.frontend(name)
        graph: object = found.read(file)
    return registry.expect_graph(name, graph)


def release_graphs() -> int:
    """Free the graphs that the program has dropped; see `gradir.release`."""
    loaded = claims.find_loaded_kinds()
    return sum(registry.frontend(name).release() for name, kind in loaded.items() if "release" in kind.features)


def seeding(number: int) -> AbstractContextManager[None]:
    """Seed every framework: now if it is loaded, else when it is imported inside the context."""
    return _calling_once_loaded("seed", lambda _, found: found.seed(number))


def standing_in(rank: int, world: int, chosen: str | None) -> AbstractContextManager[None]:
    """Let the program inside run as one rank of many, with the chosen or a capable front-end."""
    name = _choose_usable("standing_in", "a rank without the others") if chosen is None else chosen
    return claims.expect_feature(name, "standing_in").standing_in(rank, world)


def running(
    request: CaptureRequest, reached: protocols.Reached
) -> AbstractContextManager[Mapping[str, protocols.Running]]:
    """Let every capable front-end record the program inside; yield the results by name."""
    return _enter_each("running", lambda found: found.running(request, reached))


def watching(callback: protocols.RecordCallback) -> AbstractContextManager[Mapping[str, protocols.Watching]]:
    """Let every capable front-end watch the training inside; yield the results by name."""
    return _enter_each("watching", lambda found: found.watching(callback))


@contextmanager
def _enter_each(
    feature: str, make_context: Callable[[protocols.Frontend], AbstractContextManager[T]]
) -> Iterator[Mapping[str, T]]:
    results: dict[str, T] = {}
    with ExitStack() as stack:

        def enter(name: str, found: protocols.Frontend) -> None:
            results[name] = stack.enter_context(make_context(found))

        with _calling_once_loaded(feature, enter):
            yield results


def _capture_live(request: CaptureRequest) -> _Ran:
    expect_possible(request)
    name, prepared = _prepare(request)
    with _failing(name, request):
        try:
            return _Ran(name, registry.expect_live(name, registry.frontend(name).capture(prepared)), prepared)
        except protocols.MadeOtherError as error:
            made = _replace_target(request, error.made)
    return _capture_live(made)


def _replace_target(request: CaptureRequest, made: object) -> CaptureRequest:
    """Return the request for an object that a program made, without the options that only matter for a run."""
    return replace(request, target=made, is_program=False, seed=None, fake=False, inputs=(), kwargs=None)


def _prepare(request: CaptureRequest) -> tuple[str, CaptureRequest]:
    """Return the front-end for a request, and the request after a run by gradir if the front-end cannot run it."""
    name = claims.choose_frontend(request)
    _expect_features(name, request)
    found = registry.frontend(name)
    if ("program" if request.is_program else "inputs") in found.features:
        return name, request
    with _failing(name, request):
        return name, fallbacks.run(found, request)


def _verify(ran: _Ran, request: CaptureRequest, *, keep_graph: bool) -> protocols.Verification:
    name, live, prepared = ran
    frontend = registry.frontend(name)
    with _failing(name, request):
        if "verify" in frontend.features:
            return frontend.verify(live, keep_graph=keep_graph)
        # A second run of a program may give something else.
        again = None if prepared.is_program else registry.expect_live(name, frontend.capture(prepared)).graph
    return fallbacks.verification_of(name, live.graph, again)


def _choose_usable(feature: str, subject: str) -> str:
    usable = claims.usable_kinds()
    return claims.expect_one([name for name, kind in usable.items() if feature in kind.features] or usable, subject)


def _expect_features(name: str, request: CaptureRequest) -> None:
    runs_itself = "program" in registry.frontend(name).features
    for option, feature in claims.features_of(request):
        if runs_itself or feature != "inputs":
            claims.expect_feature(name, feature, claims.spell_option(request, option))


def _failing(name: str, request: CaptureRequest) -> AbstractContextManager[None]:
    """Report errors as failures of the front-end, except in Python, where it may run the user's model."""
    return registry.frontend.failing(name) if request.is_program else nullcontext()


def _calling_once_loaded(feature: str, call: Callable[[str, protocols.Frontend], None]) -> AbstractContextManager[None]:
    def call_each(names: Iterable[str]) -> None:
        for name in names:
            call(name, registry.frontend(name))

    # One framework may have several front-ends.
    capable: dict[str, list[str]] = {}
    for name, kind in claims.kinds().items():
        if feature in kind.features:
            capable.setdefault(kind.framework, []).append(name)
    for framework, names in capable.items():
        if sys.modules.get(framework) is not None:
            call_each(names)
    return calling_on_import({framework: partial(call_each, names) for framework, names in capable.items()})
