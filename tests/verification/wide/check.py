"""One architecture: build it, capture it, and compare."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable

import numpy as np
import torch
from module_truth import ModuleTruth

import gradir
from gradir.errors import GradirError
from gradir.frontends.pytorch.reading.assemble import LiveGraph
from gradir.ir import Graph
from gradir.ir.validate import problems
from wide import catalogue
from wide.oracle import disagreements, engine
from wide.results import Result

__all__ = ["FORMATS", "begun", "build_seeded", "compare", "digest"]

FORMATS = ("json", "msgpack")


def compare(key: str) -> Result:
    """Everything that is compared within one process."""
    result, build = begun(key)
    if build is None:
        return result
    try:
        real = build_seeded(build)
        loss = real.loss()
        ran = engine(real.model, loss, lambda: build_seeded(build).loss())
    except Exception as error:
        # Without gradir too, so it is the model's own doing.
        if isinstance(error, MemoryError) or "allocate memory" in str(error):
            raise
        result.failure, result.detail = "backward", f"{error}"[:200]
        return result
    real = build_seeded(build)
    with ModuleTruth.of(real.model) as truth, gradir.record(real.model) as recorder:
        loss = real.loss()
    live = recorder.live_capture(loss)
    graph = live.graph
    result.mismatches += problems(graph)
    result.mismatches += disagreements(graph, loss, real.model, truth, ran)
    result.mismatches += _check_engine(live, result)
    result.mismatches += _check_files(graph, result)
    result.class_name = type(real.model).__name__
    result.reached = sum(1 for node in graph.nodes.values() if node.role == "parameter")
    result.parameters = len(ran.learns) + len(ran.rests)
    result.scopes = len(graph.scopes)
    result.saved = sum(len(node.saved) for node in graph.nodes.values())
    return result


def digest(key: str, choice: str) -> Result:
    """The bytes of the graph, to be compared with those of another process."""
    result, build = begun(key, choice)
    if build is None:
        return result
    real = build_seeded(build)
    with gradir.record(real.model) as recorder:
        loss = real.loss()
    graph = recorder.capture(loss)
    result.digests = {name: hashlib.sha256(gradir.dumps(graph, format=name)).hexdigest() for name in FORMATS}
    return result


def begun(key: str, choice: str = "") -> tuple[Result, Callable[[], catalogue.RealModel] | None]:
    """What is known so far of an architecture, and what builds it if it can be built."""
    family, _, name = key.partition("/")
    result = Result(family, name)
    _seed()
    try:
        recipe = catalogue.recipe(family, name, choice)
    except catalogue.NotBuiltError as error:
        result.failure, result.detail = error.word, error.detail
        return result, None
    result.choice = recipe.choice
    return result, recipe.build


def _seed() -> None:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


def build_seeded(build: Callable[[], catalogue.RealModel]) -> catalogue.RealModel:
    """Build a model as in every process."""
    _seed()
    return build()


def _check_engine(live: LiveGraph, result: Result) -> list[str]:
    try:
        found = live.verify()
    except GradirError as error:
        return [f"verify: {error}"]
    result.nodes, result.edges = found.nodes, found.edges
    wrong = [f"verify: {mismatch}" for mismatch in found.mismatches]
    if found.executed != found.nodes:
        wrong.append(f"verify: {found.executed} of {found.nodes} nodes fired")
    return wrong


def _check_files(graph: Graph, result: Result) -> list[str]:
    wrong = []
    for name in FORMATS:
        data = gradir.dumps(graph, format=name)
        result.digests[name] = hashlib.sha256(data).hexdigest()
        again = gradir.loads(data)
        if again != graph:
            wrong.append(f"{name}: what is read is not what was written")
        if gradir.dumps(again, format=name) != data:
            wrong.append(f"{name}: written again, the bytes are others")
    return wrong
