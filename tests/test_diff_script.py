"""The exact difference: laws on any two graphs, and on edited ones."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from samples import chain, everything
from strategies import graphs

import gradir
from gradir.diffs.diff_json import decode
from gradir.diffs.hunks import Script, apply, inverse, script
from gradir.errors import GradirError
from gradir.ir import Collective, Cut, Graph, Node, Producer, Rank, Ref, Scope


def same(one: Graph, other: Graph) -> bool:
    """Equal in every byte."""
    return gradir.dumps(one) == gradir.dumps(other)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Graph, Graph]:
    """Two graphs that share some of their records."""
    a = draw(graphs())
    if draw(st.booleans()):
        return a, draw(graphs())
    nodes = list(a.nodes.values())
    kept = draw(st.sets(st.sampled_from(range(len(nodes)))))
    gone = {node.id for place, node in enumerate(nodes) if place in kept}
    changed = []
    for node in nodes:
        if node.id in gone:
            continue
        inputs = tuple(None if ref is None or ref.id in gone else ref for ref in node.inputs)
        saved = tuple(
            replace(slot, origin=None) if slot.origin is not None and slot.origin.id in gone else slot
            for slot in node.saved
        )
        base = None if node.base in gone else node.base
        changed.append(replace(node, inputs=inputs, saved=saved, base=base))
    if draw(st.booleans()):
        changed.insert(0, Node("new", attrs={"v": 1}))
    scopes = draw(st.permutations(list(a.scopes.values())))
    cuts = draw(st.permutations(list(a.cuts)))
    return a, Graph.of(changed, scopes, cuts, draw(st.sampled_from([a.producer, Producer("x")])))


HEADS = {
    "rank": (Rank(0, 2), Rank(1, 2, groups={"world": (0, 1)}), None),
    "collectives": ((), (Collective("forward", "all_reduce", "world"),), (Collective("backward", "all_gather", ""),)),
    "producer": (Producer("x"), Producer("y", options={"flow": True})),
    "scopes": ({}, {"fc": Scope("fc")}),
    "cuts": ((), (Cut("unreached", ("w",)),)),
    "nodes": ({"x": Node("x")}, {"y": Node("y")}),
}
"""Some values of each field of a graph that a file holds."""


@pytest.mark.parametrize("field", HEADS)
def test_a_script_has_every_field_of_a_graph(field: str) -> None:
    own = {each for each in Graph.__struct_fields__ if each not in {"read_from", "unknown"}}
    assert own == HEADS.keys()
    first = Graph.of([Node("x")])
    values = HEADS[field]
    for one, other in itertools.permutations(values, 2):
        a, b = replace(first, **{field: one}), replace(first, **{field: other})
        assert not same(a, b)
        found = gradir.diff(a, b)
        assert same(gradir.patch(a, found), b)
        assert same(gradir.unpatch(b, found), a)
        assert same(gradir.patch(a, decode(found.to("json").encode())), b)
        if one:
            with pytest.raises(GradirError):
                gradir.patch(b, found)


@given(pairs())
def test_a_script_leads_there_and_back(pair: tuple[Graph, Graph]) -> None:
    a, b = pair
    found = script(a, b)
    assert same(apply(found, a), b)
    assert same(apply(inverse(found), b), a)
    assert same(apply(script(b, a), b), a)
    assert inverse(inverse(found)) == found
    assert bool(found) is not same(a, b)


@given(graphs())
def test_from_a_graph_to_itself_is_nothing(graph: Graph) -> None:
    assert script(graph, graph) == Script()
    assert not script(graph, gradir.loads(gradir.dumps(graph)))


@given(pairs())
def test_a_script_survives_json_and_messagepack(pair: tuple[Graph, Graph]) -> None:
    found = script(*pair)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Script) == found
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=Script) == found


def test_values_of_another_type_are_another_value() -> None:
    graphs = [Graph.of([Node("x", attrs={"v": value})]) for value in (1, 1.0, True)]
    for a in graphs:
        for b in graphs:
            assert bool(script(a, b)) is (a is not b)
            assert same(apply(script(a, b), a), b)


def test_a_diff_script_stores_only_changed_nodes() -> None:
    graph = chain(10_000)
    nodes = dict(graph.nodes)
    middle = list(nodes)[5_000]
    nodes[middle] = replace(nodes[middle], names=("h",))
    (hunk,) = script(graph, replace(graph, nodes=nodes)).nodes
    assert (hunk.start, hunk.new_start, len(hunk.before), len(hunk.after)) == (5_000, 5_000, 1, 1)


def test_nodes_in_another_order_move_and_no_more_than_needed() -> None:
    nodes = [Node(f"n{number}") for number in range(10)]
    moved = [*nodes[3:], *nodes[:3]]
    found = script(Graph.of(nodes), Graph.of(moved))
    assert [(len(hunk.before), len(hunk.after)) for hunk in found.nodes] == [(3, 0), (0, 3)]
    assert list(apply(found, Graph.of(nodes)).nodes) == [node.id for node in moved]


@pytest.mark.parametrize(
    "other",
    [
        Graph.of([]),
        Graph.of([Node("x", op="other")]),
        Graph.of([Node("x", attrs={"v": 1.0})]),
        Graph.of([Node("x", attrs={"v": 1})], producer=Producer("y")),
    ],
)
def test_a_script_for_another_graph_is_refused(other: Graph) -> None:
    found = script(Graph.of([Node("x", attrs={"v": 1})]), Graph.of([Node("z")], producer=Producer("x")))
    with pytest.raises(GradirError, match="was not made for this graph"):
        apply(found, other)


def test_a_script_that_breaks_a_graph_is_refused() -> None:
    a = Graph.of([Node("x"), Node("y", inputs=(Ref("x", 0),))])
    hostile = msgspec.json.decode(b'{"nodes":[{"start":0,"new_start":0,"before":[{"id":"x"}]}]}', type=Script)
    with pytest.raises(GradirError, match="names 'x', which is not a node"):
        apply(hostile, a)
    for start in (-1, 50):
        wrong = msgspec.json.decode(b'{"nodes":[{"start":%d,"new_start":0}]}' % start, type=Script)
        with pytest.raises(GradirError):
            apply(wrong, everything())
