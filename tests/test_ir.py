"""Graphs as data: records, order, edges, the builder."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import chain, everything
from strategies import graphs

from gradir.errors import GraphError
from gradir.ir import Builder, Cut, Edge, Graph, Node, Ref, Saved, TensorMeta
from gradir.ir.edges import postorder
from gradir.ir.ids import IdAllocator, encode_component
from gradir.ir.totals import totals
from gradir.ir.validate import check, problems


def test_edges_run_from_producer_to_consumer_by_slot() -> None:
    graph = everything()
    assert list(graph.edges)[:4] == [
        Edge("fc.weight", 0, "fc/t:1", 0),
        Edge("x", 0, "fc/addmm:1", 1),
        Edge("fc/t:1", 0, "fc/addmm:1", 2),
        Edge("fc/addmm:1", 0, "norm/native_batch_norm:1", 0),
    ]
    assert Edge("mul:1", 0, "output:0", -1, "view") in list(graph.edges)


def test_outputs_are_the_nodes_of_that_role() -> None:
    assert [node.id for node in everything().outputs] == ["output:0", "output:1.var"]


def test_label_is_the_first_name_then_the_op_then_the_id() -> None:
    assert Node("a:1", op="a", names=("h", "k")).label == "h"
    assert Node("a:1", op="a").label == "a"
    assert Node("a:1").label == "a:1"


def test_records_are_frozen() -> None:
    node = Node("x")
    with pytest.raises(AttributeError):
        node.id = "y"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([Node("a", inputs=(Ref("b", 0),))], "input 0 names 'b', which is not a node"),
        ([Node("a", inputs=(None, Ref("b", 0))), Node("b")], "input 1 names 'b', which comes after it"),
        ([Node("a", inputs=(Ref("a", 0),))], "comes after it (a cycle"),
        ([Node("b", outputs=(TensorMeta(),)), Node("a", inputs=(Ref("b", 1),))], "names output 1 of 'b'"),
        ([Node("b"), Node("a", inputs=(Ref("b", -1),))], "names output -1 of 'b'"),
        ([Node("a", base="b")], "its base names 'b'"),
        ([Node("a", saved=(Saved("self", origin=Ref("b", 0)),))], "saved tensor 'self' names 'b'"),
        ([Node("")], "an id is not empty"),
        ([Node("a\x1b[31m")], "printable"),
        ([Node("a\u202eb")], "printable"),
    ],
)
def test_check_names_the_broken_rule(nodes: list[Node], message: str) -> None:
    with pytest.raises(GraphError) as caught:
        check(Graph.of(nodes))
    assert message in str(caught.value)


def test_an_id_that_occurs_twice_is_refused() -> None:
    with pytest.raises(GraphError, match="'a' occurs twice"):
        Graph.of([Node("a"), Node("b"), Node("a")])


@given(graphs())
def test_a_built_graph_keeps_every_rule(graph: Graph) -> None:
    assert list(problems(graph)) == []


@given(graphs())
def test_repr_counts(graph: Graph) -> None:
    assert f"{len(graph.nodes)} nodes, {len(list(graph.edges))} edges" in repr(graph)


def test_building_in_another_order_gives_the_same_graph() -> None:
    def build(swap: bool) -> Graph:
        b = Builder()
        meta = TensorMeta("float32", (1,))
        names = ["y", "x"] if swap else ["x", "y"]
        leaves = {name: b.tensor(name, meta) for name in names}
        b.output(b.function("add", [leaves["x"], leaves["y"]], [meta]))
        return b.build()

    assert list(build(False).nodes) == list(build(True).nodes) == ["x", "y", "add:1", "output"]


def test_build_leaves_out_nodes_that_no_output_needs() -> None:
    b = Builder()
    meta = TensorMeta("float32", (1,))
    x = b.tensor("x", meta)
    b.function("exp", [x], [meta])
    b.output(x)
    assert list(b.build().nodes) == ["x", "output"]


def test_a_parameter_that_no_output_depends_on_is_an_unused_cut() -> None:
    b, meta = Builder(), TensorMeta("float32", (1,))
    used, alone, behind = (b.tensor(name, meta, role="parameter", scope="m") for name in ("m.w", "m.v", "m.u"))
    for name, role in [("leaf", "leaf"), ("state", "buffer"), ("", "parameter"), ("stopped", "parameter")]:
        b.tensor(name, meta, role=role)
    b.tensor("m.w", meta, role="parameter")
    b.function("exp", [behind], [meta])
    stop = Cut("stop_gradient", ("stopped",), op="detach")
    b.cut(stop)
    b.output(b.function("exp", [used], [meta]))
    assert alone != behind
    assert list(b.build().cuts) == [stop, *(Cut("unused", (name,), "m", meta) for name in ("m.v", "m.u"))]
    assert [cut.names for cut in b.build(cuts=[Cut("integer", ("m.v",))]).cuts] == [("stopped",), ("m.v",), ("m.u",)]


def test_a_cut_that_is_built_is_between_the_nodes_of_its_values() -> None:
    b, meta = Builder(), TensorMeta("float32", (1,))
    before = b.function("exp", [b.tensor("x", meta, role="parameter")], [meta])
    after = b.function("add", [before, None], [meta])
    b.cut(Cut("detach", ("x",)), at=before, into=after)
    b.output(after)
    assert [(cut.at, cut.into) for cut in b.build().cuts] == [("exp:1", "add:1")]


def test_slots_of_one_storage_get_the_key_of_its_owner_or_of_the_first() -> None:
    b = Builder()
    meta = TensorMeta("float32", (2,))
    kept = Saved("kept", "float32", (2,), 8)
    x, w = b.tensor("x", meta, role="input"), b.tensor("w", meta, role="parameter")
    y = b.function("mul", [w, None], [meta], saved=[(kept, x, "of x"), (Saved("result"), 0, "of y")])
    z = b.function("sin", [y], [meta], saved=[(kept, y, "of y"), (Saved("other"), None, "of x")], ext={"a": [[[1]]]})
    b.output(z)
    graph = b.build()
    mul, sin = graph.nodes["mul:1"], graph.nodes["sin:1"]
    assert [slot.storage for slot in mul.saved] == ["x", ""]
    assert mul.saved[1].origin == Ref("mul:1", 0)
    assert [slot.storage for slot in sin.saved] == ["mul:1.result", "x"]
    assert sin.ext == {"a": (((1,),),)}
    assert list(graph.nodes) == ["w", "x", "mul:1", "sin:1", "output"]


def test_a_builder_without_outputs_is_an_error() -> None:
    with pytest.raises(GraphError, match="needs an output"):
        Builder().build()


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, object(), {"a": 1}, ((((1,),),),)])
def test_attributes_that_no_file_holds_are_an_error(value: object) -> None:
    with pytest.raises(GraphError, match=r"function 'exp': attrs\['k'\]"):
        Builder().function("exp", [], [], attrs={"k": value})  # type: ignore[dict-item]


def test_a_value_of_another_builder_is_an_error() -> None:
    other = Builder()
    meta = TensorMeta("float32", (1,))
    other.tensor("a", meta)
    stray = other.tensor("b", meta)
    b = Builder()
    b.tensor("x", meta)
    with pytest.raises(GraphError, match="not of this builder"):
        b.output(stray)


@pytest.mark.parametrize("name", ["a b", "a/b", "a:b", "a%b", "\x00", "\ud800", "\u202e", "", "é", "layers.0.weight"])
def test_encoded_names_are_printable_and_keep_no_separator(name: str) -> None:
    encoded = encode_component(name)
    assert not set(encoded) & set(" /:\x00\u202e")
    assert encoded.isprintable()


@given(st.text(), st.text())
def test_encoding_names_is_injective(a: str, b: str) -> None:
    assert (encode_component(a) == encode_component(b)) == (a == b)


@given(st.lists(st.tuples(st.sampled_from(["function", "tensor", "output", "base"]), st.text(max_size=3))))
def test_ids_never_repeat(calls: list[tuple[str, str]]) -> None:
    ids = IdAllocator()
    made = [ids.function(text, text) if kind == "function" else getattr(ids, kind)(text) for kind, text in calls]
    assert len(set(made)) == len(made)


def test_inserting_into_one_scope_renumbers_no_other() -> None:
    def made(scopes: list[str]) -> dict[str, list[str]]:
        ids = IdAllocator()
        result: dict[str, list[str]] = {}
        for scope in scopes:
            result.setdefault(scope, []).append(ids.function(scope, "mul"))
        return result

    before, after = made(["a", "b", "a"]), made(["a", "b", "b", "a"])
    assert before["a"] == after["a"]


def test_postorder_of_a_million_nodes() -> None:
    size = 1_000_000
    order = postorder([size - 1], lambda key: [key - 1] if key else [])
    assert order == list(range(size))


def test_bytes_count_once_per_storage_and_not_for_parameters() -> None:
    # mat1 is x's storage and mat2 fc.weight's; running_mean is a buffer; input (32) and result1 (16) are activations.
    counts = totals(everything())
    assert (counts.saved_bytes, counts.parameters) == (48, 12)
    assert (counts.nodes, counts.edges) == (10, 10)


def test_two_slots_of_one_node_may_share_a_storage() -> None:
    saved = Saved("other", bytes=8), Saved("self", bytes=8, storage="mul:1.other")
    for slots in (saved, saved[::-1]):
        assert totals(Graph.of([Node("mul:1", saved=slots)])).saved_bytes == 8
    assert totals(Graph.of([Node("mul:1", saved=(saved[0], saved[0]))])).saved_bytes == 16


def test_totals_of_a_chain() -> None:
    counts = totals(chain(5))
    assert (counts.nodes, counts.edges) == (7, 6)


def test_edges_are_a_collection() -> None:
    graph = everything()
    edges = graph.edges
    assert [*edges] == [*edges]
    assert len(edges) == len([*edges])
    assert all(edge in edges for edge in edges)
    assert {edge.kind for edge in edges} == {"data", "view"}
    assert next(iter(edges))._replace(input_nr=99) not in edges
    assert next(iter(edges))._replace(dst="nobody") not in edges
    assert "x" not in edges
    assert repr(edges) == f"<gradir edges: {len(edges)}>"


def test_graphs_compare_by_value_in_both_ways() -> None:
    one, same, other = Graph.of([Node("x")]), Graph.of([Node("x")], unknown="a key"), Graph.of([Node("y")])
    assert one == same
    assert not one != same  # noqa: SIM202 (the other operator is meant)
    assert one != other
    assert not one == other  # noqa: SIM201
    assert one != "x"
