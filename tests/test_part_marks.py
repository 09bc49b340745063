"""A part of a graph shows what was asked for, and where something is left out."""

from __future__ import annotations

import msgspec
import pytest
from mermaid_pictures import parse_mermaid

import gradir
from gradir.ir import Builder, Cut, Graph, Node, Ref, TensorMeta
from gradir.ir.cuts import stubs
from gradir.ir.marks import is_focus, left_out
from gradir.passes import ancestors, between, descendants, focus, fold, rollup

META = TensorMeta("float32", (2, 3))


def layers(count: int) -> Graph:
    b = Builder()
    value = b.tensor("x", META)
    for number in range(count):
        path = f"h.{number}"
        weight = b.tensor(f"{path}.weight", META, role="parameter", scope=path)
        value = b.function("mm", [value, weight], [META], scope=path)
        value = b.function("tanh", [value], [META], scope=path)
    b.output(b.function("sum", [value, value], [META]))
    return b.build()


def asked(graph: Graph) -> list[str]:
    return [key for key, node in graph.nodes.items() if is_focus(node)]


def cut(graph: Graph) -> dict[str, tuple[int, int]]:
    return {key: left_out(node) for key, node in graph.nodes.items() if any(left_out(node))}


def test_a_part_marks_requested_and_omitted_nodes() -> None:
    graph = layers(4)
    part = focus(graph, "h.1/tanh:1")
    assert (asked(part), cut(part)) == (["h.1/tanh:1"], {"h.1/mm:1": (2, 0), "h.2/mm:1": (1, 1)})
    part = ancestors(graph, "h.1/mm:1")
    assert (asked(part), cut(part)) == (["h.1/mm:1"], {"h.1/mm:1": (0, 1)})
    part = descendants(graph, "h.3/tanh:1")
    assert (asked(part), cut(part)) == (["h.3/tanh:1"], {"h.3/tanh:1": (1, 0)})
    part = between(graph, "h.2.weight", "h.3/mm:1")
    assert asked(part) == ["h.2.weight", "h.3/mm:1"]
    assert cut(part) == {"h.2/mm:1": (1, 0), "h.3/mm:1": (1, 1)}


def test_a_part_has_the_cuts_that_are_in_it() -> None:
    cuts = [
        *(Cut("unreached", (f"{path}.w",), path) for path in ("h.1", "h.1.gate", "h.3", "h.10", "head")),
        Cut("unreached", ("w",)),
        *(Cut("detach", op="detach", scope=f"h.{layer}", into=f"h.{layer}/tanh:1", slot=0) for layer in (1, 3)),
        Cut("no_grad", op="mul", scope="head"),
    ]
    graph = msgspec.structs.replace(layers(4), cuts=tuple(cuts))
    whole = ["detach", "detach", "no_grad (mul)", "unreached: h.1.w, h.1.gate.w and 4 more"]
    assert [stub.reason for stub in stubs(graph)] == whole
    of_layer = ["detach", "unreached: h.1.w, h.1.gate.w"]
    parts = {
        "a module": (focus(graph, "h.1"), of_layer),
        "folded": (fold(focus(graph, "h.1"), 2), of_layer),
        "a node": (focus(graph, "h.3/tanh:1", 0), ["detach", "unreached: h.3.w"]),
        "ancestors": (ancestors(graph, "h.1.weight"), of_layer),
        "descendants": (descendants(graph, "sum:1"), []),
        "paths": (between(graph, "h.2/mm:1", "h.2/tanh:1"), []),
    }
    for name, (part, expected) in parts.items():
        assert [stub.reason for stub in stubs(part)] == expected, name
        for exporter in ("dot", "mermaid", "tree"):
            assert ("unreached" in part.to(exporter)) == any("unreached" in reason for reason in expected)
        assert part.cuts, "a file still has them"


def test_a_node_taken_twice_is_one() -> None:
    assert cut(focus(layers(1), "sum:1", 0)) == {"sum:1": (1, 1)}
    assert cut(focus(layers(1), "h.0/tanh:1", 0)) == {"h.0/tanh:1": (1, 1)}


def test_the_last_that_is_asked_for_is_marked_and_what_is_left_out_adds_up() -> None:
    part = focus(ancestors(layers(4), "h.2/tanh:1"), "h.2/mm:1")
    assert asked(part) == ["h.2/mm:1"]
    assert cut(part) == {"h.1/tanh:1": (1, 0), "h.2/tanh:1": (0, 1)}


def test_a_folded_module_has_the_marks_of_its_nodes() -> None:
    folded = fold(focus(layers(4), "h.1/tanh:1"), 2)
    assert (asked(folded), cut(folded)) == (["h.1"], {"h.1": (2, 0), "h.2": (1, 1)})


