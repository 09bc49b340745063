"""Pictures and trees of a forward that raised mark the operation that did, with its error and its line."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from dot_pictures import Picture, expect_text, read_drawn_text, run_dot
from gradir_exporters._box_words import failure_lines
from gradir_exporters._mermaid_picture import shorten_text
from gradir_exporters.dot import to_pydot
from hostile_texts import HOSTILE_TEXTS
from mermaid_pictures import parse_mermaid
from page_graphs import failing_graph

import gradir
from gradir.ir import Graph, Node, Ref, Source, TensorMeta
from gradir.ir.marks import UNREAD, failure
from gradir.overlays import Channel, Overlay
from gradir.passes import focus, fold, hide_shape_ops, rollup

ERROR = "× sizes 4 and 8 differ"
WRONG_TYPES = (True, 3, 0.5, None, "", ("ValueError: no",))


def raising(error: Any, source: Source | None = None) -> Graph:
    return Graph.of([Node("x", role="leaf"), Node("f:1", op="f", ext={"failed": error}, source=source)])


def boxes(dot_program: str, source: str) -> dict[str, dict[str, Any]]:
    return Picture(run_dot(dot_program, source, "json")).nodes


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_dot_draws_a_red_border_with_the_error_and_the_line(dot_program: str, theme: str) -> None:
    source = failing_graph().to("dot", theme=theme, legend=True)
    found = boxes(dot_program, source)
    (box,) = [box for box in found.values() if box.get("class") == "function failed"]
    assert read_drawn_text(box) == ["add", ERROR, "net.py:9"]
    assert (box["color"], box["penwidth"]) == ("#cf222e", "3")
    assert source.count("× raised here") == 1
    (built,) = to_pydot(failing_graph(), theme=theme).get_node(box["name"])
    assert built.get_color() == '"#cf222e"'


def test_mermaid_reads_the_border_the_error_and_the_line(mermaid_node: str) -> None:
    (found,) = parse_mermaid(mermaid_node, [failing_graph().to("mermaid", legend=True)])
    marked = {vertex["text"]: vertex["classes"] for vertex in found["vertices"] if "failed" in vertex["classes"]}
    assert marked == {f"add\n{ERROR}\nnet.py:9": ["function", "failed"], "× raised here": ["function", "failed"]}


@pytest.mark.parametrize("to", ["dot", "mermaid"])
def test_a_value_that_nothing_read_is_no_output(to: str) -> None:
    graph = failing_graph()
    left = Node("output", "output", inputs=(Ref("relu:1", 0),), outputs=(TensorMeta("float32", (4, 8)),))
    text = msgspec.structs.replace(graph, nodes={**graph.nodes, "output": left}).to(to)
    assert text.count(UNREAD) == 1
    whole = {key: node for key, node in graph.nodes.items() if not failure(node)} | {"output": left}
    assert UNREAD not in msgspec.structs.replace(graph, nodes=whole).to(to)


def test_a_tree_says_it_on_the_line_of_the_operation() -> None:
    assert failing_graph().to("tree").splitlines()[0] == f"add:1 {ERROR} at net.py:9"


def test_a_table_of_modules_says_below_which_operation_it_was() -> None:
    assert failing_graph().to("summary").splitlines()[-1] == f"raised here: add:1 {ERROR} at net.py:9"
    assert (
        failing_graph().to("summary", style="markdown").splitlines()[-1]
        == f"- raised here: `add:1 {ERROR} at net.py:9`"
    )
    totals = json.loads(failing_graph().to("summary", style="json"))["totals"]
    assert totals["raised"] == f"add:1 {ERROR} at net.py:9"


@pytest.mark.parametrize("exporter", ["dot", "mermaid", "tree", "summary"])
def test_without_an_error_nothing_is_reported(exporter: str) -> None:
    options = {"legend": True} if exporter in {"dot", "mermaid"} else {}
    for error in WRONG_TYPES:
        text = raising(error).to(exporter, **options)
        assert "×" not in text
        assert "failed" not in text
        assert "raised" not in text


def test_only_the_first_line_is_shown_and_what_is_cut_says_so() -> None:
    def of(error: str, file: str = "net.py") -> list[str]:
        return failure_lines(Node("f:1", ext={"failed": error}, source=Source(file, 12)))

    assert of("\nValueError: no\nat all\n") == ["× ValueError: no …", "net.py:12"]
    assert of("ValueError: no\n") == ["× ValueError: no", "net.py:12"]
    assert of(" \n ")[0].startswith("× ")
    (long, where) = of(f"ValueError: {'x' * 100_000} (2x8 and 5x2)", f"{'a/' * 50_000}net.py")
    assert (long[:14], long[-15:], where[:4], where[-10:]) == (
        "× ValueError: ",
        "x (2x8 and 5x2)",
        "a/a/",
        "/net.py:12",
    )
    assert long.count("…") == where.count("…") == 1
    assert len(long) < 100
    assert len(where) < 100


def test_hostile_errors_are_shown_as_they_are(dot_program: str, mermaid_node: str) -> None:
    texts = [text for text in HOSTILE_TEXTS.values() if text.strip()]
    texts += ['"]:::evil\nend', "\x1b[31m\u202e", "x" * 100_000, "\x00" * 100_000, 'a\\N"] [color=blue', "</td><b>&lt;"]
    nodes = [
        Node(f"f:{number}", op="f", ext={"failed": text}, source=Source(text, 1)) for number, text in enumerate(texts)
    ]
    expected = [["f", *failure_lines(node)] for node in nodes]
    graph = Graph.of(nodes)
    found = boxes(dot_program, graph.to("dot"))
    assert [read_drawn_text(found[f"n{number}"]) for number in range(len(nodes))] == [
        [expect_text(line) for line in lines] for lines in expected
    ]
    (chart,) = parse_mermaid(mermaid_node, [graph.to("mermaid")])
    assert "error" not in chart, chart
    assert [vertex["text"] for vertex in chart["vertices"]] == [shorten_text("\n".join(lines)) for lines in expected]
    assert all((vertex["elements"], vertex["classes"]) == (0, ["function", "failed"]) for vertex in chart["vertices"])
    tree = graph.to("tree")
    assert tree.replace("\n", "").isprintable()
    assert tree.splitlines() == [
        f"{node.id} {' at '.join(lines[1:])}" for node, lines in zip(nodes, expected, strict=True)
    ]


def test_a_box_that_represents_several_says_which_error_it_holds() -> None:
    meta = TensorMeta("float32", (2,))
    b = gradir.Builder()
    value = b.tensor("x", meta, role="input")
    for number in range(3):
        value = b.function("exp", [value], [meta], scope=f"h.{number}")
    b.output(value)
    graph = b.build()
    nodes = {
        id_: msgspec.structs.replace(node, ext={"failed": "E: no"}) if id_ == "h.1/exp:1" else node
        for id_, node in graph.nodes.items()
    }
    graph = msgspec.structs.replace(graph, nodes=nodes)
    assert [id_ for id_, node in fold(graph, 1).nodes.items() if failure(node)] == ["h"]
    assert "\n× E" in fold(graph, 1).to("mermaid")
    assert [id_ for id_, node in rollup(graph).nodes.items() if failure(node)] == ["h.1/exp:1"]


def test_the_border_stays_in_parts_below_overlays_and_in_diffs() -> None:
    graph = failing_graph()
    overlay = Overlay((Channel("a", {"add:1": 2.0}),))
    for exporter, border in (("dot", 'failed" '), ("mermaid", " failed\n")):
        for text in (
            focus(graph, "add:1").to(exporter),
            gradir.export(graph, exporter, overlay=overlay),
            gradir.diff(Graph.of([]), graph).to(exporter),
        ):
            assert border in text
            assert ERROR in text


def test_a_shape_operation_that_raised_is_not_hidden() -> None:
    nodes = [Node("x", role="input"), Node("view:1", op="view", inputs=(gradir.Ref("x", 0),))]
    assert "view:1" not in hide_shape_ops(Graph.of(nodes)).nodes
    nodes[1] = msgspec.structs.replace(nodes[1], ext={"failed": "RuntimeError: no such shape"})
    assert "view:1" in hide_shape_ops(Graph.of(nodes)).nodes
