"""The pass ``rollup``: which blocks become one, and what keeps them apart."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from samples import everything

from gradir.ir import Builder, Graph, Node, Ref, Saved, Scope, TensorMeta
from gradir.ir.build import Value
from gradir.ir.totals import totals
from gradir.ir.validate import check
from gradir.passes import drop, fold, hide_shape_ops, rollup

META = TensorMeta("float32", (2, 3))
Layer = Callable[[Builder, Value, str], Value]


def residual(b: Builder, value: Value, path: str) -> Value:
    """A layer with a parameter, and its input added to what it makes."""
    weight = b.tensor(f"{path}.fc.weight", META, role="parameter", scope=f"{path}.fc")
    inner = b.function("mm", [value, weight], [META], scope=f"{path}.fc", saved=[(Saved("self", bytes=24), value)])
    return b.function("add", [value, inner], [META], scope=path)


def stack(count: int, layer: Layer = residual, first: int = 0, **kinds: Layer) -> Graph:
    """``layers.N`` above one leaf, each made by ``layer`` or by what ``kinds`` has for its number (``_3=…``)."""
    b = Builder()
    value = b.tensor("x", META)
    for number in range(first, first + count):
        value = kinds.get(f"_{number}", layer)(b, value, f"layers.{number}")
    b.output(b.function("sum", [value], [META]))
    layers = [Scope(f"layers.{number}", "Block", "8 heads", 1, 0, 6, 6) for number in range(first, first + count)]
    inner = [Scope(f"layers.{number}.fc", "Linear", "", 1, 6, 6, 6) for number in range(first, first + count)]
    return b.build(scopes=[Scope("", "Net", "", 1, 0, 6 * count, 6 * count), *layers, *inner])


def paths(graph: Graph) -> list[str]:
    return sorted({node.scope for node in graph.nodes.values()})


def test_layers_that_are_alike_become_one() -> None:
    rolled = rollup(stack(12))
    check(rolled)
    mm, add = "layers.0-11.fc/mm:1", "layers.0-11/add:1"
    assert list(rolled.nodes) == ["x", "layers.0-11.fc.weight", mm, add, "sum:1", "output"]
    assert rolled.nodes[mm] == Node(
        mm,
        op="mm",
        native="mm",
        scope="layers.0-11.fc",
        inputs=(Ref("x", 0), Ref("layers.0-11.fc.weight", 0)),
        outputs=(META,),
        saved=(Saved("self", bytes=24, origin=Ref("x", 0)),),
        ext={"times": 12, "carried_inputs": (0,), "merged": ((None, "held", 11, 0, 11 * 24),)},
    )
    assert (rolled.nodes[add].inputs, rolled.nodes[add].ext) == (
        (Ref("x", 0), Ref(mm, 0)),
        {"times": 12, "carried_inputs": (0,)},
    )
    weight = rolled.nodes["layers.0-11.fc.weight"]
    assert (weight.names, weight.ext) == (("layers.0-11.fc.weight",), {"times": 12})
    assert rolled.nodes["sum:1"] == msgspec.structs.replace(stack(12).nodes["sum:1"], inputs=(Ref(add, 0),))


def test_the_modules_count_all_the_blocks() -> None:
    assert list(rollup(stack(12)).scopes.values()) == [
        Scope("", "Net", "", 1, 0, 72, 72),
        Scope("layers.0-11", "Block ×12", "8 heads", 12, 0, 72, 72),
        Scope("layers.0-11.fc", "Linear", "", 12, 72, 72, 72),
    ]


def test_without_recorded_modules_the_number_still_shows() -> None:
    graph = stack(3)
    bare = Graph.of(graph.nodes.values())
    assert list(rollup(bare).scopes.values()) == [Scope("layers.0-2", "×3")]


def test_layers_need_not_start_at_0_nor_lie_in_a_module() -> None:
    assert "layers.7-8/add:1" in rollup(stack(2, first=7)).nodes
    b = Builder()
    value = b.tensor("x", META)
    for number in range(3):
        value = b.function("exp", [value], [META], scope=f"{number}")
    b.output(value)
    assert list(rollup(b.build()).nodes) == ["x", "0-2/exp:1", "output"]


def another_op(b: Builder, value: Value, path: str) -> Value:
    return b.function("relu", [residual(b, value, path)], [META], scope=path)


def another_shape(b: Builder, value: Value, path: str) -> Value:
    weight = b.tensor(f"{path}.fc.weight", TensorMeta("float32", (1,)), role="parameter", scope=f"{path}.fc")
    inner = b.function("mm", [value, weight], [META], scope=f"{path}.fc", saved=[(Saved("self", bytes=24), value)])
    return b.function("add", [value, inner], [META], scope=path)


def another_wiring(b: Builder, value: Value, path: str) -> Value:
    weight = b.tensor(f"{path}.fc.weight", META, role="parameter", scope=f"{path}.fc")
    inner = b.function("mm", [value, weight], [META], scope=f"{path}.fc", saved=[(Saved("self", bytes=24), value)])
    return b.function("add", [inner, value], [META], scope=path)


def another_attribute(b: Builder, value: Value, path: str) -> Value:
    weight = b.tensor(f"{path}.fc.weight", META, role="parameter", scope=f"{path}.fc")
    inner = b.function("mm", [value, weight], [META], scope=f"{path}.fc", attrs={"alpha": 2})
    return b.function("add", [value, inner], [META], scope=path)


@pytest.mark.parametrize("odd", [another_op, another_shape, another_wiring, another_attribute])
def test_an_odd_layer_splits_the_stack(odd: Layer) -> None:
    rolled = rollup(stack(6, _3=odd))
    assert [path for path in paths(rolled) if path.count(".") == 1] == ["layers.0-2", "layers.3", "layers.4-5"]
    assert [scope.class_name for scope in rolled.scopes.values() if scope.path.count(".") == 1] == [
        "Block ×3",
        "Block",
        "Block ×2",
    ]
    odd_inputs = {ref.id for node in rolled.nodes.values() if node.scope.startswith("layers.3") for ref in node.inputs}
    assert "layers.0-2/add:1" in odd_inputs


def test_names_and_source_lines_may_differ() -> None:
    def named(b: Builder, value: Value, path: str) -> Value:
        return b.function("exp", [value], [META], scope=path, names=[f"h{path[-1]}"])

    rolled = rollup(stack(3, named))
    assert rolled.nodes["layers.0-2/exp:1"].names == ("h0",)


def test_a_gap_in_the_numbers_is_no_stack() -> None:
    b = Builder()
    value = b.tensor("x", META)
    for number in (0, 2, 4):
        value = b.function("exp", [value], [META], scope=f"layers.{number}")
    b.output(value)
    graph = b.build()
    assert rollup(graph) is graph


def test_an_input_that_all_layers_share_stays_one_edge() -> None:
    b = Builder()
    mask, value = b.tensor("mask", META), b.tensor("x", META)
    for number in range(4):
        value = b.function("mul", [value, mask], [META], scope=f"layers.{number}")
    b.output(value)
    rolled = rollup(b.build())
    assert rolled.nodes["layers.0-3/mul:1"].inputs == (Ref("x", 0), Ref("mask", 0))
    assert rolled.nodes["layers.0-3/mul:1"].ext == {"times": 4, "carried_inputs": (0,)}


def test_a_layer_that_feeds_something_else_is_the_last_of_its_stack() -> None:
    b = Builder()
    value = b.tensor("x", META)
    states = []
    for number in range(5):
        value = b.function("exp", [value], [META], scope=f"layers.{number}")
        states.append(value)
    b.output(states[2], "middle")
    b.output(value, "last")
    rolled = rollup(b.build())
    check(rolled)
    assert paths(rolled) == ["", "layers.0-2", "layers.3-4"]
    assert rolled.nodes["output:middle"].inputs == (Ref("layers.0-2/exp:1", 0),)
    assert rolled.nodes["layers.3-4/exp:1"].inputs == (Ref("layers.0-2/exp:1", 0),)


def test_blocks_side_by_side_and_inputs_of_their_own_keep_blocks_apart() -> None:
    b = Builder()
    x = b.tensor("x", META)
    heads = [b.function("exp", [x], [META], scope=f"heads.{number}") for number in range(3)]
    value = b.function("cat", heads, [META])
    for number in range(3):
        value = b.function("mul", [value, b.tensor(f"noise{number}", META)], [META], scope=f"layers.{number}")
    b.output(value)
    graph = b.build()
    assert rollup(graph) is graph


def test_operations_between_blocks_prevent_a_rollup() -> None:
    b = Builder()
    value = b.tensor("x", META)
    for number in range(3):
        value = b.function("relu", [b.function("exp", [value], [META], scope=f"layers.{number}")], [META])
    b.output(value)
    graph = b.build()
    assert rollup(graph) is graph


def test_several_outputs_are_carried_by_number() -> None:
    b = Builder()
    cell = b.function("split", [b.tensor("x", META)], [META, META], scope="layers.0")
    for number in (1, 2, 3):
        cell = b.function("lstm", [cell.output(1), cell], [META, META], scope=f"layers.{number}")
    b.output(cell.output(1))
    rolled = rollup(b.build())
    node = rolled.nodes["layers.1-3/lstm:1"]
    assert node.inputs == (Ref("layers.0/split:1", 1), Ref("layers.0/split:1", 0))
    assert node.ext == {"times": 3, "carried_inputs": (0, 1)}
    assert rolled.nodes["output"].inputs == (Ref("layers.1-3/lstm:1", 1),)


def test_outputs_that_are_swapped_now_and_then_end_a_stack() -> None:
    b = Builder()
    cell = b.function("split", [b.tensor("x", META)], [META, META], scope="layers.0")
    for number in (1, 2, 3, 4):
        fed = [cell.output(1), cell] if number == 3 else [cell, cell.output(1)]
        cell = b.function("lstm", fed, [META, META], scope=f"layers.{number}")
    b.output(cell)
    rolled = rollup(b.build())
    assert list(rolled.nodes) == ["x", "layers.0/split:1", "layers.1-2/lstm:1", "layers.3-4/lstm:1", "output"]
    assert rolled.nodes["layers.3-4/lstm:1"].inputs == (Ref("layers.1-2/lstm:1", 1), Ref("layers.1-2/lstm:1", 0))


def node(key: str, *sources: str, base: str | None = None) -> Node:
    scope = key.rpartition("/")[0]
    op = key.rpartition("/")[2]
    return Node(key, op=op, scope=scope, inputs=tuple(Ref(source, 0) for source in sources), base=base)


def test_the_order_within_a_block_is_its_own() -> None:
    nodes = [
        node("x"),
        node("h.0/p", "x"),
        node("h.0/q", "x"),
        node("h.0/add", "h.0/p", "h.0/q"),
        node("h.1/q", "h.0/add"),
        node("h.1/p", "h.0/add"),
        node("h.1/add", "h.1/p", "h.1/q"),
        node("sum", "h.1/add"),
    ]
    rolled = rollup(Graph.of(nodes))
    check(rolled)
    assert list(rolled.nodes) == ["x", "h.0-1/p", "h.0-1/q", "h.0-1/add", "sum"]


def test_blocks_whose_rollup_would_break_the_order_stay_apart() -> None:
    nodes = [
        node("x"),
        node("h.1/p", "x"),
        node("early", "h.1/p"),
        node("h.0/p", "x"),
        node("h.0/add", "x", "h.0/p"),
        node("h.1/add", "h.0/add", "h.1/p"),
        node("sum", "h.1/add", "early"),
    ]
    graph = Graph.of(nodes)
    check(graph)
    assert rollup(graph) is graph


def test_a_base_in_the_block_before_keeps_blocks_apart() -> None:
    graph = Graph.of([node("x"), node("h.0/a", "x", base="x"), node("h.1/a", "h.0/a", base="h.0/a")])
    assert rollup(graph) is graph


def test_blocks_that_do_not_feed_each_other_are_no_stack() -> None:
    graph = Graph.of([node("x"), node("h.0/a", "x"), node("h.1/a", "x")])
    assert rollup(graph) is graph


def test_stacks_within_stacks() -> None:
    def nested(b: Builder, value: Value, path: str) -> Value:
        for number in range(3):
            value = b.function("exp", [value], [META], scope=f"{path}.sub.{number}")
        return b.function("relu", [value], [META], scope=path)

    rolled = rollup(stack(4, nested))
    check(rolled)
    assert list(rolled.nodes) == ["x", "layers.0-3.sub.0-2/exp:1", "layers.0-3/relu:1", "sum:1", "output"]
    assert rolled.nodes["layers.0-3.sub.0-2/exp:1"].ext == {"times": 12, "carried_inputs": (0,)}
    assert rolled.nodes["layers.0-3/relu:1"].ext == {"times": 4}
    assert rolled.scopes["layers.0-3"].class_name == "Block ×4"


def test_an_id_that_is_taken_gets_a_suffix() -> None:
    b = Builder()
    value = b.tensor("layers.0-1/exp:1", META)
    value = b.function("exp", [value], [META], scope="layers.0-1")
    for number in range(2):
        value = b.function("exp", [value], [META], scope=f"layers.{number}")
    b.output(value)
    rolled = rollup(b.build())
    check(rolled)
    assert list(rolled.nodes)[1:] == ["layers.0-1/exp:1", "layers.0-1/exp:1~2", "output"]


def test_saved_tensors_name_what_is_left() -> None:
    def saving(b: Builder, value: Value, path: str) -> Value:
        weight = b.tensor(f"{path}.weight", META, role="parameter", scope=path)
        return b.function(
            "mul",
            [value, weight],
            [META],
            scope=path,
            saved=[(Saved("other", bytes=24, storage=f"{path}.weight"), weight), (Saved("self", bytes=24), value)],
        )

    b = Builder()
    first = value = b.tensor("x", META)
    states = []
    for number in range(3):
        value = saving(b, value, f"layers.{number}")
        states.append(value)
    seen = [(Saved("last"), states[2]), (Saved("middle"), states[1]), (Saved("x"), first)]
    weights = [(Saved(f"w{number}", bytes=24, storage=f"layers.{number}.weight"), None) for number in range(3)]
    b.output(b.function("sum", [value], [META], saved=seen + weights))
    graph = b.build()
    rolled = rollup(graph)
    slots = rolled.nodes["layers.0-2/mul:1"].saved
    assert [(slot.origin, slot.storage) for slot in slots] == [
        (Ref("layers.0-2.weight", 0), "layers.0-2.weight"),
        (Ref("x", 0), ""),
    ]
    outside = rolled.nodes["sum:1"].saved
    assert [slot.origin for slot in outside] == [Ref("layers.0-2/mul:1", 0), None, Ref("x", 0), None, None, None]
    assert [slot.bytes for slot in outside[3:]] == [24, None, 24]
    # What each mul saved of its input: weights are nobody's activations.
    assert totals(rolled).saved_bytes == totals(graph).saved_bytes == 3 * 24


def test_nothing_repeated_is_the_same_graph() -> None:
    for graph in (everything(), stack(1), Graph.of([])):
        assert rollup(graph) is graph


def test_it_composes_with_the_other_passes() -> None:
    rolled = rollup(stack(12))
    assert rollup(rolled) is rolled
    module = fold(rolled, 2).nodes["layers.0-11"]
    assert (module.native, module.attrs["nodes"]) == ("Block ×12", 12 * 3)
    assert rollup(hide_shape_ops(drop(stack(12), ["parameter"]))).nodes["layers.0-11.fc/mm:1"].ext == {
        "elided_inputs": (1,),
        "times": 12,
        "carried_inputs": (0,),
        "merged": ((None, "held", 11, 0, 11 * 24),),
    }


@pytest.mark.parametrize("scope", ["0" * 5, "9" * 5000, "-1", "\uff11", "1.5", "x.01"])
def test_odd_numbers_are_names(scope: str) -> None:
    b = Builder()
    value = b.tensor("x", META)
    for path in (scope, f"{scope}0", "7", "9"):
        value = b.function("exp", [value], [META], scope=f"layers.{path}")
    b.output(value)
    graph = b.build()
    assert rollup(graph) is graph
