"""Random programs: what the graph reaches and holds is what JAX gives a gradient and keeps."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
import jax_oracle  # noqa: E402
import jax_told  # noqa: E402
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from jax import lax  # noqa: E402

import gradir  # noqa: E402
from gradir.errors import CaptureError  # noqa: E402
from gradir.ir import Graph  # noqa: E402
from gradir.ir.validate import check_all  # noqa: E402

# No gradient of a program vanishes by its numbers: what is multiplied is never zero, and a sine bounds what grows.
LEAVES = ("a", "b", "c")
MOST_BRANCHES = 2
_ROUNDS = 3
_POLICIES: Mapping[str, Callable[..., bool] | None] = {
    "nothing": None,
    "dots": jax.checkpoint_policies.dots_saveable,
    "few dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
}
_UNARY: Mapping[str, Callable[[Any], Any]] = {
    "sin": jnp.sin,
    "tanh": lambda v: jnp.tanh(jnp.sin(v)),
    "exp": lambda v: jnp.exp(jnp.sin(v)),
    "square": lambda v: jnp.sin(v) ** 2,
    "sigmoid": lambda v: jax.nn.sigmoid(jnp.sin(v)),
    "softmax": jax.nn.softmax,
    "leaky": lambda v: jax.nn.leaky_relu(v) + v,
    "transpose": jnp.transpose,
    "cumsum": lambda v: jnp.cumsum(v, 0),
    "rolled": lambda v: jnp.concatenate([v[1:], v[:1]]),
    "half": lambda v: v.astype(jnp.bfloat16).astype(jnp.float32) + v,
    "normed": lambda v: v * lax.rsqrt((v * v).mean() + 1.0),
}
_BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": lambda v, w: v + w,
    "sub": lambda v, w: v - 0.5 * w,
    "mul": lambda v, w: v * (w + 3.0),
    "matmul": lambda v, w: jnp.sin(v @ w),
    "masked": lambda v, w: jnp.where(w > 0, v, 2.0 * v),
    "both": lambda v, w: jnp.where(jnp.eye(3, dtype=bool), v, w),
}
_CUTTING: Mapping[str, Callable[[Any], Any]] = {
    "stop_gradient": lax.stop_gradient,
    "floor": lambda v: jnp.floor(v) + 0.5,
    "sign": lambda v: jnp.sign(v) + 2.0,
}


@dataclass(frozen=True)
class Step:
    """One operation on earlier values, by their numbers; ``body`` and ``other`` are programs in it.

    ``way`` is the number of a conditional in the whole program.
    """

    op: str
    values: tuple[int, ...]
    body: tuple[Step, ...] = ()
    other: tuple[Step, ...] = ()
    policy: str = ""
    way: int = 0


@dataclass(frozen=True)
class Program:
    """A function of leaves, of an input, and of which way each conditional takes."""

    steps: tuple[Step, ...]

    @property
    def branches(self) -> int:
        """How many conditionals there are."""
        return _conditionals(self.steps)

    def __call__(self, leaves: Mapping[str, Any], x: Any, ways: Any) -> Any:
        return _run(self.steps, [leaves[name] for name in LEAVES] + [x], ways).sum()


def _conditionals(steps: Sequence[Step]) -> int:
    return sum((step.op == "cond") + _conditionals(step.body) + _conditionals(step.other) for step in steps)


def _numbered(steps: Sequence[Step], numbers: Iterator[int]) -> tuple[Step, ...]:
    """The same steps, each conditional with a number of its own."""
    return tuple(
        replace(
            step,
            way=next(numbers) if step.op == "cond" else 0,
            body=_numbered(step.body, numbers),
            other=_numbered(step.other, numbers),
        )
        for step in steps
    )


def _run(steps: Sequence[Step], values: list[Any], ways: Any) -> Any:
    known = list(values)
    for step in steps:
        known.append(_step(step, known, ways))
    return known[-1]


def _step(step: Step, known: list[Any], ways: Any) -> Any:
    first, *rest = (known[number % len(known)] for number in step.values)
    if step.op in _UNARY:
        return _UNARY[step.op](first)
    if step.op in _CUTTING:
        return _CUTTING[step.op](first)
    if step.op in _BINARY:
        return _BINARY[step.op](first, *rest)

    def inside(steps: Sequence[Step], *given: Any) -> Any:
        # JAX keeps what a region is given even if the region makes nothing of it, so it always does.
        return sum(given, _run(steps, [*known, *given], ways))

    if step.op == "scan":
        return lax.scan(lambda h, _: (jnp.sin(inside(step.body, h)), None), first, None, length=_ROUNDS)[0]
    if step.op == "stack":
        return lax.scan(lambda h, w: (jnp.sin(inside(step.body, h, w)), None), first, jnp.stack([first, *rest]))[0]
    if step.op == "cond":
        return lax.cond(ways[step.way] > 0, lambda h: inside(step.body, h), lambda h: inside(step.other, h), first)
    if step.op == "jit":
        return jax.jit(lambda h: inside(step.body, h))(first)
    return jax.checkpoint(lambda h: inside(step.body, h), policy=_POLICIES[step.policy])(first)


_NUMBERS = st.integers(0, 11)


def _plain() -> st.SearchStrategy[Step]:
    return st.one_of(
        st.builds(Step, st.sampled_from([*_UNARY]), st.tuples(_NUMBERS)),
        st.builds(Step, st.sampled_from([*_BINARY]), st.tuples(_NUMBERS, _NUMBERS)),
        st.builds(Step, st.sampled_from([*_CUTTING]), st.tuples(_NUMBERS)),
    )


def _around(inside: st.SearchStrategy[Step]) -> st.SearchStrategy[Step]:
    body = st.lists(inside, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        st.builds(Step, st.just("scan"), st.tuples(_NUMBERS), body),
        st.builds(Step, st.just("stack"), st.tuples(_NUMBERS, _NUMBERS), body),
        st.builds(Step, st.just("cond"), st.tuples(_NUMBERS), body, body),
        st.builds(Step, st.just("jit"), st.tuples(_NUMBERS), body),
        st.builds(Step, st.just("checkpoint"), st.tuples(_NUMBERS), body, st.just(()), st.sampled_from([*_POLICIES])),
    )


def programs() -> st.SearchStrategy[Program]:
    """Programs with at most two conditionals."""
    step = st.recursive(_plain(), _around, max_leaves=4)
    steps = st.lists(step, min_size=1, max_size=4).map(lambda steps: _numbered(steps, itertools.count()))
    return st.builds(Program, steps).filter(lambda program: program.branches <= MOST_BRANCHES)


S = jax.ShapeDtypeStruct
SQUARE = S((3, 3), jnp.float32)
ARGUMENTS = (dict.fromkeys(LEAVES, SQUARE), SQUARE, [S((), jnp.int32)] * MOST_BRANCHES)

few = settings(max_examples=15, suppress_health_check=list(HealthCheck), derandomize=True)
many = settings(max_examples=60, suppress_health_check=list(HealthCheck), derandomize=True)


def function_of(program: Program) -> object:
    def loss(leaves: object, x: object, ways: object) -> object:
        return program(leaves, x, ways)

    return loss


def captured(program: Program) -> Graph | None:
    """The graph of a program; ``None`` where no gradient comes to any leaf."""
    try:
        return gradir.capture(function_of(program), *ARGUMENTS)
    except CaptureError as error:
        if str(error).startswith("no gradient flows from the result of loss to a differentiated argument"):
            return None
        raise


@many
@given(programs())
def test_a_graph_has_the_residuals_of_jax(program: Program) -> None:
    graph = captured(program)
    if graph is not None:
        check_all(graph)
        assert gradir.loads(gradir.dumps(graph)) == graph
        assert jax_told.sum_held_bytes(graph) == jax_oracle.residual_bytes(
            jax_oracle.make_question(function_of(program), ARGUMENTS)
        )


@few
@given(programs())
def test_the_leaves_of_a_graph_are_those_that_get_a_gradient_on_some_way(program: Program) -> None:
    graph = captured(program)
    reached = set(jax_told.names(graph, "parameter").split()) if graph is not None else set()
    moved = set()
    for ways in itertools.product((0, 1), repeat=program.branches):
        taken = [jnp.int32(way) for way in (*ways, *[0] * (MOST_BRANCHES - len(ways)))]
        moved |= jax_oracle.find_moved(jax_oracle.make_question(function_of(program), (*ARGUMENTS[:2], taken)))
    assert reached == moved
    if graph is not None:
        cut = {name for cut in graph.cuts for name in cut.names}
        assert cut == set(LEAVES) - reached
