"""What single nodes of a graph of JAX say: edges, attributes, lines, names, storages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
import jax_oracle  # noqa: E402
import jax_told  # noqa: E402
from jax import lax  # noqa: E402
from jax_cases import CASES  # noqa: E402
from jax_cases.model import B, S, W, X, f32  # noqa: E402

import gradir  # noqa: E402
from gradir.errors import CaptureError  # noqa: E402
from gradir.ir import Graph, Node, Ref  # noqa: E402


def captured(name: str) -> Graph:
    case = CASES[name]
    return gradir.capture(case.fn, *case.args, argnums=case.argnums, has_aux=case.has_aux)


def nodes(graph: Graph, op: str) -> list[Node]:
    return [node for node in graph.nodes.values() if node.op == op]


def only(graph: Graph, op: str) -> Node:
    (node,) = nodes(graph, op)
    return node


def test_a_straight_through_value_reaches_its_input_by_the_addition_alone() -> None:
    graph = captured("flow.straight_through")
    add = only(graph, "add")
    assert add.inputs == (Ref(only(graph, "dot_general").id, 0), None)
    assert add.attrs["stopped"] == (1,)


def test_a_stopped_value_is_recorded_at_its_reader() -> None:
    graph = captured("cuts.stop_gradient_of_a_target")
    sub = only(graph, "sub")
    assert sub.inputs == (Ref(only(graph, "dot_general").id, 0), None)
    assert sub.attrs["stopped"] == (1,)
    (cut,) = graph.cuts
    assert (cut.into, cut.slot) == (sub.id, 1)


def test_a_value_read_twice_is_in_two_slots_and_is_kept_once() -> None:
    graph = captured("flow.same_input_twice")
    matmul, mul = only(graph, "dot_general"), only(graph, "mul")
    assert mul.inputs == (Ref(matmul.id, 0), Ref(matmul.id, 0))
    assert [slot.origin for slot in mul.saved] == [Ref(matmul.id, 0)]


def test_a_weight_that_two_operations_keep_has_one_storage() -> None:
    graph = captured("checkpoints.no_checkpoint")
    weight = next(node for node in graph.nodes.values() if node.names == ("w2",))
    keeping = [slot for node in graph.nodes.values() for slot in node.saved if slot.storage == weight.id]
    assert [(slot.slot, slot.bytes, slot.origin) for slot in keeping] == [("in1", 256, Ref(weight.id, 0))] * 2


def test_literals_are_attributes_of_their_slot() -> None:
    assert only(captured("flow.mlp"), "div").attrs["in1"] == 2.0
    assert only(captured("flow.mlp"), "integer_pow").attrs["y"] == 2


def test_dimension_numbers_are_attributes_of_numbers() -> None:
    node = only(captured("flow.same_input_twice"), "dot_general")
    assert node.attrs["dimension_numbers"] == (((1,), (0,)), ((), ()))


def test_tensors_of_a_trace_have_no_device() -> None:
    graph = captured("flow.mlp")
    assert {tensor.device for node in graph.nodes.values() for tensor in node.outputs} == {None}
    assert only(graph, "tanh").outputs[0].dtype == "float32"


def test_a_rule_of_jax_is_one_node_by_its_name_and_not_opaque() -> None:
    node = only(captured("rules.relu"), "relu")
    assert (node.native, node.opaque) == ("custom_jvp_call", False)
    node = only(captured("rules.custom_vjp"), "clip_grad")
    assert (node.native, node.opaque) == ("custom_vjp_call", False)


def test_a_shard_map_is_opaque() -> None:
    assert only(captured("flow.shard_map_on_one_device"), "shard_map").opaque


def test_checkpointed_operations_name_the_policy() -> None:
    policies = {node.attrs.get("remat") for node in captured("checkpoints.dots_saveable").nodes.values()}
    assert policies == {None, "dots_saveable"}
    assert only(captured("checkpoints.checkpoint_in_jit_in_vmap"), "sin").attrs["remat"] == "nothing_saveable"


def test_a_name_for_a_checkpoint_is_the_name_of_a_node() -> None:
    assert [node.names for node in nodes(captured("checkpoints.save_only_these_names"), "name")] == [("mid",)] * 2


def test_carries_of_a_loop_are_reported() -> None:
    graph = captured("loops.rnn")
    keeping = {node.op: node.ext["carried_inputs"] for node in graph.nodes.values() if "carried_inputs" in node.ext}
    assert keeping == {"dot_general": (0,)}
    exit_node = only(graph, "scan")
    assert (exit_node.attrs["length"], exit_node.attrs["reverse"]) == (5, False)
    assert exit_node.scope == ""
    assert {node.scope for node in graph.nodes.values() if node.op in {"tanh", "dot_general"}} == {"scan"}


def test_residuals_of_stacked_layers_are_stacked() -> None:
    graph = captured("loops.stacked_layers")
    shapes = {slot.slot: slot.shape for slot in only(graph, "dot_general").saved}
    assert shapes == {"in0": (3, 4, 8), "in1": (3, 8, 8)}


def test_a_conditional_takes_no_gradient_to_its_index() -> None:
    graph = captured("branches.cond")
    exit_node = only(graph, "cond")
    sin, tanh = only(graph, "sin"), only(graph, "tanh")
    assert exit_node.inputs == (None, Ref(sin.id, 0), Ref(tanh.id, 0))
    assert (sin.scope, tanh.scope, exit_node.scope) == ("branch0", "branch1", "")


def test_branches_share_residuals() -> None:
    graph = captured("branches.cond")
    nodes = [only(graph, op) for op in ("sin", "tanh")]
    kept = [slot.storage or f"{node.id}.{slot.slot}" for node in nodes for slot in node.saved if slot.shape == (4, 8)]
    assert len({*kept}) < len(kept)


def test_the_backward_inside_shows_its_phase() -> None:
    graph = captured("nested.gradient_penalty")
    phases = {node.attrs.get("phase") for node in graph.nodes.values() if node.scope == "critic"}
    assert phases == {"jvp", "transpose.jvp"}


def test_outputs_have_their_path() -> None:
    assert [node.id for node in captured("pytrees.several_outputs").outputs] == ["output:a", "output:b"]
    assert [node.id for node in captured("pytrees.aux").outputs] == ["output"]


def test_the_producer_shows_framework_release_and_argnums() -> None:
    producer = captured("pytrees.two_arguments").producer
    assert producer is not None
    assert (producer.framework, producer.framework_version) == ("jax", jax.__version__)
    assert producer.options["argnums"] == (0, 1)
    assert producer.options["flow"] is True


def test_a_jitted_function_called_on_two_lines_has_the_line_of_each_call() -> None:
    f = jax.jit(jnp.tanh)

    def loss(p: Any, x: Any) -> Any:
        a = f(x @ p["w"])
        return f(a @ p["w"]).sum()

    first = loss.__code__.co_firstlineno
    graph = gradir.capture(loss, {"w": W}, X)
    assert [node.source.line - first for node in nodes(graph, "tanh")] == [1, 2]
    assert {node.source.file for node in nodes(graph, "tanh")} == {"tests/test_jax_details.py"}
    assert {node.source.function for node in nodes(graph, "tanh")} == {"loss"}


def test_a_library_function_has_the_line_that_calls_it() -> None:
    def loss(p: Any, x: Any) -> Any:
        h = x @ p["w"]
        return jax.nn.softmax(h).sum()

    graph = gradir.capture(loss, {"w": W}, X)
    first = loss.__code__.co_firstlineno
    assert {node.source.line - first for node in graph.nodes.values() if node.op in {"exp", "div"}} == {2}


def test_a_symbolic_batch_stays_a_name() -> None:
    from jax import export

    (batch,) = export.symbolic_shape("b")
    graph = gradir.capture(lambda w, x: jnp.tanh(x @ w).sum(), W, S((batch, 8), f32))
    assert only(graph, "tanh").shape == ("b", 8)
    assert {slot.bytes for slot in only(graph, "tanh").saved} == {None}
    assert gradir.loads(gradir.dumps(graph)) == graph


def test_keyword_arguments_are_not_differentiated() -> None:
    def loss(p: Any, *, x: Any) -> Any:
        return jnp.sin(x @ p["w"]).sum()

    graph = gradir.capture(loss, {"w": W}, kwargs={"x": X})
    assert (jax_told.names(graph, "parameter"), jax_told.names(graph, "input")) == ("w", "x")


def test_a_partial_and_a_method_are_functions() -> None:
    from functools import partial

    class Trainer:
        def loss(self, scale: float, p: Any, x: Any) -> Any:
            return scale * jnp.sin(x @ p["w"]).sum()

    graph = gradir.capture(partial(Trainer().loss, 2.0), {"w": W}, X)
    assert jax_told.names(graph, "parameter") == "w"


@contextmanager
def flag(name: str) -> Iterator[bool]:
    """A setting of JAX, where this release has it."""
    if not hasattr(jax.config, name):
        yield False
        return
    before = getattr(jax.config, name)
    jax.config.update(name, True)
    try:
        yield True
    finally:
        jax.config.update(name, before)


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("checkpoints.")])
def test_the_checkpoints_that_are_to_come_have_the_same_operations_and_what_jax_holds_then(name: str) -> None:
    case, ops = CASES[name], jax_told.ops(captured(name))
    with flag("jax_remat3"):
        graph = captured(name)
        kept = jax_oracle.residual_bytes(jax_oracle.make_question(case.fn, case.args))
    assert jax_told.ops(graph) == ops
    assert jax_told.sum_held_bytes(graph) == kept


def test_loops_of_mutable_arrays_are_refused_or_not_there() -> None:
    case = CASES["loops.fori_loop"]
    ops = jax_told.ops(captured("loops.fori_loop"))
    with flag("jax_scan3") as is_there:
        if is_there:
            with pytest.raises(CaptureError, match="mutable array, through which gradients cannot be followed"):
                gradir.capture(case.fn, *case.args)
        else:
            assert jax_told.ops(gradir.capture(case.fn, *case.args)) == ops


def test_an_error_of_the_program_stays_its_own() -> None:
    def loss(w: Any) -> Any:
        return w @ jnp.ones(3)

    with pytest.raises(TypeError, match="dot_general"):
        gradir.capture(loss, B)


def deep(count: int) -> Callable[..., Any]:
    def loss(w: Any) -> Any:
        for _ in range(count):
            w = w * 2.0
        return w.sum()

    return loss


def test_a_chain_of_many_operations_needs_no_recursion() -> None:
    graph = gradir.capture(deep(3000), B)
    assert len(nodes(graph, "mul")) == 3000


def test_checkpoints_in_checkpoints_are_owned_by_the_outermost() -> None:
    graph = captured("checkpoints.checkpoint_in_a_checkpoint")
    states = {slot.state for node in nodes(graph, "tanh") for slot in node.saved}
    assert states == {"recomputed"}


def test_a_loop_does_not_grow_with_its_rounds() -> None:
    def loss(w: Any, x: Any, length: int) -> Any:
        return lax.scan(lambda h, _: (jnp.sin(h @ w), None), x, None, length=length)[0].sum()

    few, many = (gradir.capture(lambda w, x, n=n: loss(w, x, n), W, X) for n in (2, 2000))
    assert len(few.nodes) == len(many.nodes)
    assert jax_told.sum_held_bytes(many) - jax_told.sum_held_bytes(few) == 1998 * 2 * 128


def test_layers_of_one_checkpointed_function_are_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from gradir.frontends.jax.reading import slots

    evaluated = []
    pullback = slots.trace_pullback
    monkeypatch.setattr(slots, "trace_pullback", lambda *args: evaluated.append(args) or pullback(*args))

    @jax.checkpoint
    def layer(w: Any, x: Any) -> Any:
        return jnp.tanh(jnp.sin(x @ w))

    def loss(ws: list[Any], x: Any) -> Any:
        for w in ws:
            x = layer(w, x)
        return x.sum()

    graph = gradir.capture(loss, [W] * 6, X)
    # Nothing goes back to what the first takes, so it holds something else than the others.
    assert len(evaluated) == 2
    assert len({node.saved[0].state for node in nodes(graph, "tanh")}) == 1
    assert gradir.verify(loss, [W] * 6, X)
