"""Folding modules into one node each."""

from __future__ import annotations

import re
from collections import Counter
from graphlib import CycleError, TopologicalSorter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import chain, everything, hostile
from strategies import graphs

from gradir import codecs
from gradir.errors import PassError
from gradir.ir import Builder, Graph, Node, Ref, Saved, Scope, TensorMeta
from gradir.ir.totals import totals
from gradir.ir.validate import check
from gradir.passes import fold, scope_depth

META = TensorMeta("float32", (2, 3))
depths = st.integers(0, 4)


def place(node: Node, depth: int, graph: Graph) -> str | None:
    """The module a node goes into, stated anew for the laws."""
    components = node.scope.split(".") if node.scope else []
    if node.role in {"output", "view_base"} or len(components) < depth:
        return None
    paths = [".".join(components[:length]) for length in range(depth, len(components) + 1)]
    return next((path for path in paths if not path or not is_list(path, graph)), None)


def is_list(path: str, graph: Graph) -> bool:
    """Whether a module was not called, and one in it was."""
    called = [scope.path for scope in graph.scopes.values() if scope.calls]
    return path not in called and any(other.startswith(f"{path}.") for other in called)


def key(node: Node, depth: int, graph: Graph) -> tuple[str, str]:
    target = place(node, depth, graph)
    return ("node", node.id) if target is None else ("module", target)


def folded_key(node: Node, depth: int) -> tuple[str, str]:
    if node.role != "module":
        return ("node", node.id)
    return ("module", re.sub(r" \(\d+\)$", "", node.names[0]) if depth else "")


def contracted_edges(graph: Graph, depth: int) -> set[tuple[tuple[str, str], tuple[str, str]]]:
    keys = {node.id: key(node, depth, graph) for node in graph.nodes.values()}
    return {(keys[e.src], keys[e.dst]) for e in graph.edges if keys[e.src] != keys[e.dst]}


def on_a_cycle(edges: set[tuple[tuple[str, str], tuple[str, str]]]) -> set[tuple[str, str]]:
    """The vertices that reach themselves, found by brute force."""
    vertices = {vertex for edge in edges for vertex in edge}
    reach = set(edges)
    for middle in vertices:
        into, onward = [src for src, dst in reach if dst == middle], [dst for src, dst in reach if src == middle]
        reach |= {(src, dst) for src in into for dst in onward}
    return {vertex for vertex in vertices if (vertex, vertex) in reach}


@given(graphs(), depths)
def test_the_result_is_a_valid_graph_with_the_same_outputs(graph: Graph, depth: int) -> None:
    folded = fold(graph, depth)
    check(folded)
    assert [(o.id, o.outputs, o.names) for o in folded.outputs] == [(o.id, o.outputs, o.names) for o in graph.outputs]
    assert (folded.cuts, folded.producer) == (graph.cuts, graph.producer)
    assert codecs.decode(codecs.encode(folded)) == folded


@given(graphs(), depths)
def test_every_node_is_counted_once(graph: Graph, depth: int) -> None:
    folded = fold(graph, depth)
    modules = [node for node in folded.nodes.values() if node.role == "module"]
    assert sum(m.attrs["nodes"] for m in modules) + len(folded.nodes) - len(modules) == len(graph.nodes)
    assert {folded_key(node, depth) for node in folded.nodes.values()} == {
        key(node, depth, graph) for node in graph.nodes.values()
    }


@given(graphs(), depths)
def test_a_fold_keeps_exactly_the_edges_between_modules(graph: Graph, depth: int) -> None:
    folded = fold(graph, depth)
    keys = {node.id: folded_key(node, depth) for node in folded.nodes.values()}
    found = {(keys[e.src], keys[e.dst]) for e in folded.edges}
    between_parts = {(src, dst) for src, dst in found if src == dst}
    assert found - between_parts == contracted_edges(graph, depth)


@given(graphs(), depths)
def test_a_module_is_split_only_where_it_lies_on_a_cycle(graph: Graph, depth: int) -> None:
    folded = fold(graph, depth)
    keys = [folded_key(node, depth) for node in folded.nodes.values()]
    split = {one for one in keys if keys.count(one) > 1}
    edges = contracted_edges(graph, depth)
    assert split <= on_a_cycle(edges)
    try:
        TopologicalSorter({dst: {s for s, d in edges if d == dst} for _, dst in edges}).prepare()
    except CycleError:
        assert split
    else:
        assert not split


@given(graphs(), depths)
def test_folding_twice_is_folding_once(graph: Graph, depth: int) -> None:
    once = fold(graph, depth)
    assert fold(once, depth) == once


