"""Random programs: what the graph reaches and holds is what JAX gives a gradient and keeps."""

from __future__ import annotations

import itertools

import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
import jax_oracle  # noqa: E402
import jax_told  # noqa: E402
from hypothesis import HealthCheck, given, settings  # noqa: E402
from jax_programs import LEAVES, MOST_BRANCHES, Program, programs  # noqa: E402

import gradir  # noqa: E402
from gradir.errors import CaptureError  # noqa: E402
from gradir.ir import Graph  # noqa: E402
from gradir.ir.validate import check_all  # noqa: E402

S = jax.ShapeDtypeStruct
SQUARE = S((3, 3), jnp.float32)
ARGUMENTS = (dict.fromkeys(LEAVES, SQUARE), SQUARE, [S((), jnp.int32)] * MOST_BRANCHES)

few = settings(max_examples=6, suppress_health_check=list(HealthCheck), derandomize=True)
many = settings(max_examples=25, suppress_health_check=list(HealthCheck), derandomize=True)


def function_of(program: Program) -> object:
    def loss(leaves: object, x: object, ways: object) -> object:
        return program(leaves, x, ways)

    return loss


def captured(program: Program) -> Graph | None:
    """The graph of a program; ``None`` where no gradient comes to any leaf."""
    try:
        return gradir.capture(function_of(program), *ARGUMENTS)
    except CaptureError as error:
        if str(error).startswith("no gradient of what loss returns comes to any of the differentiated arguments"):
            return None
        raise


@many
@given(programs())
def test_a_graph_holds_what_jax_keeps(program: Program) -> None:
    graph = captured(program)
    if graph is not None:
        check_all(graph)
        assert gradir.loads(gradir.dumps(graph)) == graph
        assert jax_told.held_bytes(graph) == jax_oracle.residual_bytes(
            jax_oracle.asked(function_of(program), ARGUMENTS)
        )


@few
@given(programs())
def test_the_leaves_of_a_graph_are_those_that_get_a_gradient_on_some_way(program: Program) -> None:
    graph = captured(program)
    reached = set(jax_told.names(graph, "parameter").split()) if graph is not None else set()
    moved = set()
    for ways in itertools.product((0, 1), repeat=program.branches):
        taken = [jnp.int32(way) for way in (*ways, *[0] * (MOST_BRANCHES - len(ways)))]
        moved |= jax_oracle.moved(jax_oracle.asked(function_of(program), (*ARGUMENTS[:2], taken)))
    assert reached == moved
    if graph is not None:
        cut = {name for cut in graph.cuts for name in cut.names}
        assert cut == set(LEAVES) - reached
