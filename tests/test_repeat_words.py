"""What pictures say of equal steps drawn once, of numbers at lines and frames, and of parameters without a gradient."""

from __future__ import annotations

import re

import pytest

from gradir.ir import Builder, Cut, Graph, Node, Ref, Scope, TensorMeta
from gradir.passes import once

ROW = TensorMeta("float32", (2,))


def chain(rounds: int) -> Graph:
    """Steps that feed the next."""
    b = Builder()
    value = b.tensor("x", ROW)
    for _ in range(rounds):
        value = b.function("tanh", [b.function("mul", [value], [ROW])], [ROW])
    b.output(value)
    return b.build()


def branches(count: int) -> Graph:
    """Steps side by side."""
    b = Builder()
    x = b.tensor("x", ROW)
    b.output(
        b.function("stack", [b.function("tanh", [b.function("mul", [x], [ROW])], [ROW]) for _ in range(count)], [ROW])
    )
    return b.build()


@pytest.mark.parametrize("exporter", ["dot", "mermaid"])
def test_a_loop_is_reported_from_branches(exporter: str) -> None:
    loop = chain(12).to(exporter, once=True, legend=True)
    beside = branches(12).to(exporter, once=True, legend=True)
    assert "×12, each feeds the next" in loop
    assert "×12, side by side" in beside
    assert "one is drawn of N equal steps" in loop
    assert "one is drawn of N equal steps" in beside
    assert "×N at a line" not in loop
    assert "×N at a line" in beside


@pytest.mark.parametrize("exporter", ["dot", "mermaid"])
def test_without_repeats_the_legend_names_none(exporter: str) -> None:
    assert "×N" not in chain(12).to(exporter, legend=True)
    assert "×N" not in once(chain(2)).to(exporter, legend=True)


def test_three_equal_steps_are_the_fewest_that_are_drawn_once() -> None:
    assert [len(once(chain(count)).nodes) < len(chain(count).nodes) for count in (2, 3)] == [False, True]


def test_without_frames_no_number_is_at_one() -> None:
    assert "at a frame" not in chain(12).to("dot", once=True, legend=True, clusters=False)


@pytest.mark.parametrize("exporter", ["dot", "mermaid"])
def test_the_legend_explains_the_number_in_the_box_of_an_edit_in_many_layers(exporter: str) -> None:
    marked = Graph.of([Node("f", op="relu", ext={"diff": "added", "times": 12})])
    text = marked.to(exporter, legend=True)
    assert "×N in a box" in text
    assert "at a frame" not in text


def cut(*cuts: Cut) -> Graph:
    nodes = [
        Node("a.w", role="parameter", scope="a"),
        Node("a/mul:1", op="mul", scope="a", inputs=(Ref("a.w", 0),)),
        Node("b/mul:1", op="mul", scope="b", inputs=(Ref("a/mul:1", 0),)),
    ]
    return Graph.of(nodes, [Scope(""), Scope("a"), Scope("b")], cuts)


UNREACHED = Cut("unreached", ("b.v",), scope="b")
PLACE = Cut("detach", op="detach", into="b/mul:1")


@pytest.mark.parametrize("exporter", ["dot", "mermaid"])
@pytest.mark.parametrize(
    ("cuts", "words"),
    [
        ([UNREACHED], ["parameters not in the graph"]),
        ([PLACE], ["where gradients end"]),
        ([PLACE, UNREACHED], ["parameters not in the graph", "where gradients end"]),
    ],
)
def test_the_legend_distinguishes_parameters_and_places(exporter: str, cuts: list[Cut], words: list[str]) -> None:
    text = cut(*cuts).to(exporter, legend=True)
    found = re.findall(r'[>"](parameters not in the graph|where gradients end)["<]', text)
    assert sorted(found) == words


@pytest.mark.parametrize("exporter", ["dot", "mermaid", "tree"])
def test_a_part_shows_the_unreached_parameters_of_what_it_has(exporter: str) -> None:
    graph = cut(UNREACHED)
    assert "b.v" in graph.to(exporter)
    assert "b.v" in graph.to(exporter, focus="b", hops=0)
    assert "b.v" not in graph.to(exporter, focus="a", hops=0)
    assert graph.to("summary").count("1 unreached") == graph.to("summary", focus="a", hops=0).count("1 unreached")


def test_a_line_break_in_a_name_is_no_line_of_its_own() -> None:
    graph = Graph.of([Node("x", role="leaf", names=("w\nfloat32[9]",), outputs=(ROW,))])
    assert 'n0["w#92;nfloat32[9]\nfloat32[2]"]' in graph.to("mermaid")
