"""What people who know JAX well write: each was once told wrongly, and is checked against JAX itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
import jax_told  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402
from jax.ad_checkpoint import checkpoint_name  # noqa: E402

import gradir  # noqa: E402
from gradir.errors import CaptureError  # noqa: E402

W = jnp.eye(4) + jnp.arange(16.0).reshape(4, 4) / 16
X = jnp.arange(8.0).reshape(2, 4) / 8
POLICIES = jax.checkpoint_policies


def offloaded(w: Any, x: Any) -> Any:
    policy = POLICIES.offload_dot_with_no_batch_dims("device", "pinned_host")
    return jax.checkpoint(lambda w, x: jnp.tanh(x @ w).sum(), policy=policy)(w, x)


def offloaded_by_name(w: Any, x: Any) -> Any:
    policy = POLICIES.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=["h"],
        offload_src="device",
        offload_dst="pinned_host",
    )
    return jax.checkpoint(lambda w, x: jnp.sin(checkpoint_name(jnp.tanh(x @ w), "h")).sum(), policy=policy)(w, x)


def eigenvalues_alone(w: Any) -> Any:
    return jnp.linalg.eigh(w + w.T)[0].sum()


def left_vectors_alone(w: Any) -> Any:
    return jnp.linalg.svd(w, full_matrices=False)[0].sum()


def chosen_while_traced(w: Any) -> Any:
    return lax.cond(True, lambda w: w.sum(), lambda w: (w * 2).sum(), w)


MESH = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("i",))
ALL, SPLIT = jax.sharding.PartitionSpec(), jax.sharding.PartitionSpec("i")


def mean_over_devices(w: Any, x: Any) -> Any:
    def of_part(w: Any, x: Any) -> Any:
        return lax.pmean(jnp.mean((x @ w) ** 2), "i")

    return jax.shard_map(of_part, mesh=MESH, in_specs=(ALL, SPLIT), out_specs=ALL)(w, x)


def scaled_after_a_sum_over_devices(w: Any, x: Any) -> Any:
    def of_part(w: Any, x: Any) -> Any:
        return lax.psum(jnp.tanh(x @ w).mean() / 3.0, "i") * 0.5

    return jax.shard_map(of_part, mesh=MESH, in_specs=(ALL, SPLIT), out_specs=ALL)(w, x)


def devices_in_a_loop(w: Any, x: Any) -> Any:
    part = jax.shard_map(lambda w, h: jnp.tanh(h @ w) + 1, mesh=MESH, in_specs=(ALL, SPLIT), out_specs=SPLIT)
    return lax.scan(lambda h, _: (part(w, h), None), x, None, length=2)[0].mean()


@jax.custom_gradient
def rounded(x: Any) -> Any:
    return jnp.round(x), jnp.zeros_like


def rounded_before_a_product(w: Any, x: Any) -> Any:
    return (rounded(jnp.tanh(x @ w["first"])) @ w["last"]).sum()


def rounded_and_not(w: Any, x: Any) -> Any:
    return (rounded(jnp.tanh(x @ w)) @ w).sum()


def stopped_in_a_checkpoint(w: Any, x: Any) -> Any:
    def block(w: Any, x: Any) -> Any:
        return lax.stop_gradient(jnp.tanh(x @ w["first"])) @ w["last"]

    return (jax.checkpoint(block, policy=POLICIES.dots_saveable)(w, x) ** 2).sum()


def stopped_in_loops(w: Any, x: Any) -> Any:
    def step(h: Any, _: object) -> Any:
        stopped = lax.scan(lambda h, _: (lax.stop_gradient(h) * 2, None), jnp.tanh(h @ w["first"]), None, length=2)
        return stopped[0] @ w["last"], None

    return lax.scan(step, x, None, length=2)[0].sum()


@pytest.mark.parametrize(
    ("fn", "args", "held"),
    [
        (mean_over_devices, (W, X), None),
        (scaled_after_a_sum_over_devices, (W, X), None),
        (devices_in_a_loop, (W, X), None),
        (offloaded, (W, X), 64),
        (offloaded_by_name, (W, X), 128),
        (eigenvalues_alone, (W,), None),
        (left_vectors_alone, (W,), None),
        (chosen_while_traced, (W,), 0),
        (rounded_before_a_product, ({"first": W, "last": W}, X), 32),
        (rounded_and_not, (W, X), 32),
        (stopped_in_a_checkpoint, ({"first": W, "last": W}, X), 32),
        (stopped_in_loops, ({"first": W, "last": W}, X), 64),
    ],
)
def test_the_graph_has_the_residuals_of_jax(fn: Callable[..., Any], args: tuple[Any, ...], held: int | None) -> None:
    assert not gradir.verify(fn, *args).mismatches
    assert held is None or jax_told.sum_held_bytes(gradir.capture(fn, *args)) == held


def test_an_output_that_nothing_reads_keeps_nothing() -> None:
    def held(read: Callable[[Any], Any]) -> int:
        return jax_told.sum_held_bytes(gradir.capture(lambda w: read(jnp.linalg.eigh(w)).sum(), W))

    assert held(lambda found: found[0]) < held(lambda found: found[1])


@pytest.mark.parametrize(
    "call", [jax.pure_callback, jax.experimental.io_callback], ids=["pure_callback", "io_callback"]
)
def test_a_callback_without_a_rule_is_refused_beside_a_path_as_by_jax(call: Any) -> None:
    def loss(w: Any, x: Any, seen: Callable[[Any], Any] = lambda w: w) -> Any:
        call(lambda value: value, jax.ShapeDtypeStruct((4, 4), jnp.float32), seen(w))
        return (x @ w).sum()

    def stopped(w: Any, x: Any) -> Any:
        return loss(w, x, lax.stop_gradient)

    with pytest.raises(ValueError, match="do not support JVP"):
        jax.grad(loss)(W, X)
    with pytest.raises(CaptureError, match=r"callback at .*test_jax_corners.py:\d+: .* do not support JVP"):
        gradir.capture(loss, W, X)
    assert not gradir.verify(stopped, W, X).mismatches


def test_a_loop_without_a_derivative_beside_a_path_is_no_alarm() -> None:
    def loss(w: Any) -> Any:
        lax.while_loop(lambda h: h.sum() < 3, lambda h: h + 1, w)
        return (w * w).sum()

    assert not gradir.verify(loss, W).mismatches


def test_leaves_whose_paths_read_alike_keep_apart() -> None:
    given = {"a": {"b": W}, "a.b": W, "params": {"c": W}, "c": W, "d": W}

    def loss(p: Any) -> Any:
        return (lax.stop_gradient(p["a"]["b"]) * p["a.b"] * lax.stop_gradient(p["c"]) * p["params"]["c"] + p["d"]).sum()

    assert gradir.explain(loss, given).statuses == {
        "['a']['b']": "cut",
        "['a.b']": "reached",
        "['c']": "cut",
        "['params']['c']": "reached",
        "d": "reached",
    }


def test_an_array_without_entries_has_no_gradient_of_zero() -> None:
    found = gradir.explain(lambda p: p["none"].sum() + p["w"].sum(), {"none": jnp.zeros((0, 3)), "w": W})
    assert found.statuses == {"none": "reached", "w": "reached"}


def test_a_gradient_of_zero_is_reported_with_its_operation_and_line() -> None:
    def loss(p: Any, x: Any, key: Any) -> Any:
        dead = jax.nn.relu(x @ p["dead"] - 100)
        masked = (jnp.sin(x @ p["masked"]) + 1) * 0.0
        looped = lax.scan(lambda h, _: (h @ p["looped"] * 0, None), x, None, length=2)[0]
        branched = lax.cond(x.sum() >= 0, lambda w: x @ W, lambda w: x @ w, p["branched"])
        clipped = jax.checkpoint(lambda w: jnp.minimum(jnp.sin(x @ w) + 9, 1))(p["clipped"])
        dropped = jnp.where(jax.random.bernoulli(key, 0.0, (2, 4)), x @ p["dropped"], 0.0)
        added = p["added"] * 2.0 - p["added"] - p["added"]
        return (dead + masked + looped + branched + clipped + dropped).sum() + added.sum() + p["two"] * 2

    names = ("dead", "masked", "looped", "branched", "clipped", "dropped", "added")
    found = gradir.explain(loss, {**dict.fromkeys(names, W), "two": 2.0}, X, jax.random.key(0))
    first = loss.__code__.co_firstlineno
    assert found.statuses == {**dict.fromkeys(names, "zero"), "two": "reached"}
    assert [(each.op, each.names, each.source and each.source.line - first) for each in found.causes] == [
        ("", ("added",), None),
        ("relu", ("dead",), 1),
        ("mul", ("masked",), 2),
        ("mul", ("looped",), 3),
        ("cond", ("branched",), 4),
        ("min", ("clipped",), 5),
        ("where", ("dropped",), 6),
    ]


def test_a_leaf_whose_gradient_becomes_zero_on_two_ways_is_reported_on_both() -> None:
    def loss(w: Any) -> Any:
        return (w * 0.0).sum() + jax.nn.relu(w - 100).sum()

    assert [(cause.op, cause.names) for cause in gradir.explain(loss, W).causes] == [("mul", ("w",)), ("relu", ("w",))]


BESIDE = {
    "integer": 1,
    "number": 0.5,
    "complex number": 1j,
    "boolean": True,
    "nothing": None,
    "text": "train",
    "object": object(),
    "array": jnp.arange(3),
    "numpy number": np.float32(2),
    "key": jax.random.key(0),
}


@pytest.mark.parametrize("beside", BESIDE.values(), ids=BESIDE)
def test_outputs_without_gradient_beside_the_loss_are_left_out(beside: object) -> None:
    def loss(w: Any) -> Any:
        return (X @ w).sum()

    def step(w: Any) -> Any:
        return {"beside": [beside], "loss": loss(w)}

    alone = gradir.capture(loss, W)
    graph = gradir.capture(step, W)
    assert [*graph.nodes][:-1] == [*alone.nodes][:-1]
    assert [node.id for node in graph.nodes.values() if node.role == "output"] == ["output:loss"]
    assert gradir.verify(step, W)
    assert dict(gradir.explain(step, W).statuses) == dict(gradir.explain(loss, W).statuses)


def of_branch(w: Any, x: Any) -> Any:
    h = x @ w
    return jnp.tanh(h).sum() if h.sum() > 0 else w.sum()


def of_loop(w: Any, x: Any) -> Any:
    while jax.jit(jnp.sum)(w) < 100:
        w = w * 2
    return w.sum() * x.sum()


def of_mask(w: Any, x: Any) -> Any:
    return (w[w > 0.5] * np.asarray(x > 0).sum()).sum()


def of_inner_branch(w: Any, x: Any) -> Any:
    return jax.grad(lambda v: (v**2).sum() if v.sum() > int(x.max()) else v.sum())(w).sum()


def of_cut_branch(w: Any, x: Any) -> Any:
    return of_branch(lax.stop_gradient(w), x) + w.sum() * 0.0 if x.max() > 9 else of_branch(lax.stop_gradient(w), x)


def of_many_branches(w: Any, x: Any) -> Any:
    return sum(w.sum() * x.sum() for number in range(60) if w.sum() < number)


@pytest.mark.parametrize("fn", [of_branch, of_loop, of_mask, of_inner_branch, of_cut_branch, of_many_branches])
def test_a_function_that_branches_on_values_is_traced_with_those_of_its_arguments(fn: Callable[..., Any]) -> None:
    is_cut = fn is of_cut_branch
    assert np.asarray(jax.grad(fn)(W, X)).any() != is_cut
    found = gradir.explain(fn, W, X)
    assert (found.statuses["w"], [cause.kind for cause in found.causes]) == (
        ("cut", ["stop_gradient"]) if is_cut else ("reached", [])
    )
    if not is_cut:
        assert gradir.verify(fn, W, X)


READS: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
    "int": ("exit", "int", lambda w: int(w.sum())),
    "item": ("exit", "item", lambda w: jnp.abs(w).max().item()),
    "argmax": ("nondifferentiable", "argmax", lambda w: int(jnp.argmax(w))),
    "stop_gradient": ("stop_gradient", "stop_gradient", lambda w: lax.stop_gradient(w).sum().item()),
    "if": ("unused", "", lambda w: 2 if w.sum() > 0 else 1),
}


@pytest.mark.parametrize(("kind", "op", "read"), READS.values(), ids=READS)
def test_a_parameter_that_is_only_read_as_numbers_is_cut_at_that_line(
    kind: str, op: str, read: Callable[[Any], Any]
) -> None:
    def loss(p: Any, x: Any) -> Any:
        return (x @ p["w"]).sum() * read(p["v"])

    p = {"v": jnp.abs(W), "w": W}
    assert not np.asarray(jax.grad(loss)(p, X)["v"]).any()
    (cause,) = gradir.explain(loss, p, X).causes
    line = None if kind == "unused" else read.__code__.co_firstlineno
    assert (cause.kind, cause.op, cause.names) == (kind, op, ("v",))
    assert (cause.source and cause.source.line) == line
    (cut,) = gradir.capture(loss, p, X).cuts
    assert (cut.kind, cut.names, cut.source) == (kind, ("v",), cause.source)


def test_a_function_that_branches_on_values_needs_them() -> None:
    with pytest.raises(CaptureError, match=r"of_branch branches on values or reads them, .* pass arrays"):
        gradir.capture(of_branch, jax.ShapeDtypeStruct((4, 4), float), X)
    unknown = r"reads a value at tests/test_jax_corners.py:\d+ that JAX does not know: Abstract tracer"
    with pytest.raises(CaptureError, match=unknown):
        gradir.capture(lambda w: w.sum() * float(w.sum()), W)
    by_rule = jax.custom_vjp(lambda w: w.sum() if w.sum() > 0 else -w.sum())
    by_rule.defvjp(lambda w: (w.sum(), w), lambda w, g: (g * w,))
    with pytest.raises(CaptureError, match="that JAX does not know: Attempted boolean"):
        gradir.capture(by_rule, W)
    with pytest.raises(CaptureError, match="asks for more than 100 values as it runs"):
        gradir.capture(lambda w: w.sum() if all(w.sum() + number > 0 for number in range(200)) else w, W)
