"""Which node of one graph is which of another, and what the edits cost."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Hashable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from edit_scripts import EDITS, Plan, Script, draw_plan, plan, script, true_cost
from hypothesis import given
from hypothesis import strategies as st
from samples import chain, everything, hostile
from strategies import graphs

from gradir.diffs.matching import Matching, Rename, edit_cost, match, search
from gradir.diffs.matching.costs import Costs
from gradir.diffs.matching.numbered import FREE, NOTHING, NumberedGraph
from gradir.diffs.matching.pairing import join_matchings
from gradir.diffs.matching.renames import Naming
from gradir.diffs.sequences import Gap, align, longest_increasing
from gradir.ir import Builder, Graph, Node, Ref, Saved, Source, TensorMeta
from gradir.ir.memo import Table

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "matching.py"
META = (TensorMeta("float32", (2, 4)),)
tokens = st.lists(st.integers(0, 4), max_size=30)


def by_id(a: Graph, b: Graph) -> dict[str, str]:
    return {node_id: node_id for node_id in a.nodes if node_id in b.nodes}


@st.composite
def edited(draw: st.DrawFn) -> tuple[Graph, Graph]:
    """A small network before and after edits, or two graphs that have nothing to do with each other."""
    if draw(st.booleans()):
        return draw(graphs(max_functions=8)), draw(graphs(max_functions=8))
    seed = draw(st.integers(0, 1_000))
    edits = draw(st.lists(st.sampled_from(sorted(EDITS)), max_size=4))
    made = script(plan(draw(st.integers(10, 60)), seed), edits, seed)
    return made.before, made.after


@given(edited())
def test_a_matching_is_one_to_one_between_nodes_that_exist(pair: tuple[Graph, Graph]) -> None:
    a, b = pair
    nodes = match(a, b).nodes
    assert nodes.keys() <= a.nodes.keys()
    assert set(nodes.values()) <= b.nodes.keys()
    assert len(set(nodes.values())) == len(nodes)


@given(edited())
def test_the_cost_is_that_of_the_matching_and_never_above_that_of_equal_ids(pair: tuple[Graph, Graph]) -> None:
    a, b = pair
    found = match(a, b)
    assert found.cost == edit_cost(a, b, found.nodes)
    assert found.cost <= edit_cost(a, b, by_id(a, b))


@given(edited())
def test_the_way_back_is_the_same_matching(pair: tuple[Graph, Graph]) -> None:
    a, b = pair
    there, back = match(a, b), match(b, a)
    assert {after: before for before, after in back.nodes.items()} == there.nodes
    assert back.cost == there.cost
    assert back.cost == edit_cost(b, a, back.nodes)
    assert sorted(Rename(after, before) for before, after in back.renames) == sorted(there.renames)


@given(st.one_of(graphs(), edited().map(lambda pair: pair[0])))
def test_a_graph_is_itself(graph: Graph) -> None:
    copy = msgspec.json.decode(msgspec.json.encode(graph), type=Graph)
    assert match(graph, copy) == Matching({node_id: node_id for node_id in graph.nodes})


@pytest.mark.parametrize("graph", [everything(), hostile(), Graph.of([])], ids=["everything", "hostile", "empty"])
def test_nothing_is_matched_with_an_empty_graph(graph: Graph) -> None:
    assert match(graph, Graph.of([])) == Matching({}, (), len(graph.nodes))


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("seed", range(3))
def test_one_edit_is_found(edit: str, seed: int) -> None:
    made = script(plan(200, seed), [edit], seed)
    assert edit_cost(made.before, made.after, made.truth) == made.cost
    assert match(made.before, made.after).cost <= made.cost * 1.1


@pytest.mark.parametrize("seed", range(6))
def test_many_edits_at_once_are_found(seed: int) -> None:
    rng = random.Random(seed)
    edits = [*rng.choices(["insert layer", "delete layer", "widen", "rewire", "swap op"], k=4), "rename prefix"]
    edits += rng.choice([["shuffle order"], ["change batch size"], []])
    made = script(plan(400, seed), edits, seed)
    assert edit_cost(made.before, made.after, made.truth) == made.cost
    assert match(made.before, made.after).cost <= made.cost * 1.1


@pytest.mark.parametrize("edits", [[edit] for edit in EDITS] + [["widen", "swap op", "delete layer"]], ids=str)
def test_no_script_costs_less_than_the_bound(edits: list[str]) -> None:
    for seed in range(8):
        made = script(plan(120, seed), edits, seed)
        labels: Table[Hashable] = Table()
        costs = Costs(NumberedGraph(made.before, labels), NumberedGraph(made.after, labels))
        assert costs.lower_bound() <= match(made.before, made.after).cost <= made.cost * 1.1


def test_a_matching_near_the_bound_is_not_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = script(plan(400, 1), ["rename prefix", "change batch size", "shuffle order"], 1)
    made_candidates = []
    completed = search._complete
    monkeypatch.setattr(search, "_complete", lambda *both: made_candidates.append(both) or completed(*both))
    assert match(made.before, made.after).cost <= made.cost
    assert len(made_candidates) == 1


def test_costs_of_a_matching_are_updated_from_another_matching() -> None:
    made = script(plan(300, 5), ["delete layer", "rewire", "widen"], 5)
    labels: Table[Hashable] = Table()
    before, after = NumberedGraph(made.before, labels), NumberedGraph(made.after, labels)
    costs = Costs(before, after)
    true = [after.index[made.truth[key]] if key in made.truth else FREE for key in before.ids] + [NOTHING]
    for place in range(0, len(before), 7):
        other = [*true]
        other[place] = FREE
        assert costs.update_node_costs(other, true, costs.node_costs(true)) == costs.node_costs(other)


def test_the_scripts_have_true_costs_by_hand() -> None:
    before = Plan(plan(60, 1).layers[:2])
    same = draw_plan(before)
    assert true_cost(same, same) == 0
    assert script(before, ["rename prefix"], 0).cost == 1
    swapped = script(before, ["swap op"], 0)
    assert swapped.cost == 1
    assert script(before, ["shuffle order"], 0).cost == 0
    inserted = script(before, ["insert layer"], 0)
    assert len(inserted.after.nodes) - len(inserted.before.nodes) < inserted.cost
    assert len(inserted.truth) == len(inserted.before.nodes)


def test_a_renamed_prefix_is_one_edit() -> None:
    made = script(plan(300, 2), ["rename prefix"], 2)
    found = match(made.before, made.after)
    assert (found.cost, found.renames) == (1, (Rename("layers", "net.new0.blocks"),))
    assert found.nodes == made.truth


def test_a_new_layer_renumbers_the_others_for_nothing() -> None:
    layers = plan(200, 3).layers
    before, after = draw_plan(Plan(layers)), draw_plan(Plan((*layers[:2], replace(layers[0], uid="new"), *layers[2:])))
    found = match(before.graph, after.graph)
    assert found.nodes.keys() == before.graph.nodes.keys()
    assert found.cost <= true_cost(before, after) < len(after.graph.nodes) - len(before.graph.nodes) + 6
    assert not found.renames


def chained(*ops: str, scope: str = "") -> Graph:
    nodes = [Node("x", role="leaf", outputs=META)]
    for number, op in enumerate(ops):
        below = (Ref(nodes[-1].id, 0),)
        nodes.append(Node(f"{scope}{op}:{number}", op=op, native=op, inputs=below, outputs=META))
    return Graph.of(nodes)


@pytest.mark.parametrize(
    ("before", "after", "cost"),
    [
        (["exp", "sin"], ["exp", "sin"], 0),
        (["exp", "sin", "log"], ["exp", "log"], 2),
        (["exp", "relu", "log"], ["exp", "gelu", "log"], 1),
        (["exp", "sin"], [], 2),
        (["a", "b", "c", "d"], ["a", "c", "b", "d"], 2),
    ],
)
def test_chains(before: list[str], after: list[str], cost: int) -> None:
    assert match(chained(*before), chained(*after)).cost == cost


def with_change(**fields: object) -> tuple[Graph, Graph]:
    rest = [Node("x", role="leaf"), Node("y", role="leaf")]
    old = Node("f:1", op="f", inputs=(Ref("x", 0), Ref("y", 0), None), saved=(Saved("a", origin=Ref("x", 0)),))
    return Graph.of([*rest, old]), Graph.of([*rest, msgspec.structs.replace(old, **fields)])


@pytest.mark.parametrize(
    ("fields", "cost"),
    [
        ({}, 0),
        ({"op": "g"}, 1),
        ({"role": "saved"}, 1),
        ({"native": "F"}, 1),
        ({"outputs": META}, 1),
        ({"attrs": {"dim": 1}}, 1),
        ({"ext": {"dim": 1}}, 1),
        ({"opaque": True}, 1),
        ({"source": Source("m.py", 1)}, 1),
        ({"base": "x"}, 1),
        ({"names": ("loss",)}, 1),
        ({"scope": "fc"}, 1),
        ({"saved": ()}, 1),
        ({"saved": (Saved("a", bytes=4, origin=Ref("x", 0)),)}, 1),
        ({"saved": (Saved("a", origin=Ref("y", 0)),)}, 1),
        ({"saved": (Saved("a", origin=Ref("x", 0), storage="x"),)}, 1),
        ({"inputs": (Ref("x", 1), Ref("y", 0), None)}, 1),
        ({"inputs": (Ref("y", 0), Ref("x", 0), None)}, 2),
        ({"inputs": (Ref("x", 0), Ref("y", 0), Ref("nowhere", 0))}, 1),
        ({"inputs": (Ref("x", 0),)}, 2),
        ({"inputs": (), "op": "g", "attrs": {"dim": 1}, "saved": ()}, 4),
    ],
)
def test_each_change_of_a_matched_node_costs_one(fields: Mapping[str, object], cost: int) -> None:
    a, b = with_change(**fields)
    assert edit_cost(a, b, by_id(a, b)) == cost
    assert edit_cost(b, a, by_id(b, a)) == cost
    assert match(a, b).cost <= cost


@pytest.mark.parametrize(
    ("before", "after", "renames"),
    [
        (Node("layers.0/add:1", op="add"), Node("layers.1/add:2", op="add"), set()),
        (Node("layers.0/add:1", op="add"), Node("blocks.1/add:2", op="add"), {("layers", "blocks")}),
        (Node("fc/relu:1", op="relu"), Node("fc/gelu:2", op="gelu"), set()),
        (Node("0.weight", role="parameter"), Node("net.3.weight", role="parameter"), {("", "net")}),
        (Node("l.0.attn.q"), Node("l.0.self_attn.q"), {("l.*.attn", "l.*.self_attn")}),
        (Node("fc.weight"), Node("fc.w"), {("fc.weight", "fc.w")}),
        (Node("output:0", role="output"), Node("output:12", role="output"), set()),
        (Node("output:a", role="output"), Node("output:b", role="output"), {("output:a", "output:b")}),
        (
            Node("w/accumulate_grad:1", op="accumulate_grad"),
            Node("v/accumulate_grad:1", op="accumulate_grad"),
            {("w", "v")},
        ),
        (Node("relu:1", op="relu", scope="a"), Node("relu:1", op="relu", scope="b"), {("a", "b")}),
    ],
)
def test_an_id_shows_renames(before: Node, after: Node, renames: set[tuple[str, str]]) -> None:
    assert set(Naming.of(before).renames(Naming.of(after))) == renames
    assert edit_cost(Graph.of([before]), Graph.of([after]), {before.id: after.id}) == len(renames) + (
        before.op != after.op
    )


def test_names_that_follow_from_a_rename_cost_nothing() -> None:
    before = Node("a.w", role="parameter", names=("a.w", "tied.w"))
    after = Node("b.w", role="parameter", names=("b.w", "tied.w"))
    assert match(Graph.of([before]), Graph.of([after])).cost <= 2
    assert edit_cost(Graph.of([before]), Graph.of([after]), {"a.w": "b.w"}) == 1
    other = msgspec.structs.replace(after, names=("b.w", "free.w"))
    assert edit_cost(Graph.of([before]), Graph.of([other]), {"a.w": "b.w"}) == 2


@st.composite
def partial_matchings(draw: st.DrawFn, size: int) -> list[int]:
    others = draw(st.permutations(range(size)))
    return [*(other if draw(st.booleans()) else FREE for other in others), NOTHING]


@given(st.data(), st.integers(1, 8))
def test_matchings_are_joined_one_to_one(data: st.DataObject, size: int) -> None:
    one, two = data.draw(partial_matchings(size)), data.draw(partial_matchings(size))
    costs = [data.draw(st.lists(st.integers(-1, 3), min_size=size, max_size=size)) for _ in range(2)]
    order = data.draw(st.permutations(range(size)))
    position = [*data.draw(st.permutations(range(size))), NOTHING, NOTHING]
    assert join_matchings(one, two, ([1] * size, [0] * size), order, position) == two
    found = join_matchings(one, two, (costs[0], costs[1]), order, position)
    partners = [other for other in found if other >= 0]
    assert len(set(partners)) == len(partners)
    assert all(other in pair for other, *pair in zip(found, one, two, strict=True))
    assert len(found) == size + 1


def test_nodes_with_many_consumers_and_many_inputs_are_matched() -> None:
    def wheel(spokes: int, scope: str) -> Graph:
        names = [f"{scope}/mul:{number}" for number in range(spokes)]
        hub = Node("x", role="leaf")
        around = [Node(name, op="mul", scope=scope, inputs=(Ref("x", 0),)) for name in names]
        rim = Node("cat:1", op="cat", inputs=tuple(Ref(name, 0) for name in names))
        return Graph.of([hub, *around, rim])

    found = match(wheel(300, "a"), wheel(295, "b"))
    # Five nodes and their slots, and one rename.
    assert (found.cost, found.nodes["x"], found.nodes["cat:1"]) == (11, "x", "cat:1")


def test_attributes_of_any_kind_are_compared() -> None:
    graphs_of = [
        Graph.of([Node("x", attrs={"a": value}, ext={"b": [{}]})])  # type: ignore[dict-item]
        for value in ([1, [2]], [1, [3]], {"k": 1})
    ]
    assert [match(graphs_of[0], graph).cost for graph in graphs_of] == [0, 1, 1]


@given(tokens, tokens)
def test_an_alignment_pairs_equal_tokens_in_order(before: list[int], after: list[int]) -> None:
    whole = Gap(0, len(before), 0, len(after))
    pairs, left = align(before, after, [whole])
    pairs.sort()
    assert all(before[x] == after[y] for x, y in pairs)
    assert all(x < next_x and y < next_y for (x, y), (next_x, next_y) in pairwise(pairs))
    for gap in left:
        assert {*before[gap.start : gap.end]}.isdisjoint(after[gap.other_start : gap.other_end])


@given(st.permutations(range(8)))
def test_the_longest_increasing_subsequence_is_longest(values: list[int]) -> None:
    found = longest_increasing(list(enumerate(values)))
    assert found == sorted(found)
    assert [y for _, y in found] == sorted(y for _, y in found)
    best = [0] * len(values)
    for place, value in enumerate(values):
        best[place] = 1 + max((best[x] for x in range(place) if values[x] < value), default=0)
    assert len(found) == max(best)


def assert_parts_are_matched_like_the_whole(made: Script, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Return whether a small part was matched by itself."""
    monkeypatch.setattr(search, "_SMALL", 0)
    for a, b in ((made.before, made.after), (made.after, made.before)):
        whole = search._inverse(search._search(b, a), a) if search._should_swap(a, b) else search._search(a, b)
        assert match(a, b) == whole
    part = search.find_differing_parts(made.before, made.after)
    return part is not None and len(part[0].nodes) < len(made.before.nodes) // 2


