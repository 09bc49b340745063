"""Inputs that gradient newly goes through stand beside those that it left; another order stands last."""

from __future__ import annotations

import pytest
from diff_pairs import pairs
from hypothesis import assume, given
from reports import list_diff_changes, slots

import gradir
from gradir.ir import Graph, Node, Ref, Scope
from gradir.review.reviewing import review_graphs

Edges = list[str | None]


def graph(edges: Edges, *, op: str = "add", **roles: str) -> Graph:
    """Three tensors, an operation on each, and one that reads these."""
    named = {name: roles.get(name, "parameter") for name in "abc"}
    leaves = [Node(name, role=role, names=(name,)) for name, role in named.items()]
    steps = [Node(f"step_{name}/exp:1", op="exp", scope=f"step_{name}", inputs=(Ref(name, 0),)) for name in named]
    inputs = tuple(None if name is None else Ref(f"step_{name}/exp:1", 0) for name in edges)
    return Graph.of([*leaves, *steps, Node(f"{op}:1", op=op, inputs=inputs)], [Scope("")])


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (["a", None, "c"], ["a", "b", "c"], "1 gained input: in[1] of add:1 in (top level)"),
        (
            [None, None, "c"],
            ["a", "b", "c"],
            "2 gained inputs: in[0] of add:1 in (top level), in[1] of add:1 in (top level)",
        ),
        (["a", "b", None], ["a", "b", "c"], "1 gained input: in[2] of add:1 in (top level)"),
    ],
)
def test_a_detach_that_went_is_a_gained_input(before: Edges, after: Edges, told: str) -> None:
    found = gradir.diff(graph(before), graph(after))
    assert str(found).startswith(f"{told}; ")
    what, _, slots = told.partition(": ")
    assert f"**{what}:** `{slots}`  \n" in found.to("markdown")
    back = str(gradir.diff(graph(after), graph(before)))
    assert back.startswith(f"{told.replace('gained', 'lost')}; ")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (graph(["a", "b", None]), graph([None, "a", "b"])),
        (graph(["a", None, "c"]), graph(["a", "b", "c"], op="mul")),
        (graph(["a", "b", "c"]), graph(["a", "b", "c"])),
    ],
)
def test_swapped_inputs_and_another_operation_gain_no_input(before: Graph, after: Graph) -> None:
    assert slots(review_graphs(before, after), "gained-inputs") == []


def test_an_input_that_leads_to_a_new_parameter_alone_is_reported_by_that() -> None:
    plain = Graph.of(
        [Node("a", role="parameter", names=("a",)), Node("add:1", op="add", inputs=(Ref("a", 0), None))], [Scope("")]
    )
    new = Node("b", role="parameter", names=("b",))
    more = Graph.of(
        [*list(plain.nodes.values())[:1], new, Node("add:1", op="add", inputs=(Ref("a", 0), Ref("b", 0)))], [Scope("")]
    )
    assert slots(review_graphs(plain, more), "gained-inputs") == []
    assert slots(review_graphs(more, plain), "lost-inputs") == []


@given(pairs())
def test_the_way_back_loses_what_the_way_there_gained(pair: tuple[Graph, Graph]) -> None:
    a, b = pair
    there, back = review_graphs(a, b), review_graphs(b, a)
    ways = [diff.sides.names().matched for diff in (there, back) if diff.sides]
    assume({new: old for old, new in ways[0].items()} == ways[1])
    gained = sorted((ways[1][node], slot) for node, slot in slots(there, "gained-inputs"))
    assert gained == sorted(slots(back, "lost-inputs"))


def test_another_order_is_last() -> None:
    a = [
        Node("x/exp:1", op="exp", scope="x"),
        Node("y/sin:1", op="sin", scope="y"),
        Node("y/cos:1", op="cos", scope="y"),
    ]
    b = [a[1], Node("y/tan:1", op="tan", scope="y"), a[0]]
    found = review_graphs(Graph.of(a), Graph.of(b))
    assert "~ order" not in str(found), "the counts tell it"
    for text in (found.to("text", details=True), found.to("text", full=True)):
        first, *_, heading, order, _ = text.splitlines()
        assert first.endswith("; order changed")
        assert (heading, order) == ("(whole graph)", "  ~ order")
        assert text.count("(whole graph)") == 1
    assert list_diff_changes(found)[-1].text == "order"
