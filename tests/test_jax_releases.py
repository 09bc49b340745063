"""A program has the same graph whichever release of JAX traced it: each case beside what 0.10.2 made of it.

Lines are left out, since they are those of the cases.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

jax = pytest.importorskip("jax")

from jax_cases import CASES  # noqa: E402
from msgspec.structs import replace  # noqa: E402

import gradir  # noqa: E402
from gradir.ir import Graph  # noqa: E402

WRITTEN_BY: Final = (0, 10)
NOW: Final = tuple(map(int, jax.__version__.split(".")[:2]))
STORED: Final = Path(__file__).parent / "goldens" / "jax"

BEFORE: Final = {
    "checkpoints.save_only_these_names": "a policy had no name of its own",
    "cuts.argmax_as_an_index": "an index was wider, and a literal where it is kept now",
    "nested.step_of_maml": "a square was an operation beside the tanh",
    "operations.convolve_and_cumsum": "a slice stood before a squeeze",
}
_ONE = "1 - y * y is an operation of its own"
_COPIES = "a conditional keeps its own inputs, and no copies of them"
SINCE: Final = {
    "branches.cond": _COPIES,
    "branches.stopped_in_a_branch": _COPIES,
    "branches.switch": _COPIES,
    "checkpoints.save_only_these_names": "a policy has another name",
    "nested.gradient_penalty": _ONE,
    "nested.gradient_through_scan": _ONE,
    "nested.hessian_vector_product": _ONE,
    "nested.step_of_maml": _ONE,
    "operations.top_k": "it may be stable",
}
"""The cases that JAX itself traces in another way, and in which."""


def captured(name: str) -> Graph:
    case = CASES[name]
    graph = gradir.capture(case.fn, *case.args, argnums=case.argnums, has_aux=case.has_aux)
    nodes = {node.id: replace(node, source=None) for node in graph.nodes.values()}
    return replace(graph, nodes=nodes, cuts=tuple(replace(cut, source=None) for cut in graph.cuts))


@pytest.mark.parametrize("name", CASES)
def test_a_case_has_the_graph_that_is_stored(name: str, golden_bytes: Callable[[str, bytes], None]) -> None:
    graph = captured(name)
    if NOW == WRITTEN_BY:
        golden_bytes(f"jax/{name}.gir", gradir.dumps(graph))
        return
    stored = gradir.load(STORED / f"{name}.gir")
    # From 0.11 on JAX keeps other values for backward, as what tanh takes and not what it gives.
    ignored = ["saved"] if NOW > WRITTEN_BY else []
    found = gradir.diff(stored, graph, normalize=True, ignore=ignored)
    known = SINCE if NOW > WRITTEN_BY else BEFORE
    assert bool(found.changes) == (name in known), str(found)


def test_every_stored_file_belongs_to_a_case() -> None:
    assert {path.stem for path in STORED.glob("*.gir")} == {*CASES}
    assert {*BEFORE, *SINCE} <= {*CASES}
