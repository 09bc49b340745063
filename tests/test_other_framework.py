"""What is made of a graph of a framework that traces a function, as of one of any other."""

from __future__ import annotations

from pathlib import Path

import pytest

import gradir
from gradir import cli
from gradir.ir import Builder, Graph, Node, Producer, Ref, Saved, Scope, TensorMeta
from gradir.ir.module_tree import ModuleTree
from gradir.ir.name_ranges import ranges
from gradir.ir.saved import unknown_slots
from gradir.passes import hide_shape_ops, rollup
from gradir.review.conditions import judge_conditions, parse_conditions
from gradir.review.reviewing import review_graphs

PORTS = Path(__file__).parent / "ports"
X = TensorMeta("float32", (4,), None)


def port(name: str) -> Graph:
    return gradir.load(PORTS / f"{name}.gir")


def stack(*ops: str, name: str = "h_{}") -> Graph:
    """Layers that feed each other."""
    b = Builder()
    value = b.tensor("x", X, role="parameter")
    for number, op in enumerate(ops):
        value = b.function(op, [value], [X], scope=name.format(number))
    b.output(value)
    return b.build(producer=Producer(framework="jax"))


def test_a_loop_says_how_often_it_runs() -> None:
    graph = port("loop")
    assert graph.scopes["scan"].rounds == 5
    assert "scan/tanh:1 ×5" in graph.to("tree")
    assert "×5" in next(line for line in graph.to("summary").splitlines() if line.strip().startswith("scan"))
    assert "(scan): ×5()" in graph.to("modules")
    for picture in (graph.to("mermaid"), graph.to("dot"), graph.to("mermaid", depth=1)):
        assert "scan (×5)" in picture
    assert "the body of a loop of N rounds" in graph.to("dot", legend=True)
    assert "the body of a loop" not in port("checkpointed").to("dot", legend=True)


def test_a_loop_around_one_module_keeps_its_frame() -> None:
    node = Node("scan.fc/exp:1", op="exp", scope="scan.fc")
    graph = Graph.of([node], [Scope("scan", rounds=3), Scope("scan.fc", "Fc")])
    assert "scan (×3)" in graph.to("mermaid")


def test_loops_in_loops_multiply() -> None:
    inner = Node("a.b/exp:1", op="exp", scope="a.b")
    graph = Graph.of([inner], [Scope("a", rounds=5), Scope("a.b", rounds=3)])
    assert "×15" in graph.to("tree")


def test_what_is_computed_anew_keeps_nothing() -> None:
    graph = port("checkpointed")
    assert "recomputed 3 slots" in graph.to("summary")
    assert "≥" not in graph.to("summary")
    assert unknown_slots(graph.nodes.values()) == 0
    assert unknown_slots([Node("f", saved=(Saved("self", state="hooked"),))]) == 1
    assert "(recomputed)" in graph.to("dot", show_saved=True)


def test_an_input_is_drawn_where_something_leads_to_it() -> None:
    graph = port("checkpointed")
    assert graph.nodes["x"].role == "input"
    assert "\nx " not in graph.to("tree")
    assert "]:::input" not in graph.to("mermaid")
    assert ":::input" in graph.to("mermaid", show_saved=True)
    assert "style=dashed" in graph.to("dot", show_saved=True).replace('"', "")
    assert 'class="input"' not in graph.to("dot")


def test_each_place_where_gradient_ends_is_reported_and_drawn() -> None:
    graph = port("cut")
    tree = graph.to("tree")
    for text in ("(stop_gradient at in_jax.py:", "(nondifferentiable (round) at", "(nondifferentiable (gt) at"):
        assert text in tree
    assert {"cut unused: unused", "cut integer: number"} <= {*tree.splitlines()}
    assert graph.to("mermaid").count(":::cut") == 5
    assert "1 stop_gradient" in graph.to("summary")


def test_a_stored_trace_is_explained_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", str(PORTS / "cut.gir")]) == 1
    out = capsys.readouterr().out
    assert out.startswith("4 of 6 parameters get no gradient, 1 of them because stop_gradient cuts ")
    assert "error[stop_gradient]: " in out
    assert "info[integer]: " in out


