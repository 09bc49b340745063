"""Two edits of one graph in one: what a merge gives, and what it refuses."""

from __future__ import annotations

from itertools import combinations

import pytest
from diff_pairs import edits, valid_pairs
from edit_scripts import plan, script
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace
from steps import steps
from strategies import graphs

import gradir
from gradir.diffs.merging import merge_graphs
from gradir.diffs.merging.three_way import _Merge
from gradir.errors import GraphError
from gradir.ir import Builder, Collective, Cut, Graph, Node, Rank, Ref, Scope, Source, TensorMeta
from gradir.ir.validate import check_all
from gradir.review.text import render_conflicts

PLAIN = TensorMeta("float32", (3,))


@given(valid_pairs)
def test_a_merge_takes_the_only_edit(pair: tuple[Graph, Graph]) -> None:
    base, edited = pair
    for sides in ((base, edited), (edited, base), (edited, edited)):
        assert merge_graphs(base, *sides).graph == edited


@given(graphs(), graphs())
def test_the_same_holds_where_nothing_is_taken_for_granted(base: Graph, edited: Graph) -> None:
    """`merged` looks for equal graphs first; this is what it does without."""
    for sides in ((base, edited), (edited, base), (edited, edited)):
        assert _Merge((base, *sides)).run().graph == edited


@given(valid_pairs, st.data())
def test_it_does_not_matter_which_side_is_which(pair: tuple[Graph, Graph], data: st.DataObject) -> None:
    base, ours = pair
    theirs = data.draw(edits(base))
    try:
        check_all(theirs)
    except GraphError:
        assume(False)
    one, other = merge_graphs(base, ours, theirs), merge_graphs(base, theirs, ours)
    assert one.graph == other.graph
    turned = [replaced._replace(ours=replaced.theirs, theirs=replaced.ours) for replaced in other.conflicts]
    assert sorted(one.conflicts) == sorted(turned)
    if one.graph is not None:
        check_all(one.graph)
        assert gradir.loads(gradir.dumps(one.graph)) == one.graph


@pytest.mark.parametrize("places", [("m.a", "a", "m.b.a"), ("a", "m.a", "b.a")], ids=["to the root", "from the root"])
def test_a_module_moved_twice_is_one_conflict_from_either_side(places: tuple[str, str, str]) -> None:
    leaves = [Node("x", role="leaf", scope=place) for place in places]
    output = Node("output", role="output", inputs=(Ref("x", 0),))
    base, ours, theirs = (Graph.of([leaf, output]) for leaf in leaves)
    (one,), (other,) = merge_graphs(base, ours, theirs).conflicts, merge_graphs(base, theirs, ours).conflicts
    assert one.reason == "both sides gave the module another name or place"
    assert one == other._replace(ours=other.theirs, theirs=other.ours)


@given(st.integers(0, 200), st.integers(0, 5))
def test_a_wide_edit_and_a_small_one(seed: int, place: int) -> None:
    """Layers come, go and are renamed on one side, and a value changes on the other, in what is left of them."""
    made = script(plan(60, seed), ["insert layer", "delete layer", "rename prefix"], seed)
    base, wide = made.before, made.after
    kept = [node_id for node_id in base.nodes if node_id in made.truth and base.nodes[node_id].attrs]
    node = base.nodes[kept[place % len(kept)]]
    small = replace(base, nodes={**base.nodes, node.id: replace(node, ext={"seen": True})})
    found = merge_graphs(base, wide, small).graph
    # Of equal layers it may be taken for the one that went.
    assume(found is not None)
    assert found is not None
    (seen,) = (node for node in found.nodes.values() if node.ext)
    unseen = replace(found, nodes={**found.nodes, seen.id: replace(seen, ext={})})
    # Here a storage that nobody shares has a name.
    assert not gradir.diff(wide, unseen, ignore=["saved.result.storage"])


def chain(*ops: str, scope: str = "h", **attrs: int) -> Graph:
    """Operations one after the other; ``attrs`` are those of the first of a name."""
    builder = Builder()
    value = builder.tensor("w", PLAIN, role="parameter")
    for op in ops:
        own = {"k": attrs[op]} if op in attrs else None
        value = builder.function(op, [value], [PLAIN], scope=scope, attrs=own)
    builder.output(value)
    return builder.build(scopes=[Scope(scope, "Layer", own=3, total=3, trainable=3)])


def test_ordinals_are_those_of_a_capture() -> None:
    base, both = chain("exp", "sin", "exp"), chain("cos", "exp", "sin", "exp", "cos")
    assert merge_graphs(base, chain("cos", "exp", "sin", "exp"), chain("exp", "sin", "exp", "cos")).graph == both
    assert [*both.nodes][:2] == ["w", "h/cos:1"]


