"""Let the front-end of a request capture, verify, explain or observe."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from math import prod
from typing import Any, BinaryIO, Final, NamedTuple, TypeVar

from msgspec.structs import replace

from gradir import claims, protocols, registry
from gradir.errors import CaptureError, FrontendError, GraphError
from gradir.explanations.from_cuts import explain_cuts
from gradir.explanations.model import Examined, Explanation
from gradir.ir import Graph
from gradir.ir.edges import postorder
from gradir.ir.memo import group_by_key
from gradir.ir.validate import problems
from gradir.request import FEATURES, CaptureRequest
from gradir.spec import Described, called, calling_on_import, parse_described

T = TypeVar("T")

_FLOATS: Final = ("float", "bfloat", "complex")
_NEVER_USED: Final = frozenset({"unused", "unreached"})


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
        return _explain_from_cuts(name, graph)
    name, prepared = _prepare(request)
    with _failing(name, request):
        try:
            return frontend.explain(prepared)
        except protocols.OtherFrontendError as error:
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
        raise CaptureError(f"verifying needs an autograd graph, which {spell('collectives')} frees; choose one")
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
    name = claims.reader_of(path)
    with registry.frontend.failing(name):
        found: Any = registry.frontend(name)
        graph = found.read(file)
    if not isinstance(graph, Graph):
        raise FrontendError(f"front-end {name!r} failed: it read {type(graph).__name__}, not a Graph")
    return graph


def seeding(number: int) -> AbstractContextManager[None]:
    """Seed every framework: now if it is loaded, else when it is imported inside the context."""
    return _calling_once_loaded("seed", lambda _, found: found.seed(number))


def simulate_rank(rank: int, world: int, chosen: str | None) -> AbstractContextManager[None]:
    """Let the program inside run as one rank of many, with the chosen or a capable front-end."""
    name = _choose_usable("simulate_rank", "a rank without the others") if chosen is None else chosen
    return claims.expect_feature(name, "simulate_rank").simulate_rank(rank, world)


def running(
    request: CaptureRequest, reached: protocols.BackwardCallback
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
        except protocols.OtherFrontendError as error:
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
        return name, _run_program(found, request)


def _verify(ran: _Ran, request: CaptureRequest, *, keep_graph: bool) -> protocols.Verification:
    name, live, prepared = ran
    frontend = registry.frontend(name)
    with _failing(name, request):
        if "verify" in frontend.features:
            return frontend.verify(live, keep_graph=keep_graph)
        # A second run of a program may give something else.
        again = None if prepared.is_program else registry.expect_live(name, frontend.capture(prepared)).graph
    return verify_alone(name, live.graph, again)


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
    capable = group_by_key((kind.framework, name) for name, kind in claims.kinds().items() if feature in kind.features)
    for framework, names in capable.items():
        if sys.modules.get(framework) is not None:
            call_each(names)
    return calling_on_import({framework: partial(call_each, names) for framework, names in capable.items()})


# The rest runs, explains and verifies for a front-end that only captures.


def _run_program(found: protocols.Frontend, request: CaptureRequest) -> CaptureRequest:
    """Return the request for the result of a program, or of a model or function with inputs."""
    made: Any = request.target
    given, named = request.inputs, dict(request.kwargs or {})
    if request.is_program and _is_factory(found, made, takes_inputs=bool(given)):
        made = called(made)
    model = request.model
    if given or named:
        if not callable(made):
            kind = type(made).__name__
            raise CaptureError(f"cannot run an object of type {kind} on inputs; name a model or a function")
        if request.is_program:
            described = [(text, parse_described(text)) for text in given]
            given = tuple(_tensor(found, *each) for each in described if each[1].name is None)
            named = {each[1].name: _tensor(found, *each) for each in described if each[1].name is not None}
        # A callable that is no function is the model that names the tensors.
        if model is None and "names" in found.features and not inspect.isroutine(made):
            model = made
        call, name = made, getattr(made, "__qualname__", type(made).__name__)
        made = called(lambda: call(*given, **named), name) if request.is_program else call(*given, **named)
    return replace(request, target=made, is_program=False, inputs=(), kwargs=None, model=model)


def _explain_from_cuts(name: str, graph: Graph) -> Explanation:
    """Return the explanation from the cuts of a graph, with its overlay."""
    try:
        found = replace(explain_cuts(graph), examined=Examined(reason=f"front-end {name!r} runs no backward pass"))
    except GraphError as error:
        raise CaptureError(f"front-end {name!r} cannot {FEATURES['explain']}: {error}") from error
    # A graph without parameters has no overlay but still an explanation.
    is_located = any(name in found.statuses for node in graph.nodes.values() for name in node.names)
    return found.locate_in(graph) if is_located else found


def verify_alone(name: str, graph: Graph, again: Graph | None = None) -> protocols.Verification:
    """Check a graph without an engine; ``again`` is a second capture of the same objects."""
    functions = [node for node in graph.nodes.values() if node.role == "function"]
    edges = sum(each is not None for node in functions for each in node.inputs)
    wrong = [str(problem) for problem in problems(graph)] or [*_find_contradictions(graph)]
    if again is not None and again != graph:
        wrong.append("a second capture of the same objects gives another graph")
    skipped = f"front-end {name!r} runs no backward pass, so gradir compared the graph with itself only"
    return protocols.Verification(len(functions), edges, 0, tuple(wrong), skipped)


def _find_contradictions(graph: Graph) -> Iterator[str]:
    def inputs(id_: str) -> list[str]:
        node = graph.nodes[id_]
        return [*(each.id for each in node.inputs if each is not None), *([node.base] if node.base else [])]

    reached = {*postorder([node.id for node in graph.outputs], inputs)}
    names = {name for node in graph.nodes.values() if node.id in reached for name in node.names}
    for node in graph.nodes.values():
        if node.id not in reached and node.role in {"function", "parameter", "leaf"}:
            yield f"{node.id}: no output depends on it"
    for cut in graph.cuts:
        if cut.kind in _NEVER_USED:
            yield from (f"{name}: it is in the graph, and a cut says {cut.kind}" for name in cut.names if name in names)


def _is_factory(found: protocols.Frontend, target: Any, *, takes_inputs: bool) -> bool:
    if not callable(target) or found.claims(target):
        return False
    if not takes_inputs or isinstance(target, type):
        return True
    try:
        inspect.signature(target).bind()
    except (TypeError, ValueError):  # It needs arguments, or is written in C without a signature.
        return False
    return inspect.isroutine(target)


def _tensor(found: protocols.Frontend, text: str, described: Described) -> object:
    make = getattr(found, "tensor", None)
    if make is not None:
        try:
            return make(described.dtype, described.shape)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            # A user would take its traceback for the program's.
            raise CaptureError(f"--input {text!r}: {error}") from None
    # Most frameworks accept numbers and nested lists as tensors.
    shape, number = described.shape, 1.0 if described.dtype.startswith(_FLOATS) else 0
    try:
        value: list[Any] = [number] * prod(shape)
    except (MemoryError, OverflowError) as error:
        raise CaptureError(f"--input {text!r}: too large for memory") from error
    for axis in range(len(shape) - 1, 0, -1):
        size = shape[axis]
        value = [value[at * size : (at + 1) * size] for at in range(prod(shape[:axis]))]
    return value if shape else number