def test_matching_the_part_that_differs_finds_what_matching_everything_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    small = 0
    for seed in range(12):
        edits = random.Random(seed).choices(["insert layer", "repeat layer", "widen", "rewire", "swap op"], k=2)
        made = script(plan(300, seed), edits[: 1 + seed % 2], seed)
        small += assert_parts_are_matched_like_the_whole(made, monkeypatch)
    assert small, "no part was matched by itself"


def test_a_changed_layer_behind_a_repeated_one_is_matched_in_the_whole_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    made = script(plan(1_000, 1_013), ["widen", "repeat layer"], 14)
    assert_parts_are_matched_like_the_whole(made, monkeypatch)


def test_unrelated_and_deep_graphs_are_matched_without_recursion() -> None:
    found = match(chain(5_000), chain(5_001))
    assert found.cost == 2
    assert match(chain(5_000), everything()).cost <= 5_002 + len(everything().nodes)


def test_the_result_does_not_depend_on_hashes(tmp_path: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from edit_scripts import plan, script\n"
        "from gradir.diffs.matching import match\n"
        "made = script(plan(150, 5), ['insert layer', 'delete layer', 'rename prefix', 'widen', 'shuffle order'], 5)\n"
        "found = match(made.before, made.after)\n"
        "print(list(found.nodes.items()), found.renames, found.cost)\n"
    )
    support = str(Path(__file__).parent / "support")
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program, support],
            cwd=tmp_path,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(path for path in sys.path if path)},
            capture_output=True,
            text=True,
            check=True,
            timeout=100,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(outputs) == 1


def test_the_benchmark_runs(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARK), "--smoke"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) > len(EDITS)
    assert len({line.count("|") for line in lines}) == 1


def test_an_operation_costs_more_in_a_module_with_other_parameters_than_put_in_anew() -> None:
    meta = TensorMeta("float32", (3,))

    def model(path: str) -> Graph:
        b = Builder()
        x, *weights = b.tensor("x", meta), *(b.tensor(f"{p}.w", meta, role="parameter", scope=p) for p in "ac")
        value = b.function("mul", [x], [meta], scope=path)
        for p, weight in zip("ac", weights, strict=True):
            value = b.function("add", [value, weight], [meta], scope=p)
        b.output(value)
        return b.build()

    before, after = model("a"), model("c")
    same = {name: name for name in before.nodes if name in after.nodes}
    assert edit_cost(before, after, {**same, "a/mul:1": "c/mul:1"}) > edit_cost(before, after, same) == 3
