"""What holds for every graph, stated by brute force."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import chain, everything, hostile
from strategies import graphs

from gradir import codecs
from gradir.exporting import plan_passes
from gradir.ir import Graph, Node, Ref, TensorMeta
from gradir.ir.validate import check
from gradir.passes import ancestors, between, descendants, drop, focus, hide_shape_ops, once, rollup, without

Pair = tuple[str, str]

WORDS = ("function", "leaf", "parameter", "buffer", "output", "view_base", "saved", "accumulate_grad", "views")
words = st.lists(st.sampled_from(WORDS), max_size=4)


def pairs(graph: Graph) -> set[Pair]:
    return {(edge.src, edge.dst) for edge in graph.edges}


def reach(edges: set[Pair]) -> set[Pair]:
    """The pairs joined by a path of at least one edge."""
    found = set(edges)
    for middle in {vertex for edge in edges for vertex in edge}:
        into, onward = [a for a, b in found if b == middle], [b for a, b in found if a == middle]
        found |= {(a, b) for a in into for b in onward}
    return found


def joined_through(graph: Graph, gone: set[str]) -> set[Pair]:
    """The pairs of nodes that an edge or a path of nodes that are gone joins."""
    edges = pairs(graph)
    inner = reach({(a, b) for a, b in edges if a in gone and b in gone}) | {(a, a) for a in gone}
    entering, leaving = [e for e in edges if e[1] in gone], [e for e in edges if e[0] in gone]
    return edges | {(a, d) for a, b in entering for c, d in leaving if (b, c) in inner}


def is_in_order(part: Graph, whole: Graph) -> bool:
    return list(part.nodes) == [key for key in whole.nodes if key in part.nodes]


@st.composite
def picked(draw: st.DrawFn) -> tuple[Graph, str]:
    graph = draw(graphs())
    return graph, draw(st.sampled_from(list(graph.nodes)))


def every_pass(graph: Graph, key: str) -> list[Callable[[Graph], Graph]]:
    return [
        partial(focus, pattern=key),
        partial(focus, pattern=key, hops=2),
        partial(between, one=key, other=key),
        partial(ancestors, pattern=key),
        partial(descendants, pattern=key),
        partial(drop, what=["accumulate_grad", "buffer"]),
        partial(drop, what=WORDS[1:]),
        hide_shape_ops,
        rollup,
        once,
    ]


@given(picked())
def test_every_result_is_valid_in_order_and_survives_a_file(case: tuple[Graph, str]) -> None:
    graph, key = case
    for run in every_pass(graph, key):
        result = run(graph)
        check(result)
        assert (result.cuts, result.producer) == (graph.cuts, graph.producer)
        assert codecs.decode(codecs.encode(result)) == result
        assert run(graph) == result
        if run not in (rollup, once):
            assert is_in_order(result, graph)


@given(picked())
def test_a_graph_from_a_newer_version_stays_one(case: tuple[Graph, str]) -> None:
    graph, key = case
    newer = Graph.of(graph.nodes.values(), graph.scopes.values(), graph.cuts, graph.producer, read_from="1.9")
    for run in [*every_pass(graph, key), *plan_passes({"depth": 1})]:
        assert run(newer).read_from == "1.9"


def near(graph: Graph, start: str, hops: int) -> set[str]:
    edges = pairs(graph)
    found = {start}
    for _ in range(hops):
        found |= {b for a, b in edges if a in found} | {a for a, b in edges if b in found}
    return found


def saved_buffers(graph: Graph, kept: set[str]) -> set[str]:
    names = {n for key in kept for s in graph.nodes[key].saved for n in (s.storage, s.origin.id if s.origin else "")}
    return {name for name in names if name in graph.nodes and graph.nodes[name].role == "buffer"}


def keeps_exactly(result: Graph, graph: Graph, kept: set[str]) -> None:
    """The nodes, the edges among them, and nothing else about them changed."""
    kept = kept | saved_buffers(graph, kept)
    assert set(result.nodes) == kept
    assert list(result.edges) == [edge for edge in graph.edges if edge.src in kept and edge.dst in kept]
    for key, node in result.nodes.items():
        before = graph.nodes[key]
        assert (node.role, node.op, node.names, node.outputs, node.attrs, node.scope) == (
            (before.role, before.op, before.names, before.outputs, before.attrs, before.scope)
        )
        elided = tuple(slot for slot, ref in enumerate(before.inputs) if ref is not None and ref.id not in kept)
        assert node.ext.get("elided_inputs", ()) == elided
        assert len(node.inputs) == len(before.inputs)


def named(graph: Graph, pattern: str) -> set[str]:
    return {
        key
        for key, node in graph.nodes.items()
        if key == pattern or pattern in node.names or f"{node.scope}.".startswith(f"{pattern}.")
    }


@given(picked(), st.integers(0, 3))
def test_focus_keeps_nearby_nodes(case: tuple[Graph, str], hops: int) -> None:
    graph, key = case
    expected = {found for start in named(graph, key) for found in near(graph, start, hops)}
    keeps_exactly(focus(graph, key, hops), graph, expected)


@given(picked())
def test_focus_without_a_limit_keeps_all_that_is_connected(case: tuple[Graph, str]) -> None:
    graph, key = case
    connected = {found for start in named(graph, key) for found in near(graph, start, len(graph.nodes))}
    found = focus(graph, key, hops=None)
    keeps_exactly(found, graph, connected)
    if len(connected) == len(graph.nodes):
        assert found is graph


@given(picked())
def test_lineage_is_reachability(case: tuple[Graph, str]) -> None:
    graph, key = case
    ends, paths = named(graph, key), reach(pairs(graph))
    keeps_exactly(ancestors(graph, key), graph, ends | {a for a, b in paths if b in ends})
    keeps_exactly(descendants(graph, key), graph, ends | {b for a, b in paths if a in ends})


@given(picked(), st.data())
def test_between_is_every_path(case: tuple[Graph, str], data: st.DataObject) -> None:
    graph, one = case
    other = data.draw(st.sampled_from(list(graph.nodes)))
    first, second = named(graph, one), named(graph, other)
    paths = reach(pairs(graph)) | {(key, key) for key in graph.nodes}
    kept = {
        middle
        for starts, ends in ((first, second), (second, first))
        for middle in graph.nodes
        if any((start, middle) in paths for start in starts) and any((middle, end) in paths for end in ends)
    }
    if kept:
        keeps_exactly(between(graph, one, other), graph, kept)


@given(graphs(), words)
def test_drop_invents_no_edge_and_loses_none_among_what_stays(graph: Graph, what: list[str]) -> None:
    result = drop(graph, what)
    check(result)
    gone = set(graph.nodes) - set(result.nodes)
    assert set(result.nodes) <= set(graph.nodes)
    assert pairs(result) <= joined_through(graph, gone)
    stay = {(e.src, e.dst) for e in graph.edges if {e.src, e.dst} <= set(result.nodes) and e.kind == "data"}
    assert stay <= pairs(result)


@given(graphs(), words)
def test_dropping_twice_is_dropping_once(graph: Graph, what: list[str]) -> None:
    once = drop(graph, what)
    assert drop(once, what) is once


@given(graphs())
def test_dropping_nothing_is_the_same_graph(graph: Graph) -> None:
    assert drop(graph, []) is graph
    assert drop(graph, ["accumulate_grad", "view_base", "module"]) is graph


@given(graphs(), st.permutations(["leaf", "output", "saved", "views"]))
def test_the_order_of_the_words_does_not_matter(graph: Graph, what: list[str]) -> None:
    assert drop(graph, what) == drop(graph, sorted(what))


@st.composite
def shape_graphs(draw: st.DrawFn) -> Graph:
    """Functions of which most arrange elements, with view edges between any."""
    nodes = [Node("x", role="leaf", outputs=(TensorMeta(),)), Node("y", role="leaf", outputs=(TensorMeta(),))]
    for number in range(draw(st.integers(0, 12))):
        sources = st.one_of(st.none(), st.sampled_from([node.id for node in nodes]))
        slots = draw(st.lists(sources, min_size=1, max_size=2))
        nodes.append(
            Node(
                f"f:{number}",
                op=draw(st.sampled_from(["view", "t", "unsafe_view", "add"])),
                inputs=tuple(key and Ref(key, 0) for key in slots),
                outputs=(TensorMeta(),) * draw(st.integers(1, 2)),
                base=draw(st.one_of(st.none(), st.sampled_from([node.id for node in nodes]))),
                opaque=draw(st.booleans()),
            )
        )
    return Graph.of([*nodes, Node("output", role="output", inputs=(Ref(nodes[-1].id, 0),))])


@given(shape_graphs())
def test_hiding_joins_the_ends_of_hidden_paths(graph: Graph) -> None:
    hidden = hide_shape_ops(graph)
    check(hidden)
    gone = set(graph.nodes) - set(hidden.nodes)
    assert all(graph.nodes[key].op in {"view", "t", "unsafe_view"} for key in gone)
    assert pairs(hidden) <= joined_through(graph, gone)
    data = {(ref.id, node.id) for node in graph.nodes.values() for ref in node.inputs if ref}
    plain = Graph.of([Node(key, inputs=tuple(Ref(a, 0) for a, b in data if b == key)) for key in graph.nodes])
    assert {(a, b) for a, b in joined_through(plain, gone) if not {a, b} & gone} == {
        (ref.id, node.id) for node in hidden.nodes.values() for ref in node.inputs if ref
    }
    assert not any("elided_inputs" in node.ext for node in hidden.nodes.values())
    assert hide_shape_ops(hidden) is hidden


def some(graph: Graph, random: Random) -> set[str]:
    """About half of the nodes; hypothesis itself prefers few."""
    return {key for key in graph.nodes if random.random() < 0.5}


@given(st.one_of(graphs(), shape_graphs()), st.randoms(use_true_random=False))
def test_whatever_is_left_out_only_one_input_is_handed_on(graph: Graph, random: Random) -> None:
    gone, joining = some(graph, random), some(graph, random)

    def instead(ref: Ref | None) -> Ref | None:
        while ref is not None and ref.id in gone:
            slots = graph.nodes[ref.id].inputs
            ref = slots[0] if ref.id in joining and len(slots) == 1 else None
        return ref

    result = without(graph, gone, lambda node: node.id in joining and len(node.inputs) == 1 and None not in node.inputs)
    check(result)
    assert list(result.nodes) == [key for key in graph.nodes if key not in gone]
    for key, node in result.nodes.items():
        before = graph.nodes[key]
        assert node.inputs == tuple(map(instead, before.inputs))
        lost = tuple(slot for slot, ref in enumerate(before.inputs) if ref is not None and instead(ref) is None)
        assert node.ext.get("elided_inputs", ()) == lost
        assert node.base == (None if before.base in gone else before.base)


@pytest.mark.parametrize("graph", [everything(), hostile(), chain(3)], ids=["everything", "hostile", "chain"])
def test_samples(graph: Graph) -> None:
    for key in graph.nodes:
        for run in every_pass(graph, key):
            check(run(graph))


LENGTH = 100_000


def test_a_long_chain_needs_no_recursion() -> None:
    graph = chain(LENGTH)
    middle = f"add:{LENGTH // 2}"
    assert len(focus(graph, middle, hops=3).nodes) == 7
    assert focus(graph, middle, hops=None) is graph
    assert len(ancestors(graph, middle).nodes) == LENGTH // 2 + 1
    assert len(descendants(graph, middle).nodes) == LENGTH // 2 + 2
    assert between(graph, "output", "x") is graph
    assert list(drop(graph, ["function"]).edges) == [("x", 0, "output", 0, "data")]
    assert rollup(graph) is graph


def test_a_long_chain_of_views_is_one_edge() -> None:
    nodes = [Node("x", role="leaf")]
    nodes += [Node(f"view:{i}", op="view", inputs=(Ref(f"view:{i - 1}" if i else "x", 0),)) for i in range(LENGTH)]
    nodes.append(Node("output", role="output", inputs=(Ref(nodes[-1].id, 0),)))
    assert list(hide_shape_ops(Graph.of(nodes)).edges) == [("x", 0, "output", 0, "data")]


def test_a_long_stack_is_one_block() -> None:
    nodes = [Node("x", role="leaf")]
    for number in range(LENGTH):
        nodes.append(Node(f"h.{number}/add:1", op="add", scope=f"h.{number}", inputs=(Ref(nodes[-1].id, 0),)))
    rolled = rollup(Graph.of([*nodes, Node("output", role="output", inputs=(Ref(nodes[-1].id, 0),))]))
    assert list(rolled.nodes) == ["x", f"h.0-{LENGTH - 1}/add:1", "output"]
    assert rolled.nodes[f"h.0-{LENGTH - 1}/add:1"].ext["times"] == LENGTH
