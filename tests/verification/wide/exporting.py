"""One architecture: export it, capture the program, and compare with another reading of its FX graph."""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Iterator
from functools import cache
from typing import Any

import fx_oracle
import torch

import gradir
from gradir.capturing import read
from gradir.ir import Graph
from wide.check import begun, build_seeded
from wide.results import PROGRAM, Result

__all__ = ["compare_export", "digest_export", "prepare"]

_BODIES = frozenset({"cond", "scan", "while_loop"})


@cache
def prepare() -> None:
    """Import what an export needs, which takes longer than to export a model."""
    program = torch.export.export(torch.nn.Linear(1, 1), (torch.ones(1, 1),))
    torch.export.save(program, io.BytesIO())
    gradir.capture(program)


def compare_export(key: str) -> Result:
    """Everything that is compared within one process."""
    result, program = _export(key)
    if program is None:
        return result
    graph = gradir.capture(program)
    result.nodes, result.edges = len(graph.nodes), len(graph.edges)
    result.reached = sum(node.role == "parameter" for node in graph.nodes.values())
    result.mismatches += _differences(graph, program)
    result.digests = _digests(graph, program)
    return result


def digest_export(key: str, choice: str) -> Result:
    """The bytes of the graph, to be compared with those of another process."""
    result, program = _export(key, choice)
    if program is not None:
        result.digests = _digests(gradir.capture(program), program)
    return result


def _export(key: str, choice: str = "") -> tuple[Result, torch.export.ExportedProgram | None]:
    result, build = begun(key, choice)
    if build is None:
        return result, None
    real, given = build_seeded(build), list[Any]()
    config = getattr(real.model, "config", None)
    if hasattr(config, "use_cache"):
        # A cache among the outputs is no tensor, and nothing that a model of a training returns.
        config.use_cache = False
    hook = real.model.register_forward_pre_hook(lambda _, *inputs: given.append(inputs), with_kwargs=True)
    real.loss()
    hook.remove()
    result.class_name = type(real.model).__name__
    try:
        return result, torch.export.export(real.model.eval(), *given[0])
    except Exception as error:  # noqa: BLE001 (whatever torch.export cannot do)
        result.failure, result.detail = "export", " ".join(f"{type(error).__name__}: {error}".split())[:200]
        return result, None


def _digests(graph: Graph, program: torch.export.ExportedProgram) -> dict[str, str]:
    texts = {"json": gradir.dumps(graph), PROGRAM: str(program.graph).encode()}
    return {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()}


def _differences(graph: Graph, program: torch.export.ExportedProgram) -> Iterator[str]:
    """Yield what of a capture is not as the oracle reads the program."""
    functions = [node for node in graph.nodes.values() if node.role == "function"]
    operations = Counter(
        (node.native, tuple((f"torch.{t.dtype}", *map(str, t.shape)) for t in node.outputs)) for node in functions
    )
    parameters = {node.names[0]: node.shape for node in graph.nodes.values() if node.role == "parameter"}
    taken = sum(len(node.inputs) for node in functions if node.op not in _BODIES)
    theirs = fx_oracle.operations(program), fx_oracle.parameters(program), fx_oracle.edges(program)
    if operations != theirs[0]:
        lost, made = theirs[0] - operations, operations - theirs[0]
        yield f"operations: {lost.total()} are not captured, {made.total()} are made up: {[*lost, *made][:2]}"
    if parameters != theirs[1]:
        yield f"parameters: {sorted(parameters.items() ^ theirs[1].items())[:2]}"
    if taken != theirs[2]:
        yield f"edges: {taken} were captured of {theirs[2]}"
    if gradir.loads(gradir.dumps(graph)) != graph:
        yield "file: what is read is not what was written"
    file = io.BytesIO()
    torch.export.save(program, file)
    again = read(file, "model.pt2")
    fields = [[(n.id, n.op, n.inputs, n.outputs, n.attrs) for n in each.nodes.values()] for each in (again, graph)]
    if fields[0] != fields[1]:
        yield f"pt2: {next((pair for pair in zip(*fields, strict=False) if pair[0] != pair[1]), 'other nodes')}"
