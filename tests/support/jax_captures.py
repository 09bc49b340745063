"""The graphs of the cases and models of JAX, captured once in a process, and their files."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
from jax_cases import CASES, Case
from jax_models import MODELS, Model

import gradir
from gradir.ir import Graph

_SCHEMA = Path(__file__).parents[2] / "schemas" / "gir-1.0.schema.json"


@cache
def make_arguments(model: Model) -> Any:
    """What a model is called with: the function and its arguments."""
    return model.make()


@cache
def capture_case(what: Case | Model | str) -> Graph:
    """The graph of a case or a model, which may be named."""
    return capture_case_anew(what)


def capture_case_anew(what: Case | Model | str) -> Graph:
    found = (CASES.get(what) or MODELS[what]) if isinstance(what, str) else what
    if isinstance(found, Case):
        return gradir.capture(found.fn, *found.args, argnums=found.argnums, has_aux=found.has_aux)
    fn, args = make_arguments(found)
    return gradir.capture(fn, *args, has_aux=found.has_aux)


def assert_files_hold(graph: Graph, folder: Path) -> None:
    """A file of either form is read back equal, and fits its schema."""
    for form, suffix in (("json", "gir"), ("msgpack", "girb")):
        graph.save(folder / f"graph.{suffix}", format=form)
        assert gradir.load(folder / f"graph.{suffix}") == graph
    _schema().validate(json.loads(gradir.dumps(graph)))


@cache
def _schema() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads(_SCHEMA.read_bytes()))