@given(graphs(), depths)
def test_the_totals_of_folding_in_two_steps_are_those_of_one(graph: Graph, depth: int) -> None:
    def totals(folded: Graph) -> Counter[tuple[tuple[str, str], str]]:
        found: Counter[tuple[tuple[str, str], str]] = Counter()
        for node in folded.nodes.values():
            for name in ("nodes", "parameters") if node.role == "module" else ():
                found[folded_key(node, depth), name] += node.attrs[name]
        return found

    assert totals(fold(fold(graph, depth + 1), depth)) == totals(fold(graph, depth))


@given(graphs())
def test_a_depth_below_every_module_changes_nothing(graph: Graph) -> None:
    assert fold(graph, 9) is graph


def test_without_scopes_only_depth_0_folds() -> None:
    graph = chain(5)
    assert fold(graph, 1) is graph
    folded = fold(graph, 0)
    assert list(folded.nodes) == ["/", "output"]
    assert folded.nodes["/"].names == ("module",)
    assert folded.nodes["output"].inputs == (Ref("/", 0),)


def test_a_module_becomes_one_node() -> None:
    folded = fold(everything(), 1)
    assert list(folded.nodes) == ["x", "fc", "norm", "mul:1", "checkpoint_function:1", "output:0", "output:1.var"]
    assert folded.nodes["fc"] == Node(
        "fc",
        role="module",
        op="module",
        native="Linear",
        names=("fc",),
        inputs=(Ref("x", 0),),
        outputs=(TensorMeta("float32", (2, 4)),),
        attrs={"nodes": 3, "parameters": 12, "saved_bytes": 0},
        ext={"merged": ((None, "held", 2, 0, 0), (None, "", 0, 0, 48 + 24))},
    )
    norm = folded.nodes["norm"]
    assert norm.inputs == (Ref("fc", 0),)
    assert norm.outputs == (TensorMeta("float32", (2, 4)), TensorMeta("float32", (4,)))
    assert norm.attrs == {"nodes": 2, "parameters": 0, "saved_bytes": 32 + 16}
    assert folded.nodes["output:1.var"].inputs == (Ref("norm", 1),)
    assert folded.nodes["mul:1"].inputs == (Ref("norm", 0), Ref("norm", 0))
    assert set(folded.scopes) == {"", "fc", "norm"}


def test_at_depth_0_the_root_takes_all_but_the_outputs() -> None:
    folded = fold(everything(), 0)
    assert list(folded.nodes) == ["/", "output:0", "output:1.var"]
    root = folded.nodes["/"]
    assert (root.names, root.native, root.scope, root.opaque) == (("Model",), "Model", "", True)
    assert root.attrs["nodes"] == len(everything().nodes) - 2
    assert folded.nodes["output:0"].base == "/"
    assert set(folded.scopes) == {""}


def test_inputs_are_the_distinct_tensors_in_the_order_of_use() -> None:
    b = Builder()
    x, y = b.tensor("x", META), b.tensor("y", META)
    both = b.function("split", [x], [META, TensorMeta("float32", (1,))])
    first = b.function("add", [both.output(1), y, None], [META], scope="m")
    second = b.function("mul", [first, y, both], [META, META], scope="m.inner")
    b.output(second.output(1), "0")
    b.output(second, "1")
    b.output(first, "2")
    module = fold(b.build(), 1).nodes["m"]
    assert module.inputs == (Ref("split:1", 1), Ref("y", 0), Ref("split:1", 0))
    assert len(module.outputs) == 3
    folded = fold(b.build(), 1)
    assert [folded.nodes[f"output:{path}"].inputs for path in "012"] == [
        (Ref("m", 2),),
        (Ref("m", 1),),
        (Ref("m", 0),),
    ]


def test_deeper_modules_keep_their_place_in_the_module_tree() -> None:
    b = Builder()
    value = b.tensor("x", META)
    for scope in ("h", "h.0", "h.0.attn", "h.1.mlp.act"):
        value = b.function("add", [value], [META], scope=scope)
    b.output(value)
    graph = b.build(scopes=[Scope("h", "List"), Scope("h.0", "Block"), Scope("h.0.attn", "Attention")])
    folded = fold(graph, 2)
    assert list(folded.nodes) == ["x", "h/add:1", "h.0", "h.1", "output"]
    assert {(n.id, n.scope, n.native) for n in folded.nodes.values() if n.role == "module"} == {
        ("h.0", "h", "Block"),
        ("h.1", "h", ""),
    }
    assert set(folded.scopes) == {"h", "h.0"}


