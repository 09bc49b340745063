"""What texts say of a graph in which one node stands for several: totals and rows are those of the whole graph."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gradir import dumps, loads
from gradir.ir import Builder, Graph, Saved, Scope, TensorMeta
from gradir.ir.merged import Merged, merged
from gradir.ir.model import Node
from gradir.passes import drop, fold, once, rollup

if TYPE_CHECKING:
    from collections.abc import Callable

META = TensorMeta("float32", (2,))
SIX = TensorMeta("float32", (6,))
HEAD = TensorMeta("float32", (8, 2))


def mixture(count: int, *, twice: int = -1) -> Graph:
    """Experts that all save the input and their own weight; the model weighs each and stacks them."""
    b = Builder()
    x = b.function("tanh", [b.tensor("x", META)], [META], scope="trunk", saved=[(kept("trunk/tanh:1.result"), None)])
    parts = b.function("unbind", [x], [META] * count)
    made = []
    for number in range(count):
        scope = f"experts.{number}"
        weight = b.tensor(f"{scope}.w", META, role="parameter", scope=scope)
        slots = [
            (kept("trunk/tanh:1.result"), None),
            (kept(f"{scope}.w"), None),
            (Saved("packed", state="hooked"), None),
        ]
        expert = b.function("mm", [x, weight], [SIX], scope=scope, saved=slots)
        own = [(kept(), None), (Saved("gone", bytes=4, state="freed"), None)]
        made += [b.function("mul", [parts.output(number), expert], [SIX], saved=own)] * (2 if number == twice else 1)
    b.output(b.function("stack", made, [HEAD]))
    scopes = [Scope("", "Mixture", "", 1, 0, 2 * count, 2 * count), Scope("trunk", "Tanh", calls=1)]
    scopes.append(Scope("experts", "ModuleList", total=2 * count, trainable=2 * count))
    scopes += [Scope(f"experts.{number}", "Linear", "2, 6", 1, 2, 2, 2) for number in range(count)]
    return b.build(scopes=scopes)


def kept(storage: str = "") -> Saved:
    return Saved("self", "float32", (2,), 8, storage=storage)


def loop(count: int) -> Graph:
    """Calls of one cell; what the last of them saved, the head saves too."""
    b = Builder()
    weight = b.tensor("cell.w", META, role="parameter", scope="cell")
    value = b.tensor("x", META)
    for number in range(count):
        saved = [(kept(f"cell/mul:{number + 1}.result"), None), (kept("cell.w"), None)]
        value = b.function("mul", [value, weight], [META], scope="cell", saved=saved)
        value = b.function("exp", [value], [META], scope="cell", saved=[(kept(), None)])
    b.output(b.function("relu", [value], [META], scope="head", saved=[(kept(f"cell/mul:{count}.result"), None)]))
    modules = [Scope("", "Reader", "", 1, 0, 2, 2), Scope("cell", "Cell", "", count, 2, 2, 2)]
    return b.build(scopes=[*modules, Scope("head", "ReLU", calls=1)])


def layers(count: int) -> Graph:
    """Layers of two equal parts each, whose weights a norm outside of them saved before."""
    b = Builder()
    value = b.tensor("x", META)
    for number in range(count):
        for part in range(3):
            scope = f"h.{number}.sub.{part}"
            weight = b.tensor(f"{scope}.w", META, role="parameter", scope=scope)
            saved = [(kept(), None), (kept(f"{scope}.w"), None)]
            value = b.function("mul", [value, weight], [META], scope=scope, saved=saved)
    b.output(b.function("norm", [value], [META], saved=[(Saved("a", bytes=8, storage="h.1.sub.2.w"), None)]))
    below = [scope for number in range(count) for scope in modules_of(f"h.{number}")]
    top = [Scope("", "Stack", "", 1, 0, 6 * count, 6 * count), Scope("h", "ModuleList", total=6 * count)]
    return b.build(scopes=[*top, *below])


def modules_of(path: str) -> list[Scope]:
    parts = [Scope(f"{path}.sub.{part}", "Part", "", 1, 2, 2, 2) for part in range(3)]
    return [Scope(path, "Block", "", 1, 0, 6, 6), Scope(f"{path}.sub", "ModuleList", total=6), *parts]


def both(graph: Graph) -> Graph:
    return once(rollup(graph))


def other_way_round(graph: Graph) -> Graph:
    return rollup(once(graph))


def table(graph: Graph) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(graph.to("summary", style="json"))
    return found


GRAPHS = {"mixture": mixture(8), "a pair apart": mixture(9, twice=4), "loop": loop(7), "layers": layers(4)}


@pytest.mark.parametrize("merge", [once, rollup, both, other_way_round])
@pytest.mark.parametrize("name", GRAPHS)
def test_totals_are_those_of_the_whole_graph(name: str, merge: Callable[[Graph], Graph]) -> None:
    graph = GRAPHS[name]
    small = merge(graph)
    whole, found = table(graph)["totals"], table(small)["totals"]
    assert found.pop("nodes_with_equal_ones", whole["nodes"]) == whole.pop("nodes")
    assert found.pop("nodes") == len(small.nodes)
    assert found == whole
    assert table(loads(dumps(small))) == table(small)


@pytest.mark.parametrize("name", GRAPHS)
def test_steps_are_no_modules(name: str) -> None:
    graph = GRAPHS[name]
    small = once(graph)
    assert len(small.nodes) < len(graph.nodes)
    assert table(small)["layers"] == table(graph)["layers"]
    assert small.to("modules") == graph.to("modules")


def test_a_rolled_up_layer_has_the_bytes_of_all() -> None:
    rows = {row["path"]: row for row in table(rollup(layers(4)))["layers"]}
    assert {row["saved_bytes"] for path, row in rows.items() if path.startswith("h.0-3")} == {4 * 3 * 8}
    assert (rows["h.0-3"]["class"], rows["h.0-3"]["calls"], rows["h.0-3"]["parameters"]) == ("Block ×4", 4, 24)


def test_the_text_says_how_many_nodes_there_are_with_equal_ones() -> None:
    assert "\nnodes: 8 (29 with equal ones)\n" in once(mixture(8)).to("summary")


def test_without_a_scope_table_parameters_count_as_often() -> None:
    for graph in (mixture(8), layers(4)):
        bare = Graph.of(graph.nodes.values())
        assert table(both(bare))["totals"]["parameters"] == table(bare)["totals"]["parameters"]


def test_a_fold_keeps_what_the_others_saved() -> None:
    for small in (once(mixture(8)), once(loop(7)), rollup(layers(4))):
        assert table(fold(small, 0))["totals"]["saved_bytes"] == table(small)["totals"]["saved_bytes"]


def test_what_is_dropped_of_saved_tensors_is_dropped_of_those_too() -> None:
    small = once(mixture(8))
    found, without = table(drop(small, ["saved"])), table(once(drop(mixture(8), ["saved"])))
    assert found["layers"] == without["layers"]
    assert found["totals"] == without["totals"]


def test_branches_side_by_side_are_one_line_of_the_tree() -> None:
    assert once(mixture(8)).to("tree", shapes=False) == (
        "output\n"
        "└─ stack:1\n"
        "   └─ mul:1 ×8\n"
        "      ├─ unbind:1\n"
        "      │  └─ trunk/tanh:1\n"
        "      │     └─ x leaf\n"
        "      └─ experts.0/mm:1 ×8\n"
        "         ├─ trunk/tanh:1 (see above)\n"
        "         └─ .w ×8 parameter\n"
    )
    assert once(mixture(8)).to("tree", shapes=False, start="leaves").count("stack:1") == 1


def test_what_takes_from_the_last_of_a_chain_takes_it_as_often_as_it_says() -> None:
    b = Builder()
    value = b.tensor("x", META)
    for _ in range(3):
        value = b.function("exp", [value], [META])
    b.output(b.function("stack", [value] * 3, [META]))
    assert once(b.build()).to("tree", shapes=False) == (
        "output\n└─ stack:1\n   ├─ exp:1 ×3\n   │  └─ x leaf\n   ├─ exp:1 (see above)\n   └─ exp:1 (see above)\n"
    )


@pytest.mark.parametrize("twice", [0, 4, 8])
def test_a_branch_that_is_taken_twice_is_like_no_other(twice: int) -> None:
    small = once(mixture(9, twice=twice))
    (stack,) = (node for node in small.nodes.values() if node.op == "stack")
    alone = [ref.id for ref in stack.inputs if ref and "times" not in small.nodes[ref.id].ext]
    assert len(alone) == len(set(alone)) + 1 == 2


@pytest.mark.parametrize(
    "mark", [1, "held", ("held",), ((None, "held"),), ((1, "held", 1, 0, 8),), ((None, 1, 1, 0, 8),)]
)
def test_a_mark_that_is_none_counts_nothing(mark: Any) -> None:
    node = Node("x", ext={"merged": mark})
    assert merged(node) == []
    assert table(Graph.of([node]))["totals"]["saved_bytes"] == 0


def test_huge_numbers_of_a_mark_are_bounded() -> None:
    entry = ("", "held", 2**63 - 1, 0, 2**63 - 1)
    assert merged(Node("x", ext={"merged": (entry,)})) == [Merged(*entry)]
    found = table(Graph.of([Node("x", ext={"merged": (entry, entry)})]))["totals"]
    assert found["saved_bytes"] == found["states"]["held"]["bytes"] == 2**63 - 1