def test_marks_do_not_keep_layers_from_being_alike() -> None:
    part = ancestors(layers(5), "h.4/tanh:1")
    rolled = rollup(part)
    assert list(rolled.nodes) == ["x", "h.0-4.weight", "h.0-4/mm:1", "h.0-4/tanh:1"]
    assert (asked(rolled), cut(rolled)) == (["h.0-4/tanh:1"], {"h.0-4/tanh:1": (0, 1)})


def test_dot_draws_both() -> None:
    text = layers(4).to("dot", focus="h.1/tanh:1")
    (box,) = [line for line in text.splitlines() if 'class="function focus"' in line]
    assert "tanh" in box
    assert 'penwidth="3"' in box
    assert [line.strip().split(" [")[0] for line in text.splitlines() if "before" in line or "behind" in line] == [
        "n0before",
        "n2before",
        "n2behind",
        "n0before -> n0",
        "n2before -> n2",
        "n2 -> n2behind",
    ]
    assert "… 2 more" in text
    assert "asked for" in layers(4).to("dot", focus="h.1/tanh:1", legend=True)
    parameter = layers(4).to("dot", focus="h.1.weight", theme="dark")
    assert 'class="parameter focus" fillcolor="#1d4b6e" penwidth="3"' in parameter
    assert "focus" not in layers(4).to("dot", legend=True)


def test_a_picture_of_a_diff_has_its_own_marks() -> None:
    a, b = (focus(layers(count), "h.1/tanh:1", 2) for count in (4, 3))
    changed = with_another(b)
    for name in ("dot", "mermaid"):
        assert "more" not in gradir.diff(a, changed).to(name)
        assert "focus" not in gradir.diff(a, changed).to(name)


def with_another(graph: Graph) -> Graph:
    nodes = [Node("new/exp:1", op="exp", scope="new", inputs=(Ref("h.2/mm:1", 0),))]
    return Graph.of([*graph.nodes.values(), *nodes], graph.scopes.values())


def test_the_tree_says_both() -> None:
    text = layers(4).to("tree", focus="h.1/tanh:1", shapes=False)
    assert text.splitlines() == [
        "h.2/mm:1",
        "├─ ..1/tanh:1 [focus]",
        "│  └─ ./mm:1",
        "│     ├─ …",
        "│     └─ …",
        "└─ …",
    ]
    text = layers(4).to("tree", focus="h.1/tanh:1", shapes=False, start="leaves")
    assert text.splitlines() == [
        "h.1/mm:1",
        "└─ ./tanh:1 [focus]",
        "   └─ ..2/mm:1",
        "      └─ … 1 more",
    ]


def test_mermaid_draws_both(mermaid_node: str) -> None:
    text = layers(4).to("mermaid", focus="h.1/tanh:1")
    (picture,) = parse_mermaid(mermaid_node, [text])
    vertices = {vertex["id"]: vertex for vertex in picture["vertices"]}
    assert [key for key, vertex in vertices.items() if "focus" in vertex["classes"]] == ["n1"]
    assert vertices["n1"]["classes"] == ["function", "focus"], "the second has the last word"
    assert {key: vertices[key]["text"] for key in vertices if "more" in vertices[key]["classes"]} == {
        "n0before": "… 2 more",
        "n2before": "… 1 more",
        "n2behind": "… 1 more",
    }
    assert {("n0before", "n0"), ("n2", "n2behind")} <= {(edge["start"], edge["end"]) for edge in picture["edges"]}


def test_mermaid_has_what_is_left_out_behind_an_accumulator_beside_its_leaf() -> None:
    b = Builder()
    weight = b.tensor("w", META, role="parameter")
    b.output(b.function("exp", [b.function("accumulate_grad", [weight], [META])], [META]))
    text = b.build().to("mermaid", focus="w")
    assert "n0 -.- n0behind" in text


@pytest.mark.parametrize("ext", [{"focus": 1}, {"left_out": (1,)}, {"left_out": ("a", "b")}, {"left_out": 3}])
def test_marks_claimed_by_a_file_are_ignored(ext: dict[str, object]) -> None:
    graph = Graph.of([Node("f:1", op="f", ext=ext)])  # type: ignore[arg-type]
    assert (asked(graph), cut(graph)) == ([], {})
    assert "more" not in graph.to("dot") + graph.to("mermaid")


def test_a_hub_of_many_is_counted_in_one_walk() -> None:
    nodes = [Node("w", role="parameter"), *(Node(f"f:{n}", op="f", inputs=(Ref("w", 0),)) for n in range(100_000))]
    part = focus(Graph.of(nodes), "w", 0)
    assert cut(part) == {"w": (0, 100_000)}
    assert "… 100,000 more" in part.to("dot")
