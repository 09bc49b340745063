"""What texts say of a graph in which one node stands for several: totals and rows are those of the whole graph."""

from __future__ import annotations

import json
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from strategies import graphs, stacks

from gradir import dumps, loads
from gradir.codecs.codec import encode, survey
from gradir.ir import Builder, Graph, Saved, Scope, TensorMeta
from gradir.ir.marks import CARRIED, TIMES
from gradir.ir.model import Node
from gradir.ir.saved import Merged, read_merged
from gradir.ir.totals import totals
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


def test_a_fold_keeps_the_sum_of_saved_bytes() -> None:
    for small in (once(mixture(8)), once(loop(7)), rollup(layers(4))):
        assert table(fold(small, 0))["totals"]["saved_bytes"] == table(small)["totals"]["saved_bytes"]


def figures(graph: Graph) -> list[Any]:
    """What a graph is told to have, whatever stands for what."""
    counts = totals(graph)
    said = table(graph)["totals"]
    assert said["saved_bytes"] == counts.saved_bytes == sum(graph.saved_bytes().values())
    assert survey(encode(graph, "msgpack")).totals == counts
    return [counts.saved_bytes, counts.parameters, said["states"], said["owned_bytes"]]


@st.composite
def sharing(draw: st.DrawFn) -> Graph:
    """A graph of which several nodes keep a storage that one of its nodes may own."""
    graph = draw(st.one_of(graphs(), stacks().map(itemgetter(0))))
    keys = ["shared", *graph.nodes]
    nodes = []
    for node in graph.nodes.values():
        slots = [replace(slot, storage=draw(st.sampled_from(keys)) if slot.storage else "") for slot in node.saved]
        nodes.append(replace(node, saved=tuple(slots)))
    return Graph.of(nodes, graph.scopes.values(), graph.cuts, graph.producer)


@given(sharing(), st.sampled_from([None, once, rollup, both]), st.integers(0, 3), st.integers(0, 3))
def test_a_fold_keeps_the_totals(
    graph: Graph, merge: Callable[[Graph], Graph] | None, depth: int, further: int
) -> None:
    small = graph if merge is None else merge(graph)
    assert figures(small) == figures(graph)
    folded = fold(small, depth)
    assert figures(folded) == figures(graph)
    assert figures(fold(folded, further)) == figures(graph)
    assert figures(rollup(folded)) == figures(graph)


@pytest.mark.parametrize("merge", [lambda graph: graph, once, rollup, both])
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("depth", range(4))
def test_a_fold_of_equal_ones_keeps_the_totals(name: str, merge: Callable[[Graph], Graph], depth: int) -> None:
    assert figures(fold(merge(GRAPHS[name]), depth)) == figures(GRAPHS[name])


def test_a_storage_that_a_module_and_a_node_beside_it_keep_counts_once() -> None:
    b = Builder()
    weight = b.tensor("fc.w", META, role="parameter", scope="fc")
    x = b.function("exp", [weight], [META], scope="fc", saved=[(kept("fc/exp:1.result"), None)])
    b.output(b.function("mul", [x, weight], [META], saved=[(kept("fc/exp:1.result"), None), (kept("fc.w"), None)]))
    folded = fold(b.build(), 1)
    assert folded.nodes["fc"].attrs["saved_bytes"] == totals(folded).saved_bytes == 8
    assert folded.saved_bytes("node") == {"fc": 8}
    assert [(row.state, row.bytes) for row in read_merged(folded.nodes["mul:1"])] == [("held", -16), ("", 8)]
    text = folded.to("summary")
    assert "saved for backward: 8 bytes (held 8, freed 0, hooked 0)\n" in text
    assert "parameters, buffers and leaves saved beside these: 8 bytes\n" in text


def test_a_folded_step_says_how_many_it_represents() -> None:
    folded = fold(once(mixture(8)), 1)
    box = folded.nodes["×8"]
    assert (box.ext[TIMES], CARRIED in box.ext, box.attrs["nodes"], box.attrs["parameters"]) == (8, False, 24, 16)
    assert folded.to("tree", shapes=False) == (
        "output\n"
        "└─ stack:1\n"
        '   └─ "×8" module\n'
        "      ├─ trunk module\n"
        "      │  └─ x leaf\n"
        "      └─ unbind:1\n"
        "         └─ trunk (see above)\n"
    )
    (label,) = (line for line in folded.to("dot").splitlines() if 'label="×8, side by side' in line)
    assert "24 nodes" in label
    assert "16 parameters" in label
    assert "at a frame" not in folded.to("dot", legend=True)


def test_a_folded_layer_adds_up_its_layers() -> None:
    folded = fold(rollup(layers(4)), 2)
    box = folded.nodes["h.0-3"]
    assert (box.ext[TIMES], box.ext[CARRIED]) == (4, (0,))
    assert box.attrs == {"nodes": 4 * 3 * 2, "parameters": 24, "saved_bytes": 4 * 3 * 8}
    assert TIMES not in fold(rollup(layers(4)), 0).nodes["/"].ext
    assert totals(folded).parameters == totals(layers(4)).parameters == 24
    assert "h.0-3 module\n" in folded.to("tree", shapes=False)


def test_folded_layers_that_are_alike_add_up() -> None:
    rolled = rollup(fold(layers(4), 4))
    modules = [node.attrs["parameters"] for node in rolled.nodes.values() if node.role == "module"]
    assert sum(modules) == 24  # type: ignore[arg-type]
    assert figures(rolled) == figures(layers(4))


def test_dropping_saved_tensors_applies_to_merged_nodes_too() -> None:
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


def test_a_reader_of_a_merged_chain_keeps_its_number_of_inputs() -> None:
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
    assert read_merged(node) == []
    assert table(Graph.of([node]))["totals"]["saved_bytes"] == 0


def test_huge_numbers_of_a_mark_are_bounded() -> None:
    entry = ("", "held", 2**63 - 1, 0, 2**63 - 1)
    assert read_merged(Node("x", ext={"merged": (entry,)})) == [Merged(*entry)]
    found = table(Graph.of([Node("x", ext={"merged": (entry, entry)})]))["totals"]
    assert found["saved_bytes"] == found["states"]["held"]["bytes"] == 2**63 - 1
