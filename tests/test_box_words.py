"""What boxes say, the same in the exporters ``dot`` and ``mermaid``."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from gradir_exporters._box_words import inline_parameters
from gradir_exporters._mermaid_picture import MermaidOptions
from gradir_exporters._mermaid_picture import Picture as MermaidPicture
from hypothesis import given
from mermaid_pictures import boxes_in, groups_in
from samples import everything
from strategies import graphs

import gradir
from gradir.ir import Builder, Graph, Node, Ref, Saved, Scope, TensorMeta
from gradir.passes import drop, focus, fold

META = TensorMeta("float32", (2, 3))


def words(graph: Graph, **options: Any) -> list[list[str]]:
    """The lines of each box of a picture of DOT."""
    source = graph.to("dot", **options)
    return [
        html.unescape(label.replace('\\"', '"')).replace("\\\\", "\\").split("\\n")
        for label in re.findall(r'^\t+n\d+ \[label="((?:[^"\\]|\\.)*)"', source, re.MULTILINE)
    ]


def in_mermaid(graph: Graph, **options: Any) -> list[list[str]]:
    """The same of Mermaid, where accumulators are drawn as DOT does."""
    items = MermaidPicture(graph, MermaidOptions(accumulators=True, **options)).items()
    return [box.text.split("\n") for box in boxes_in(items) if box.key[0] == "n"]


def linear() -> Graph:
    """A linear layer with accumulators, and a weight that two take."""
    b = Builder()
    value = b.tensor("x", META)
    weight, bias, tied = (
        b.tensor(f"fc.{name}", META, role="parameter", scope="fc") for name in ("weight", "bias", "tied")
    )
    taken = [b.function("accumulate_grad", [tensor], [META], scope="fc") for tensor in (weight, bias)]
    turned = b.function("t", [taken[0]], [TensorMeta("float32", (3, 2))], native="TBackward0", scope="fc")
    value = b.function("addmm", [taken[1], None, turned], [META], native="AddmmBackward0", scope="fc")
    b.output(b.function("add", [b.function("mul", [value, tied], [META]), tied], [META]))
    return b.build(scopes=[Scope("fc", "Linear", calls=1)])


@pytest.mark.parametrize("options", [{}, {"native": True}, {"shapes": False}, {"parameters": "inline"}])
@pytest.mark.parametrize("make", [everything, linear, lambda: fold(linear(), 1), lambda: fold(everything(), 1)])
def test_both_pictures_say_the_same(make: Any, options: dict[str, Any]) -> None:
    assert sorted(words(make(), **options)) == sorted(in_mermaid(make(), **options))


def test_both_call_frames_the_same() -> None:
    groups = groups_in(MermaidPicture(linear(), MermaidOptions(accumulators=True)).items())
    assert [group.text for group in groups] == ["fc (Linear)"]
    assert 'label="fc (Linear)"' in linear().to("dot")


def test_an_empty_slot_is_reported() -> None:
    assert ["addmm(·, None, ·)", "float32[2, 3]"] in words(linear())
    assert ["AddmmBackward0(·, None, ·)", "float32[2, 3]"] in words(linear(), native=True)
    many = Graph.of([Node("x", "leaf"), Node("f", op="cat", inputs=(None, *[Ref("x", 0)] * 2000))])
    assert words(many) == [["x"], ["cat(1 of 2,001 None)"]]


@pytest.mark.parametrize("make", [lambda: drop(linear(), ["leaf", "parameter"]), lambda: focus(linear(), "add:1", 1)])
def test_a_slot_whose_source_was_left_out_is_not_empty(make: Any) -> None:
    lines = [line for box in words(make()) for line in box]
    assert not [line for line in lines if "None" in line and not line.startswith("addmm(·, None, ·)")]


def test_a_slot_that_was_there_before_is_no_slot() -> None:
    x = Ref("x", 0)
    changed = Node("f", op="add", inputs=(x, None, x), ext={"diff": "changed", "lost_inputs": (2,)})
    assert words(Graph.of([Node("x", "leaf"), changed])) == [["x"], ["~ add(·, None)"]]


def test_a_folded_module_has_no_empty_slots() -> None:
    nodes = [
        Node("x", "leaf"),
        Node("m", "module", names=("m",), inputs=(None, Ref("x", 0))),
        Node("o", "output", inputs=(None,)),
    ]
    assert words(Graph.of(nodes)) == [["x"], ["m"], ["o"]]


def test_boxes_that_differ_in_what_they_say_are_not_taken_for_each_other() -> None:
    x, other = Ref("x", 0), TensorMeta("float64", (2, 3))
    kinds: list[dict[str, Any]] = [
        {"inputs": (x, None)}, {"inputs": (None, x)}, {"inputs": (x, x)}, {"inputs": (None, x), "role": "note"},
        {"inputs": (x, x), "outputs": (other,)}, {"inputs": (x, x), "opaque": True},
        {"inputs": (x, x), "native": "Mul"},
    ]  # fmt: skip
    found = [Node("x", "leaf", outputs=(META,))]
    for number, fields in enumerate([*kinds, *kinds]):
        found.append(Node(f"f{number}", **{"op": "mul", "outputs": (META,), **fields}))
    graph = Graph.of(found)
    for native in (False, True):
        assert words(graph, native=native) == in_mermaid(graph, native=native)
    shapes = ["float32[2, 3]"]
    assert words(graph)[1:8] == [
        ["mul(·, None)", *shapes], ["mul(None, ·)", *shapes], ["mul", *shapes], ["mul", *shapes],
        ["mul", "float64[2, 3]"], ["mul", "(opaque)", *shapes], ["mul", *shapes],
    ]  # fmt: skip


def test_outputs_that_nothing_takes_are_not_shown() -> None:
    b = Builder()
    norm = b.function("norm", [b.tensor("x", META)], [TensorMeta("float32", (1,)), META, META])
    b.output(b.function("exp", [norm.output(1)], [META]))
    assert ["norm", "float32[2, 3]"] in words(b.build())
    assert ["norm", "float32[2, 3]"] in in_mermaid(b.build())


def test_parameters_may_be_in_the_box_of_what_takes_them() -> None:
    boxes = [
        ["add", "float32[2, 3]"],
        ["addmm(·, None, ·)", "float32[2, 3]", "bias [2, 3]"],
        ["fc.tied", "float32[2, 3]"],  # two functions take it
        ["mul", "float32[2, 3]"],
        ["output", "float32[2, 3]"],
        ["t", "float32[3, 2]", "weight [2, 3]"],
    ]
    assert sorted(words(linear(), parameters="inline")) == boxes
    assert sorted(in_mermaid(linear(), parameters="inline")) == boxes


def test_a_parameter_that_something_is_reported_of_stays_a_box() -> None:
    nodes = [
        Node("w", "parameter", ext={"diff": "added"}, outputs=(META,)),
        Node("v", "parameter", ext={"overlay": ("alarm", "zero", "gradient", "zero", False)}),
        Node("f", op="mul", inputs=(Ref("w", 0), Ref("v", 0))),
    ]
    for exporter in ("dot", "mermaid"):
        assert Graph.of(nodes).to(exporter, parameters="inline") == Graph.of(nodes).to(exporter)


@given(graphs())
def test_any_graph_may_have_its_parameters_inline(graph: Graph) -> None:
    boxes = words(graph, parameters="inline")
    assert len(boxes) == len(in_mermaid(graph, parameters="inline"))
    gone = len(words(graph)) - len(boxes)
    assert gone <= sum(node.role == "parameter" or node.op == "accumulate_grad" for node in graph.nodes.values())
    gradir.dumps(inline_parameters(graph)[0])


@pytest.mark.parametrize("into", [True, False])
def test_lines_of_many_at_one_box_are_thin(into: bool) -> None:
    def lines(count: int) -> list[str]:
        b = Builder()
        x = b.tensor("x", META)
        values = [b.function("sin", [b.tensor(f"x{n}", META) if into else x], [META]) for n in range(count)]
        for number, value in enumerate([b.function("cat", values, [META])] if into else values):
            b.output(value, str(number))
        return re.findall(r'-> n\d+ \[penwidth="0.5" arrowsize="0.4" weight="0"\]', b.build().to("dot"))

    assert len(lines(24)) == 24
    assert lines(7) == []
    legend = everything().to("dot", legend=True)
    assert "many" not in legend
    # Invisible lines place the boxes of cuts.
    drawn = everything().to("mermaid", legend=True)
    assert "parameters not in the graph" in drawn
    assert "beside" not in drawn


def test_a_saved_tensor_is_reported_alike() -> None:
    b = Builder()
    saved = [(Saved("self", "float32", (2, 3)), None), (Saved("result", "float32", (2, 3), state="freed"), None)]
    b.output(b.function("exp", [b.tensor("x", META)], [META], saved=saved))
    dot, mermaid = b.build().to("dot", show_saved=True), b.build().to("mermaid", show_saved=True)
    for text in ("self\nfloat32[2, 3]", "result (freed)\nfloat32[2, 3]"):
        assert text.replace("\n", "\\n") in dot
        assert text in mermaid
