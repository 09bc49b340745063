"""Run, explain and verify for a front-end that only captures."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from math import prod
from typing import Any, Final

from msgspec.structs import replace

from gradir.errors import CaptureError, GraphError
from gradir.explanations.from_cuts import explain_cuts
from gradir.explanations.model import Examined, Explanation
from gradir.ir import Graph
from gradir.ir.edges import postorder
from gradir.ir.validate import problems
from gradir.protocols import Frontend, Verification
from gradir.request import FEATURES, CaptureRequest
from gradir.spec import Described, called, parse_described

_FLOATS: Final = ("float", "bfloat", "complex")
_NEVER_USED: Final = frozenset({"unused", "unreached"})


def run(found: Frontend, request: CaptureRequest) -> CaptureRequest:
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


def explanation_of(name: str, graph: Graph) -> Explanation:
    """Return the explanation from the cuts of a graph, with its overlay, for the front-end of that name."""
    try:
        found = replace(explain_cuts(graph), examined=Examined(reason=f"front-end {name!r} runs no backward pass"))
    except GraphError as error:
        raise CaptureError(f"front-end {name!r} cannot {FEATURES['explain']}: {error}") from error
    # A graph without parameters has no overlay but still an explanation.
    is_located = any(name in found.statuses for node in graph.nodes.values() for name in node.names)
    return found.locate_in(graph) if is_located else found


def verification_of(name: str, graph: Graph, again: Graph | None = None) -> Verification:
    """Check a graph without an engine; ``again`` is a second capture of the same objects."""
    functions = [node for node in graph.nodes.values() if node.role == "function"]
    edges = sum(each is not None for node in functions for each in node.inputs)
    wrong = [str(problem) for problem in problems(graph)] or [*_find_contradictions(graph)]
    if again is not None and again != graph:
        wrong.append("a second capture of the same objects gives another graph")
    skipped = f"front-end {name!r} runs no backward pass, so gradir compared the graph with itself only"
    return Verification(len(functions), edges, 0, tuple(wrong), skipped)


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


def _is_factory(found: Frontend, target: Any, *, takes_inputs: bool) -> bool:
    if not callable(target) or found.claims(target):
        return False
    if not takes_inputs or isinstance(target, type):
        return True
    try:
        inspect.signature(target).bind()
    except (TypeError, ValueError):  # It needs arguments, or is written in C without a signature.
        return False
    return inspect.isroutine(target)


def _tensor(found: Frontend, text: str, described: Described) -> object:
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