def test_a_parameter_that_had_no_gradient_before_is_no_new_cut() -> None:
    def graph(kind: str, op: str = "") -> Graph:
        cut = gradir.Cut(kind, ("t",), op=op)
        return Graph.of([Node("x", role="parameter", names=("x",))], [], [cut], Producer(framework="jax"))

    place, unused = graph("stop_gradient", "stop_gradient"), graph("unused")
    none = Graph.of([*place.nodes.values()])
    condition = parse_conditions("cuts>0")
    assert not any(found.fails for found in judge_conditions(review_graphs(place, unused), condition))
    assert any(found.fails for found in judge_conditions(review_graphs(none, unused), condition))
    assert any(found.fails for found in judge_conditions(review_graphs(none, place), condition))
    # One that was in the graph got a gradient in another way than through the place.
    also = Graph.of([*place.nodes.values(), Node("t", role="parameter", names=("t",))], [], place.cuts)
    assert any(found.fails for found in judge_conditions(review_graphs(also, unused), condition))


def test_operations_that_only_arrange_are_hidden_and_casts_are_not() -> None:
    b = Builder()
    value = b.tensor("x", X, role="parameter")
    for op in ("broadcast_in_dim", "expand_dims", "squeeze", "reshape", "transpose", "copy", "name", "rev"):
        value = b.function(op, [value], [X])
    b.output(b.function("convert_element_type", [value], [X]))
    hidden = hide_shape_ops(b.build(producer=Producer(framework="jax")))
    assert [node.op for node in hidden.nodes.values() if node.op] == ["convert_element_type"]


@pytest.mark.parametrize("name", ["h_{}", "layers_{}", "h.{}"])
def test_layers_of_one_name_are_rolled_up(name: str) -> None:
    rolled = rollup(stack(*["tanh"] * 12, name=name))
    first = name.format("0-11")
    assert [node.id for node in rolled.nodes.values() if node.op] == [f"{first}/tanh:1"]
    assert rolled.nodes[f"{first}/tanh:1"].ext["times"] == 12
    assert rolled.scopes[first].class_name == "×12"


def test_layers_of_other_names_are_not() -> None:
    for names in (("h_0", "g_1"), ("h_0", "h_2"), ("h_0", "h_01"), ("fc0", "fc1")):
        b = Builder()
        value = b.tensor("x", X)
        for name in names:
            value = b.function("tanh", [value], [X], scope=name)
        b.output(value)
        graph = b.build()
        assert rollup(graph) == graph


@pytest.mark.parametrize("name", ["h_{}", "h.{}"])
def test_one_change_in_twelve_layers_is_reported_and_drawn_once(name: str) -> None:
    found = gradir.diff(stack(*["tanh"] * 12, name=name), stack(*["sin"] * 12, name=name))
    before, _, after = name.partition("{}")
    assert f"{before}{{0..11}}{after}: the same change in each of 12 modules" in str(found)
    picture = found.to("mermaid", hops=0)
    assert picture.count("×12") == 1
    assert picture.count("]:::changed") + picture.count('"]:::changed') >= 1


def test_ranges_of_numbered_names() -> None:
    assert ranges(["h_0", "h_1", "h_2", "ln"]) == "{h_{0..2},ln}"
    assert ranges([f"h_{number}.fc" for number in (0, 1, 2, 10)]) == "h_{0..2,10}.fc"
    assert ranges(["ln_1", "ln_2"]) == "{ln_1,ln_2}"
    assert ranges(["a b_0", "a b_1", "a b_2"]) == '{"a b_0","a b_1","a b_2"}'


def test_a_table_in_the_order_of_the_alphabet_is_reported_by_number() -> None:
    def names(*paths: str) -> list[str]:
        return ModuleTree(map(Scope, paths)).names

    assert names("fc", "h_0", "h_1", "h_10", "h_2", "ln") == ["fc", "h_0", "h_1", "h_2", "h_10", "ln"]
    # A program that has them in another order means it.
    assert names("h_10", "h_2", "h_0") == ["h_10", "h_2", "h_0"]
    assert names("0", "2", "1") == ["0", "2", "1"]


def test_an_abstract_trace_has_no_device() -> None:
    graph = Graph.of([Node("x", role="leaf", outputs=(X,)), Node("f", op="exp", inputs=(Ref("x", 0),), outputs=(X,))])
    for exporter in ("tree", "plain", "mermaid", "dot", "graphml", "cytoscape", "nodelink", "model-explorer", "html"):
        assert graph.to(exporter)