def test_an_operation_that_one_side_put_into_a_module_that_the_other_renamed() -> None:
    found = merge_graphs(chain("exp", "sin"), chain("exp", "sin", scope="g"), chain("exp", "cos", "sin")).graph
    assert found == chain("exp", "cos", "sin", scope="g")


def test_the_same_edit_twice_is_one() -> None:
    ours, theirs = chain("exp", "cos", "sin", exp=1), chain("exp", "cos", "sin", sin=2)
    assert merge_graphs(chain("exp", "sin"), ours, theirs).graph == chain("exp", "cos", "sin", exp=1, sin=2)


CONFLICTS = {
    "one value": (chain("exp", exp=0), chain("exp", exp=1), chain("exp", exp=2)),
    "one type": (chain("exp", exp=0), chain("exp", exp=True), chain("exp", exp=1)),
    "one place": (chain("exp", "sin"), chain("exp", "cos", "sin"), chain("exp", "tan", "sin")),
    "gone and changed": (chain("exp", "sin", sin=0), chain("exp"), chain("exp", "sin", sin=1)),
    "gone and used": (chain("exp", "sin"), chain("exp"), chain("exp", "sin", "cos")),
    "two names": (chain("exp", "sin"), chain("exp", "sin", scope="f"), chain("exp", "sin", scope="g")),
}


@pytest.mark.parametrize("name", CONFLICTS)
def test_a_conflict_is_reported_and_nothing_is_made_up(name: str) -> None:
    found = merge_graphs(*CONFLICTS[name])
    assert found.graph is None
    assert found.conflicts
    assert {conflict.module for conflict in found.conflicts} <= {"h", "f", "g", ""}


def test_values_of_one_node_are_merged_one_by_one() -> None:
    def graph(alpha: int, beta: int, shape: tuple[int, ...], line: int) -> Graph:
        node = Node("f:1", op="f", attrs={"a": alpha, "b": beta, "sizes": shape}, source=Source("a.py", line))
        return Graph.of([node, Node("output", role="output", inputs=(Ref("f:1", 0),))])

    found = merge_graphs(graph(0, 0, (2, 3), 10), graph(1, 0, (4, 3), 12), graph(0, 1, (2, 6), 13)).graph
    # Two lines were put above it by one side, and three by the other.
    assert found == graph(1, 1, (4, 6), 15)


def test_both_put_another_layer_into_one_place_of_a_list() -> None:
    def graph(*names: str) -> Graph:
        builder = Builder()
        value = builder.tensor("x", PLAIN)
        for number, name in enumerate(names):
            value = builder.function(name, [value], [PLAIN], scope=f"h.{number}")
        builder.output(value)
        return builder.build(scopes=[Scope(f"h.{number}", name) for number, name in enumerate(names)])

    base = graph("a", "b", "c")
    assert merge_graphs(base, graph("n", "a", "b", "c"), graph("a", "b", "c", "m")).graph == graph(
        "n", "a", "b", "c", "m"
    )
    assert merge_graphs(base, graph("n", "a", "b", "c"), graph("a", "c")).graph == graph("n", "a", "c")
    assert merge_graphs(base, graph("a", "n", "b", "c"), graph("a", "m", "b", "c")).conflicts


def test_cuts_are_merged() -> None:
    def graph(*names: str) -> Graph:
        return replace(chain("exp"), cuts=tuple(Cut("unreached", (f"h.{name}",), "h") for name in names))

    assert merge_graphs(graph("a", "b"), graph("b"), graph("a", "b", "c")).graph == graph("b", "c")


def test_ranks_are_kept_where_no_side_changed_them_and_else_in_conflict() -> None:
    rank, sent = Rank(0, 2), Collective("forward", "all_reduce", "world", node="h/f:1")
    base, ours = (replace(chain("f", *more), rank=rank, collectives=(sent,)) for more in ((), ("g",)))
    edited = replace(base, nodes={**base.nodes, "h/f:1": replace(base.nodes["h/f:1"], attrs={"v": 1})})
    found = merge_graphs(base, ours, edited).graph
    assert found is not None
    assert (found.rank, found.collectives) == (rank, (sent,))
    conflicts = merge_graphs(base, ours, replace(edited, rank=Rank(1, 2))).conflicts
    assert ["changed its rank" in conflict.reason for conflict in conflicts] == [True]


def test_collectives_follow_nodes_whose_ids_shift() -> None:
    def graph(*values: int, last: int = 0) -> Graph:
        b = Builder()
        value = b.tensor("x", PLAIN)
        for number in values:
            value = b.function("f", [value], [PLAIN], scope="h", attrs={"v": number})
        b.output(b.function("g", [value], [PLAIN], attrs={"v": last}))
        sent = Collective("backward", "all_reduce", "world", node=f"h/f:{len(values)}")
        return replace(b.build(), rank=Rank(0, 2), collectives=(sent,))

    assert merge_graphs(graph(5), graph(9, 5), graph(5, last=1)).graph == graph(9, 5, last=1)