def test_ids_do_not_collide_with_tensors_of_the_same_name() -> None:
    b = Builder()
    value = b.tensor("fc", META)
    for scope in ("fc", "", "fc", "fc#2"):
        value = b.function("add", [value], [META], scope=scope)
    b.output(value)
    assert list(fold(b.build(), 1).nodes) == ["fc", "fc~2", "add:1", "fc#2", "fc#2~2", "output"]


def test_bytes_are_counted_once_per_storage_and_not_for_what_tensors_own() -> None:
    b = Builder()
    x = b.tensor("x", META)
    first = b.function(
        "exp",
        [x],
        [META],
        scope="m",
        saved=[(Saved("self", bytes=24, storage="x"), x), (Saved("result", bytes=100, storage="m/exp:1.result"), None)],
    )
    second = b.function(
        "mul",
        [first, first],
        [META],
        scope="m",
        saved=[
            (Saved("self", bytes=100, storage="m/exp:1.result"), first),
            (Saved("mask", bytes=7), None),
            (Saved("other", bytes=7), None),
            (Saved("gone", state="freed"), None),
        ],
    )
    b.output(second)
    assert fold(b.build(), 1).nodes["m"].attrs["saved_bytes"] == 100 + 7 + 7


def test_modules_that_save_the_same_storage_count_it_once_between_them() -> None:
    b = Builder()
    x = b.tensor("x", TensorMeta("float32", (2,)))
    h = b.function("exp", [x], [TensorMeta("float32", (2,))])
    for scope in ("a", "b"):
        slot = Saved("self", "float32", (2,), 8, storage="exp:1.result")
        b.output(b.function("cos", [h], [TensorMeta("float32", (2,))], scope=scope, saved=[(slot, h)]))
    graph = b.build()
    folded = fold(graph, 1)
    assert [folded.nodes[scope].attrs["saved_bytes"] for scope in ("a", "b")] == [8, 0]
    assert totals(folded).saved_bytes == totals(graph).saved_bytes == 8


def test_parameters_with_symbolic_or_unknown_sizes_are_not_counted() -> None:
    b = Builder()
    shapes = [(2, 3), (), ("s0", 3), None]
    tensors = [b.tensor(f"m.w{i}", TensorMeta("float32", s), role="parameter", scope="m") for i, s in enumerate(shapes)]
    b.output(b.function("cat", tensors, [META], scope="m"))
    assert fold(b.build(), 1).nodes["m"].attrs["parameters"] == 6 + 1


def test_a_saved_origin_follows_its_tensor_or_is_dropped() -> None:
    b = Builder()
    buffer = b.tensor("m.buffer", META, role="buffer", scope="m")
    inner = b.function("exp", [b.tensor("x", META)], [META, META], scope="m")
    outer = b.function(
        "mul",
        [inner.output(1)],
        [META],
        saved=[(Saved("seen"), inner.output(1)), (Saved("inside"), inner), (Saved("b"), buffer), (Saved("none"), None)],
    )
    b.output(outer)
    folded = fold(b.build(), 1)
    assert [slot.origin for slot in folded.nodes["mul:1"].saved] == [Ref("m", 0), None, None, None]


def test_a_buffer_stays_before_the_node_that_saved_it() -> None:
    b = Builder()
    buffer = b.tensor("buffer", META, role="buffer")
    value = b.function("exp", [b.tensor("x", META)], [META], scope="m")
    b.output(b.function("mul", [value], [META], saved=[(Saved("b"), buffer)]))
    assert list(fold(b.build(), 1).nodes) == ["x", "m", "buffer", "mul:1", "output"]


def test_a_negative_depth_is_refused() -> None:
    with pytest.raises(PassError, match="fold: depth -1"):
        fold(everything(), -1)


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_hostile_scopes_fold_to_valid_graphs(depth: int) -> None:
    folded = fold(hostile(), depth)
    check(folded)
    assert all(node.id.isprintable() for node in folded.nodes.values())


@pytest.mark.parametrize("scopes", [("m",), ("m", ""), ("m", "n")])
def test_a_long_chain_needs_no_recursion(scopes: tuple[str, ...]) -> None:
    length = 5_000
    nodes = [Node("x", role="leaf", outputs=(META,))]
    for i in range(length):
        nodes.append(Node(f"n{i}", scope=scopes[i % len(scopes)], inputs=(Ref(nodes[-1].id, 0),), outputs=(META,)))
    nodes.append(Node("output", role="output", inputs=(Ref(nodes[-1].id, 0),)))
    folded = fold(Graph.of(nodes), 1)
    check(folded)
    assert len(folded.nodes) == (3 if scopes == ("m",) else length + 2)


def test_the_depth_of_a_scope() -> None:
    assert [scope_depth(path) for path in ("", "a", "a.b", "layers.0.attn")] == [0, 1, 2, 3]