def test_a_cycle_that_neither_side_has_is_a_conflict() -> None:
    def graph(first: str, second: str) -> Graph:
        nodes = {name: Node(name, op=name, inputs=(Ref(of, 0),)) for name, of in (("a", first), ("b", second))}
        order = ["a", "b"] if second == "a" else ["b", "a"]
        last = Node("output", role="output", inputs=(Ref("a", 0), Ref("b", 0)))
        return Graph.of([Node("x", role="leaf"), *(nodes[name] for name in order), last])

    (conflict,) = merge_graphs(graph("x", "x"), graph("x", "a"), graph("b", "x")).conflicts
    assert conflict.reason.startswith("both edits together break the graph")


def test_a_merge_keeps_unknown_keys() -> None:
    base, ours, theirs = chain("exp", exp=0), replace(chain("exp", exp=1), unknown="a key"), chain("exp", "sin", exp=0)
    found = merge_graphs(base, ours, theirs).graph
    assert found is not None
    with pytest.raises(gradir.FormatError, match="a key"):
        gradir.dumps(found)


def test_time_grows_with_the_graph_and_not_faster() -> None:
    """Every step of a merge is counted in the lines that Python runs."""

    def lines(size: int) -> int:
        base = chain(*(["exp", "sin"] * size))
        first, *_, last = (node for node in base.nodes.values() if node.op == "exp")
        sides = [replace(base, nodes={**base.nodes, node.id: replace(node, attrs={"k": 1})}) for node in (first, last)]

        def merge() -> None:
            assert merge_graphs(base, *sides).graph is not None

        return steps(merge)

    assert lines(400) < 2.6 * lines(200)


def test_conflicts_are_shown_by_module_with_both_sides_and_many_modules_end_in_names() -> None:
    def model(value: int) -> Graph:
        b = Builder()
        at = b.tensor("x", PLAIN)
        for number in range(14):
            at = b.function("exp", [at], [PLAIN], scope=f"h.{number}", attrs={"k": value})
        b.output(at)
        return b.build()

    graphs = model(0), model(1), model(2)
    lines = render_conflicts(merge_graphs(*graphs).conflicts, *graphs).splitlines()
    change = "    ~ h.0/exp:1  exp float32[3]"
    assert lines[:7] == [
        "h.0: both sides changed it, and not in the same way",
        *("  ours", change, "        attrs.k: 0 -> 1"),
        *("  theirs", change, "        attrs.k: 0 -> 2"),
    ]
    assert (len(lines), lines[-1]) == (12 * 7 + 1, "and 2 modules more: h.{12,13}")


def test_frozen_parameters_that_both_sides_add_to_a_module_are_both_counted() -> None:
    elements = {"w": 6, "u": 2, "v": 3}

    def model(*names: str) -> Graph:
        b = Builder()
        for name in names:
            meta = TensorMeta("float32", (elements[name],))
            value = b.tensor(f"m.{name}", meta, role="parameter", scope="m")
            b.output(b.function(f"f{name}", [value], [meta], scope="m"))
        own = sum(elements[name] for name in names)
        scopes = [
            Scope(path, kind, total=own, trainable=6, own=own if path else 0) for path, kind in (("", "N"), ("m", "M"))
        ]
        return b.build(scopes=scopes)

    found = merge_graphs(model("w"), model("w", "u"), model("w", "v")).graph
    assert found is not None
    assert [(each.own, each.total, each.trainable) for each in found.scopes.values()] == [(0, 11, 6), (11, 11, 6)]


def test_models_merge_to_a_capture_of_both_edits() -> None:
    pytest.importorskip("torch")
    from merged_models import EDITS, model_graph

    base = model_graph()
    conflicts = set()
    wide = {"adapter", "freeze", "rename", "insert"}
    for pair in (pair for pair in combinations(EDITS, 2) if wide.intersection(pair)):
        found = merge_graphs(base, *(model_graph(edit) for edit in pair)).graph
        if found is None:
            conflicts.add(pair)
        else:
            assert found == model_graph(*pair), pair
    both = merge_graphs(base, model_graph("rename", "append"), model_graph("insert", "eps")).graph
    assert both == model_graph("rename", "eps", "append", "insert")
    # These change the same modules.
    assert conflicts == {("no bias", "freeze"), ("detach", "freeze")}


@pytest.mark.parametrize("pair", [("activation", "dropout"), ("adapter", "rename"), ("eps", "insert")])
def test_graphs_of_a_forward_keep_the_order_in_which_it_ran(pair: tuple[str, str]) -> None:
    pytest.importorskip("torch")
    from merged_models import model_graph

    base, ours, theirs = (model_graph(*edits, forward=True) for edits in ((), pair[:1], pair[1:]))
    assert merge_graphs(base, ours, theirs).graph == model_graph(*pair, forward=True)
